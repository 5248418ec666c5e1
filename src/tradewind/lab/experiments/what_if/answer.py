"""From results to rows, to differences paired by seed, and to sentences."""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from tradewind.lab.experiments.what_if.setup import AS_IT_IS
from tradewind.lab.harness.experiment import Done, Result
from tradewind.lab.harness.row import Row
from tradewind.measure.statistics import bootstrap_interval

NAME = "what-if"
CHANGE = " change"

# metric: unit, factor, whether its change is relative (in %) or in points of the unit
METRICS: Mapping[str, tuple[str, float, bool]] = {
    "success": ("%", 100.0, False),
    "ttft_p50": ("ms", 1e3, True),
    "ttft_p95": ("ms", 1e3, True),
    "ttft_p99": ("ms", 1e3, True),
    "e2e_p50": ("ms", 1e3, True),
    "e2e_p95": ("ms", 1e3, True),
    "e2e_p99": ("ms", 1e3, True),
    "goodput": ("/s", 1.0, True),
    "good": ("%", 100.0, False),
    "hit": ("%", 100.0, False),
}


def kind_of(metric: str) -> tuple[str, float, bool]:
    """Those of sites are by name: "utilisation east", "in flight east"."""
    if metric.startswith("utilisation "):
        return "%", 100.0, False
    if metric.startswith("in flight "):
        return "", 1.0, False
    return METRICS[metric]


def rows(done: Done) -> list[Row]:
    """Each arm's figures, and what each what-if changes on the same seeds."""
    arms: dict[str, dict[int, Result]] = {}
    for trial, result in done:
        arms.setdefault(str(trial.args["what_if"]), {})[int(trial.args["seed"] or 0)] = result
    found: list[Row] = []
    for arm, by_seed in arms.items():
        found += _levels(arm, by_seed)
        if arm != AS_IT_IS and AS_IT_IS in arms:
            found += _changes(arm, by_seed, arms[AS_IT_IS])
    return found


def _levels(arm: str, by_seed: Mapping[int, Result]) -> Iterator[Row]:
    seeds = sorted(by_seed)
    for metric in _metrics(by_seed[seeds[0]]):
        unit, factor, _ = kind_of(metric)
        values = [by_seed[seed].get(metric) for seed in seeds]
        yield _row(arm, by_seed, metric, [value for value in values if value is not None], unit=unit, factor=factor)


def _changes(arm: str, by_seed: Mapping[int, Result], before: Mapping[int, Result]) -> Iterator[Row]:
    """Paired by seed: what chance does to both alike is out of the difference."""
    both = sorted(by_seed.keys() & before.keys())
    for metric in _metrics(by_seed[both[0]]) if both else ():
        unit, factor, relative = kind_of(metric)
        pairs = [(by_seed[seed].get(metric), before[seed].get(metric)) for seed in both]
        known = [(new, old) for new, old in pairs if new is not None and old is not None]
        if relative:
            ratios = [new / old - 1.0 for new, old in known if old]
            yield _row(arm, by_seed, metric + CHANGE, ratios, unit="%", factor=100.0)
        elif known:
            steps = [new - old for new, old in known]
            yield _row(arm, by_seed, metric + CHANGE, steps, unit="points" if unit == "%" else unit, factor=factor)


def _row(
    arm: str, by_seed: Mapping[int, Result], metric: str, values: Sequence[float], *, unit: str, factor: float
) -> Row:
    interval = bootstrap_interval(values, fmean, random.Random(0)) if values else None
    return Row(
        experiment=NAME,
        profile=arm,
        policy=str(next(iter(by_seed.values()))["policy"]),
        metric=metric,
        value=factor * fmean(values) if values else None,
        unit=unit,
        lo=factor * interval[0] if interval else None,
        hi=factor * interval[1] if interval else None,
        n=len(values),
        seed=min(by_seed),
    )


def _metrics(result: Result) -> list[str]:
    return [name for name in result if name in METRICS or name.startswith(("utilisation ", "in flight "))]


