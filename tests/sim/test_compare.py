"""Paired comparison: differences by seed, intervals, and the best baseline per metric."""

from dataclasses import replace

import pytest

from tests.sim.policies import AtRandom, InTurn
from tradewind.lab.simulated.compare import RunRow, against_best, difference, run_once
from tradewind.measure.statistics import mean_interval
from tradewind.sim.scenarios import SCENARIOS
from tradewind.workload.classes import hot_prefix


def row(policy: str, seed: int, *, ttft_s: float, e2e_s: float = 1.0) -> RunRow:
    return RunRow(
        scenario="X",
        policy=policy,
        seed=seed,
        requests=1,
        success_ratio=1.0,
        ttft_p50_s=ttft_s,
        ttft_p95_s=ttft_s,
        ttft_p99_s=ttft_s,
        e2e_p50_s=e2e_s,
        e2e_p95_s=e2e_s,
        itl_mean_s=0.01,
        itl_p95_s=0.01,
        hit_served_ratio=0.0,
        hit_predicted_ratio=0.0,
        max_share=0.5,
        trace_hash="",
    )


def test_differences_are_paired_by_seed() -> None:
    ours = [row("a", seed, ttft_s=0.9 * seed) for seed in (1, 2, 3)]
    theirs = [row("b", seed, ttft_s=1.0 * seed) for seed in (3, 2, 1)]
    found = difference(ours, theirs, metric="ttft_p95_s")
    assert found.mean_ratio == pytest.approx(-0.1)
    assert found.error_ratio == pytest.approx(0.0, abs=1e-12)
    assert found.low_ratio == pytest.approx(-0.1)
    assert found.seeds == 3


def test_the_interval_holds_the_mean_and_one_seed_has_none() -> None:
    theirs = [row("b", seed, ttft_s=1.0) for seed in range(8)]
    ours = [row("a", seed, ttft_s=0.8 + 0.02 * seed) for seed in range(8)]
    found = difference(ours, theirs, metric="ttft_p95_s")
    assert found.low_ratio is not None
    assert found.high_ratio is not None
    assert found.low_ratio < found.mean_ratio < found.high_ratio
    assert difference(ours[:1], theirs[:1], metric="ttft_p95_s").low_ratio is None


def test_the_best_baseline_is_the_best_of_each_metric() -> None:
    rows = [
        row("a", 1, ttft_s=1.0, e2e_s=1.0),
        row("fast", 1, ttft_s=0.5, e2e_s=9.0),
        row("steady", 1, ttft_s=5.0, e2e_s=0.8),
    ]
    by_ttft, by_e2e = (against_best(rows, policy="a", metric=metric) for metric in ("ttft_p95_s", "e2e_p95_s"))
    assert by_ttft is not None
    assert by_e2e is not None
    assert (by_ttft.baseline, by_e2e.baseline) == ("fast", "steady")
    assert against_best(rows[:1], policy="a", metric="ttft_p95_s") is None


def test_a_run_counts_what_comes_after_the_warm_up() -> None:
    scenario = replace(
        SCENARIOS["S4"], load=lambda rng: hot_prefix(rng, rate_per_s=10, for_s=20), for_s=20.0, warm_up_ratio=0.5
    )
    in_turn = run_once(scenario, lambda _: InTurn(), policy="in_turn", seed=2, check=True)
    at_random = run_once(scenario, lambda _: AtRandom(), policy="at_random", seed=2)
    assert 60 < in_turn.requests < 140
    assert in_turn.requests == at_random.requests
    assert in_turn.success_ratio == 1.0
    assert in_turn.max_share == pytest.approx(1 / 9, abs=0.02) != at_random.max_share
    assert in_turn.hit_served_ratio > 0.3  # the prefix came into every cache during the warm-up
    assert in_turn.ttft_p50_s < in_turn.ttft_p95_s < in_turn.e2e_p95_s


def test_the_interval_of_a_mean_shrinks_with_more_values_and_is_the_same_each_time() -> None:
    few, many = ([float(value % 10) for value in range(count)] for count in (10, 200))
    narrow, wide = mean_interval(many), mean_interval(few)
    assert narrow is not None
    assert wide is not None
    assert wide[0] < narrow[0] < 4.5 < narrow[1] < wide[1]
    assert mean_interval(few) == wide
    assert mean_interval([1.0]) is None
