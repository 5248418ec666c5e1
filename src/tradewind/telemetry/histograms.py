"""Prometheus bucket series of several ranks to one cumulative histogram."""

import itertools
import math
from collections.abc import Sequence

from tradewind.model.telemetry import Histogram
from tradewind.telemetry.exposition import Labels, Sample

MAX_COUNT = 1e18


def merge_histograms(
    buckets: Sequence[Sample], counts: Sequence[Sample], sums: Sequence[Sample], *, replica_labels: tuple[str, ...] = ()
) -> Histogram:
    """Sum the histograms of all ranks over the bounds that all of them have; replicas (by label) count once.

    The +Inf bucket may be missing where _count is there. Raises ValueError with the reason if no histogram can be made.
    """
    parts: dict[Labels, dict[float, float]] = {}
    for sample in buckets:
        (series, value), bound = sample, sample.series.bound
        if bound is None:
            raise ValueError("a bucket without a bound")
        if not 0 <= value <= MAX_COUNT:
            raise ValueError(f"a bucket holds {value:g}")
        part = parts.get(series.without_le)
        if part is None:
            part = parts[series.without_le] = {}
        held = part.get(bound)
        part[bound] = value if held is None or held < value else held
    for sample in counts:
        parts.setdefault(sample.series.labels, {}).setdefault(math.inf, _count(sample.value))
    chosen = _one_per_replica(parts, replica_labels)
    if not chosen:
        raise ValueError("no series")
    for part in chosen.values():
        _check(part)
    first, *others = chosen.values()
    bounds = sorted(bound for bound in first if bound < math.inf and all(bound in part for part in others))
    if not bounds:
        raise ValueError("its ranks have no bucket bound in common")
    whole = (*bounds, math.inf)
    if others:
        cumulative = tuple(math.fsum(part[bound] for part in chosen.values()) for bound in whole)
    else:
        cumulative = tuple(map(first.__getitem__, whole))
    return Histogram(bounds=tuple(bounds), counts=cumulative, total=_total(sums, chosen))


def _count(value: float) -> float:
    if not 0 <= value <= MAX_COUNT:
        raise ValueError(f"a bucket holds {value:g}")
    return value


def _check(part: dict[float, float]) -> None:
    if math.inf not in part:
        raise ValueError("the +Inf bucket is missing")
    ordered = list(map(part.__getitem__, sorted(part)))
    if any(later < earlier for earlier, later in itertools.pairwise(ordered)):
        raise ValueError("the buckets are not cumulative")


def _one_per_replica(
    parts: dict[Labels, dict[float, float]], replica_labels: tuple[str, ...]
) -> dict[Labels, dict[float, float]]:
    """Of parts that differ only in replica labels, the one with most observations."""
    chosen: dict[Labels, tuple[Labels, dict[float, float]]] = {}
    for labels, part in sorted(parts.items(), key=lambda entry: entry[0]):
        key = tuple(item for item in labels if item[0] not in replica_labels)
        held = chosen.get(key)
        if held is None or part.get(math.inf, 0.0) > held[1].get(math.inf, 0.0):
            chosen[key] = labels, part
    return dict(chosen.values())


def _total(sums: Sequence[Sample], chosen: dict[Labels, dict[float, float]]) -> float | None:
    values = [sample.value for sample in sums if sample.series.labels in chosen]
    if len(values) != len(chosen) or not all(0 <= value <= MAX_COUNT for value in values):
        return None
    return math.fsum(values)