def arms_of(found: Sequence[Row]) -> list[str]:
    """In the order in which they were asked for."""
    return list(dict.fromkeys(row.profile for row in found))


def sentences(found: Sequence[Row]) -> list[str]:
    """One for the grid as it is, one for each what-if."""
    return [_as_it_is(found) if arm == AS_IT_IS else _what_if(found, arm) for arm in arms_of(found)]


def _of(found: Sequence[Row], arm: str, metric: str) -> Row | None:
    return next((row for row in found if row.profile == arm and row.metric == metric), None)


def _as_it_is(found: Sequence[Row]) -> str:
    ttft, e2e = _shown(found, AS_IT_IS, "ttft_p95"), _shown(found, AS_IT_IS, "e2e_p95")
    good, success = _shown(found, AS_IT_IS, "goodput"), _shown(found, AS_IT_IS, "success")
    sites = ", ".join(f"{site} {_shown(found, AS_IT_IS, f'utilisation {site}')}" for site in _sites(found, AS_IT_IS))
    return f"As it is: TTFT p95 {ttft}, E2E p95 {e2e}, {success} served, goodput {good}; utilisation: {sites}."


def _what_if(found: Sequence[Row], arm: str) -> str:
    told = [
        f"{label} {_shown(found, AS_IT_IS, metric)} -> {_shown(found, arm, metric)} ({_change(found, arm, metric)})"
        for label, metric in (("TTFT p95", "ttft_p95"), ("E2E p95", "e2e_p95"), ("goodput", "goodput"))
    ]
    served = f"{_shown(found, arm, 'success')} served"
    before = _of(found, AS_IT_IS, "success")
    now = _of(found, arm, "success")
    if before is not None and now is not None and before.value != now.value:
        served += f" ({_shown(found, AS_IT_IS, 'success')} as it is)"
    sites = ", ".join(
        f"{site} {_shown(found, AS_IT_IS, f'utilisation {site}')} -> {_shown(found, arm, f'utilisation {site}')}"
        for site in _sites(found, arm)
    )
    return f"{arm}: {_verdict(found, arm)}: {', '.join(told)}; {served}; utilisation: {sites}."


def _verdict(found: Sequence[Row], arm: str) -> str:
    """By the intervals of both tails; none below two seeds."""
    changes = [_of(found, arm, metric + CHANGE) for metric in ("ttft_p95", "e2e_p95")]
    known = [row for row in changes if row is not None and row.lo is not None and row.hi is not None]
    if not known:
        return "one seed says no more than this"
    slower = any(row.lo is not None and row.lo > 0 for row in known)
    faster = any(row.hi is not None and row.hi < 0 for row in known)
    if slower and faster:
        return "one tail gets shorter, the other longer"
    return "slower" if slower else "faster" if faster else f"no difference that {known[0].n} seeds can show"


def _sites(found: Sequence[Row], arm: str) -> list[str]:
    levels = [row.metric for row in found if row.profile == arm and not row.metric.endswith(CHANGE)]
    return [name.removeprefix("utilisation ") for name in levels if name.startswith("utilisation ")]


def _shown(found: Sequence[Row], arm: str, metric: str) -> str:
    row = _of(found, arm, metric)
    return "unknown" if row is None or row.value is None else with_unit(row.value, row.unit)


def _change(found: Sequence[Row], arm: str, metric: str) -> str:
    row = _of(found, arm, metric + CHANGE)
    if row is None or row.value is None:
        return "change unknown"
    if row.value == row.lo == row.hi == 0.0:
        return "unchanged"
    ends = "" if row.lo is None or row.hi is None else f", {_signed(row.lo)} .. {_signed(row.hi)}"
    return f"{_signed(row.value)} {row.unit}{ends}"


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.1f}"


def plain(value: float, unit: str) -> str:
    """With as many digits as such a figure bears."""
    return f"{value:,.0f}" if unit == "ms" else f"{value:.1f}" if unit == "%" else f"{value:.2f}"


def with_unit(value: float, unit: str) -> str:
    """The same and its unit."""
    return plain(value, unit) + (unit if unit == "/s" else f" {unit}")
