"""Policies on the same arrivals, paths and disturbances: figures per run, and paired differences with intervals."""

import random
import shlex
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import msgspec

from tradewind.measure.statistics import bootstrap_interval, percentile
from tradewind.measure.summary import shares, summarise
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.invariants import run_checked
from tradewind.sim.policy import MakePolicy
from tradewind.sim.scenario import Scenario

SLO_TTFT_S = 1.5
LOWER_IS_BETTER = ("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "e2e_p50_s", "e2e_p95_s", "itl_mean_s", "itl_p95_s")


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one seed. Latencies over served requests that arrived after the warm-up."""

    scenario: str
    policy: str
    seed: int
    requests: int
    success_ratio: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    itl_mean_s: float
    itl_p95_s: float
    hit_served_ratio: float  # prompt tokens that engines served from their caches
    hit_predicted_ratio: float  # prompt tokens that the policy believed to be there
    max_share: float  # of the requests, on one cell
    trace_hash: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of a policy against a baseline, paired by seed: mean relative difference, negative = better."""

    scenario: str
    metric: str
    policy: str
    baseline: str
    mean_ratio: float
    error_ratio: float | None  # standard error over seeds; None below two
    low_ratio: float | None  # 95 % bootstrap interval over seeds
    high_ratio: float | None
    seeds: int


Progress = Callable[[str], None]


def run_once(scenario: Scenario, make: MakePolicy, *, policy: str, seed: int, check: bool = False) -> RunRow:
    """One run to its figures. Raises InvariantBrokenError with the command that replays it, if `check`."""
    grid = SimGrid(scenario, make, seed=seed)
    run = run_checked(grid, replay=replay_of(scenario, policy, seed)) if check else grid.run()
    return to_row(scenario, run, policy=policy, seed=seed)


def replay_of(scenario: Scenario, policy: str, seed: int) -> str:
    """The command that runs one policy on one seed again."""
    options = f"--scenario {scenario.name} --policy {shlex.quote(policy)} --seeds 1 --first-seed {seed}"
    return f"tradewind sim compare {options} --check"


def to_row(scenario: Scenario, run: RunResult, *, policy: str, seed: int) -> RunRow:
    """Figures of one run."""
    from_s = scenario.warm_up_ratio * scenario.for_s
    counted = [
        (record, predicted)
        for record, predicted in zip(run.records, run.predicted_tokens, strict=True)
        if record.intended_s >= from_s
    ]
    records = [record for record, _ in counted]
    figures = summarise(records, slo_ttft_s=SLO_TTFT_S, for_s=scenario.for_s - from_s)
    itls = [record.itl_s for record in records if record.itl_s is not None]
    prompt_tokens = sum(record.prompt_tokens for record in records) or 1
    return RunRow(
        scenario=scenario.name,
        policy=policy,
        seed=seed,
        requests=figures.requests,
        success_ratio=figures.success_ratio or 0.0,
        ttft_p50_s=figures.ttft_s.p50 or 0.0,
        ttft_p95_s=figures.ttft_s.p95 or 0.0,
        ttft_p99_s=figures.ttft_s.p99 or 0.0,
        e2e_p50_s=figures.e2e_s.p50 or 0.0,
        e2e_p95_s=figures.e2e_s.p95 or 0.0,
        itl_mean_s=fmean(itls) if itls else 0.0,
        itl_p95_s=percentile(itls, 0.95) or 0.0,
        hit_served_ratio=sum(record.usage_cached_tokens or 0 for record in records) / prompt_tokens,
        hit_predicted_ratio=sum(predicted for _, predicted in counted) / prompt_tokens,
        max_share=max(shares(records).values(), default=0.0),
        trace_hash=run.trace_hash,
    )


def mean_of(rows: Sequence[RunRow], metric: str) -> float:
    """A metric's mean over seeds."""
    return fmean(getattr(row, metric) for row in rows)


def difference(policy: Sequence[RunRow], baseline: Sequence[RunRow], *, metric: str) -> Difference:
    """Paired by seed; both must have run on the same seeds."""
    by_seed = {row.seed: row for row in baseline}
    ratios = [getattr(row, metric) / getattr(by_seed[row.seed], metric) - 1.0 for row in policy]
    interval = bootstrap_interval(ratios, fmean, random.Random(0))
    return Difference(
        scenario=policy[0].scenario,
        metric=metric,
        policy=policy[0].policy,
        baseline=baseline[0].policy,
        mean_ratio=fmean(ratios),
        error_ratio=stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else None,
        low_ratio=interval[0] if interval else None,
        high_ratio=interval[1] if interval else None,
        seeds=len(ratios),
    )


def against_best(rows: Sequence[RunRow], *, policy: str, metric: str) -> Difference | None:
    """Against the baseline with the lowest mean of this metric; None without another policy."""
    of = {name: [row for row in rows if row.policy == name] for name in dict.fromkeys(row.policy for row in rows)}
    others = {name: group for name, group in of.items() if name != policy}
    if policy not in of or not others:
        return None
    best = min(others, key=lambda name: mean_of(others[name], metric))
    return difference(of[policy], others[best], metric=metric)
