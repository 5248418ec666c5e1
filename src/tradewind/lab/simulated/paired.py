"""Runs of policies on the same seeds as rows of an experiment: each policy's figures, and one against the rest."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import msgspec

from tradewind.lab.harness.row import Row
from tradewind.lab.simulated.compare import RunRow, difference
from tradewind.measure.statistics import mean_interval

SHOWN = (  # metric, field of a run, unit, factor
    ("TTFT p50", "ttft_p50_s", "ms", 1e3),
    ("TTFT p95", "ttft_p95_s", "ms", 1e3),
    ("TTFT p99", "ttft_p99_s", "ms", 1e3),
    ("E2E p50", "e2e_p50_s", "s", 1.0),
    ("E2E p95", "e2e_p95_s", "s", 1.0),
    ("ITL mean", "itl_mean_s", "ms", 1e3),
    ("prompt served from cache", "hit_served_ratio", "%", 1e2),
    ("largest share of a cell", "max_share", "%", 1e2),
    ("served", "success_ratio", "%", 1e2),
)
COMPARED = (("TTFT p95", "ttft_p95_s"), ("E2E p95", "e2e_p95_s"))
BEST, PUBLISHED_BEST = "against the best other", "against the best other as published"
SERVES_ALL = 0.99  # of the requests: who serves fewer has left its tail out
Runs = Mapping[str, Sequence[RunRow]]  # policy -> its runs, on the same seeds


def figures_of(runs: Runs, *, experiment: str, profile: str) -> Iterator[Row]:
    """Every metric of every policy: the mean over seeds and its 95 % interval."""
    for policy, of_policy in runs.items():
        for metric, field, unit, factor in SHOWN:
            values = [factor * float(getattr(run, field)) for run in of_policy]
            low, high = mean_interval(values) or (None, None)
            yield Row(
                experiment=experiment,
                profile=profile,
                policy=policy,
                metric=metric,
                value=fmean(values),
                unit=unit,
                lo=low,
                hi=high,
                n=len(values),
                seed=of_policy[0].seed,
            )


def against_each(runs: Runs, ours: str, *, experiment: str, profile: str) -> Iterator[Row]:
    """How much less or more one policy has than each other one, paired by seed; negative is better."""
    for metric, field in COMPARED:
        for policy in runs:
            if policy != ours:
                row = _difference(runs, ours, policy, field, experiment=experiment, profile=profile)
                yield msgspec.structs.replace(row, policy=policy, metric=f"{metric}: {ours} against it")


def as_row_of(row: Row, policy: str, *, against: str) -> Row:
    """A row of `against_each` as one of the policy that it is about."""
    metric = f"{row.metric.partition(':')[0]} against {against}"
    return msgspec.structs.replace(row, policy=policy, metric=metric)


def against_best(runs: Runs, ours: str, *, experiment: str, profile: str, name: str = BEST) -> Iterator[Row]:
    """The same against the best of the others, which may be another one for each metric."""
    for metric, field in COMPARED:
        best = best_of(runs, field, without=ours)
        if best is not None:
            row = _difference(runs, ours, best, field, experiment=experiment, profile=profile)
            yield msgspec.structs.replace(row, metric=f"{metric} {name}")


def best_of(runs: Runs, field: str, *, without: str) -> str | None:
    """Who has the lowest mean of a metric among those that serve everything; None if nobody does."""
    able = {
        policy: fmean(getattr(run, field) for run in of_policy)
        for policy, of_policy in runs.items()
        if policy != without and fmean(run.success_ratio for run in of_policy) >= SERVES_ALL
    }
    return min(able, key=lambda policy: able[policy]) if able else None


def _difference(runs: Runs, ours: str, other: str, field: str, *, experiment: str, profile: str) -> Row:
    found = difference(runs[ours], runs[other], metric=field)
    return Row(
        experiment=experiment,
        profile=profile,
        policy=ours,
        metric="",
        value=1e2 * found.mean_ratio,
        unit="%",
        lo=None if found.low_ratio is None else 1e2 * found.low_ratio,
        hi=None if found.high_ratio is None else 1e2 * found.high_ratio,
        n=found.seeds,
        seed=runs[ours][0].seed,
    )
