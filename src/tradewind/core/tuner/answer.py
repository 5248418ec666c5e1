"""What a switchback check has shown: paired over neighbouring blocks, with intervals, and who won if one can tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import expm1, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from tradewind.core.tuner.compare import believable, quantile
from tradewind.core.tuner.settings import CompareSettings
from tradewind.core.tuner.student import student_quantile
from tradewind.model.tuning import Sample

LEAST_VALUES = 100  # of a block, for a figure of it
LEAST_PAIRS = 3  # of blocks, for an interval
LEVEL = 1.0 - 0.05 / 3  # of each interval: the three of an answer hold together with 95 %
RATIO = 0.95
_BELIEVED = CompareSettings()


class Seen(NamedTuple):
    """One request of a block. Times None: unknown, or it failed."""

    dispatched_s: float
    ttft_s: float | None
    e2e_s: float | None
    failed: bool


@dataclass(slots=True)
class Block:
    """Requests decided by one order."""

    other: bool  # by the other setting, not the present one
    seen: list[Seen] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """A request ended."""
        self.seen.append(Seen(sample.dispatched_s, time_of(sample.ttft_s), time_of(sample.e2e_s), sample.failed))

    def counted(self, discard: int) -> list[Seen]:
        """Without the first ones after the switch, by their decision: queues are still the other setting's."""
        return sorted(self.seen, key=lambda seen: seen.dispatched_s)[discard:]


class Estimate(NamedTuple):
    """One figure under both settings. Changes are relative to the present one: -0.05 = 5 % less."""

    figure: str
    unit: str
    present: float  # mean over blocks
    other: float
    change: float
    low: float
    high: float
    pairs: int  # of blocks

    @property
    def sign(self) -> int:
        """-1 if the other setting has less for sure, 1 if more, 0 if that cannot be told."""
        return -1 if self.high < 0.0 else 1 if self.low > 0.0 else 0


class Answer(NamedTuple):
    """Of one check."""

    estimates: tuple[Estimate, ...]  # those that could be made
    requests: int  # that ended, with those that do not count
    failed_present: int
    failed_other: int

    @property
    def winner(self) -> str:
        """ "other", "present", or "" if no figure tells, or figures contradict each other."""
        signs = {estimate.sign for estimate in self.estimates} - {0}
        return {frozenset({-1}): "other", frozenset({1}): "present"}.get(frozenset(signs), "")

    @property
    def told(self) -> str:
        """In a sentence."""
        if not self.estimates:
            return "it cannot be told: too few requests said when their first token came"
        figures = "; ".join(
            f"{each.figure} {100 * each.change:+.1f} % ({100 * each.low:+.1f} .. {100 * each.high:+.1f})"
            for each in self.estimates
        )
        signs = {estimate.sign for estimate in self.estimates} - {0}
        verdict = {
            "other": "the other setting is better",
            "present": "the present setting is better",
            "": "the figures contradict each other" if len(signs) > 1 else "it cannot be told which is better",
        }[self.winner]
        failed = f"; failed: {self.failed_present} present, {self.failed_other} other"
        return f"{verdict}: {figures}{failed if self.failed_present or self.failed_other else ''}"


class _Figure(NamedTuple):
    name: str
    unit: str
    log_of: Callable[[Sequence[Seen]], float | None]  # its logarithm in one block


def answer_of(blocks: Sequence[Block], *, discard: int) -> Answer:
    """Of whole pairs of blocks, in their order."""
    counted = [(block.other, block.counted(discard)) for block in blocks]
    found = [_estimate(figure, counted) for figure in FIGURES]
    failed = [sum(each.failed for other, seen in counted if other is arm for each in seen) for arm in (False, True)]
    return Answer(
        estimates=tuple(estimate for estimate in found if estimate is not None),
        requests=sum(len(block.seen) for block in blocks),
        failed_present=failed[0],
        failed_other=failed[1],
    )


def _estimate(figure: _Figure, counted: Sequence[tuple[bool, list[Seen]]]) -> Estimate | None:
    pairs: list[tuple[float, float]] = []  # logarithms: present, other
    for first, second in zip(counted[::2], counted[1::2], strict=True):
        values = {other: figure.log_of(seen) for other, seen in (first, second)}
        present, other = values[False], values[True]
        if present is not None and other is not None:
            pairs.append((present, other))
    if len(pairs) < LEAST_PAIRS:
        return None
    changes = [other - present for present, other in pairs]
    change = fmean(changes)
    reach = student_quantile(LEVEL, len(pairs) - 1) * stdev(changes) / sqrt(len(pairs))
    means = [1.0 + expm1(fmean(column)) for column in zip(*pairs, strict=True)]
    return Estimate(
        figure.name,
        figure.unit,
        means[0],
        means[1],
        expm1(change),
        expm1(change - reach),
        expm1(change + reach),
        len(pairs),
    )


def _log_p95_ttft(seen: Sequence[Seen]) -> float | None:
    values = [each.ttft_s for each in seen if each.ttft_s is not None]
    return log(quantile(values, RATIO)) if len(values) >= LEAST_VALUES else None


def _mean_log_ttft(seen: Sequence[Seen]) -> float | None:
    values = [log(each.ttft_s) for each in seen if each.ttft_s is not None]
    return fmean(values) if len(values) >= LEAST_VALUES else None


def _log_mean_e2e(seen: Sequence[Seen]) -> float | None:
    values = [each.e2e_s for each in seen if each.e2e_s is not None]
    return log(fmean(values)) if len(values) >= LEAST_VALUES else None


FIGURES = (
    _Figure("p95 TTFT", "s", _log_p95_ttft),
    _Figure("typical TTFT", "s", _mean_log_ttft),  # the mean of logarithms: the geometric mean
    _Figure("mean E2E", "s", _log_mean_e2e),
)


def time_of(value: float | None) -> float | None:
    """A time that a request can have taken; None otherwise."""
    return value if value is not None and believable(value, _BELIEVED) else None
