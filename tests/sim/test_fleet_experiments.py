"""Experiments on whole fleets: what is set up, what is searched, and what is judged of it."""

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.sim.test_compare import row
from tradewind.engine.law import HEALTHY
from tradewind.lab.experiments import clean_fleet, heterogeneous, homogeneous, impairment, stale
from tradewind.lab.harness.experiment import Argument, Experiment, Options, Result, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sustained import Phases, highest_rate, sustains
from tradewind.measure.statistics import percentile
from tradewind.sim.faults import Slow
from tradewind.sim.grid import SimGrid
from tradewind.workload.arrivals import CONSTANT

ALL = (clean_fleet, heterogeneous, homogeneous, impairment, stale)


@pytest.mark.parametrize("bound", [0.7, 17.0, 30.0, 400.0])
def test_the_search_finds_the_highest_rate_that_holds(bound: float) -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= bound

    found = highest_rate(holds, near=20.0, precision=0.02)
    assert bound / 1.02 <= found <= bound
    assert len(asked) < 30


def test_the_search_ends_where_nothing_holds_and_where_everything_does() -> None:
    assert highest_rate(lambda _: False, near=20.0) == 0.0
    assert 800.0 < highest_rate(lambda _: True, near=20.0, most=1_000.0) <= 1_000.0


@pytest.mark.parametrize("rate", [24.0, 40.0])
def test_an_early_verdict_is_that_of_the_whole_run(rate: float) -> None:
    phases = Phases(warm_up_s=4.0, counted_s=8.0, cool_down_s=3.0)
    scenario = impairment.scenario_of(impairment.CLEAN, seed=1, rate=rate, phases=phases)
    slo_s = 0.6
    whole = SimGrid(scenario, maker("envoy_round_robin"), seed=1).run().records
    ttfts_s = [record.ttft_s or 0.0 for record in whole if 4.0 <= record.intended_s < 12.0]
    tail_s = percentile(ttfts_s, 0.95)
    assert tail_s is not None
    found = sustains(scenario, maker("envoy_round_robin"), seed=1, slo_s=slo_s, phases=phases)
    assert found is (tail_s <= slo_s)
    assert found is (rate < 30.0)


def test_cells_are_slow_for_the_declared_share_of_the_time() -> None:
    level = impairment.Level(share=0.2, speed=0.4)
    until_s = 40_000.0
    changes = impairment.changes_of(level, random.Random(1), cells=9, until_s=until_s)
    slow_s = 0.0
    for cell in range(9):
        own = [change for change in changes if change.cell == cell]
        ends_s = [*(change.at_s for change in own[1:]), until_s]
        spans = zip(own, ends_s, strict=True)
        slow_s += sum(end_s - change.at_s for change, end_s in spans if change.effect != Slow(slow=HEALTHY))
    assert slow_s / (9 * until_s) == pytest.approx(0.2, abs=0.01)
    assert impairment.changes_of(impairment.CLEAN, random.Random(1), cells=9, until_s=90.0) == ()
    lasting = impairment.changes_of(impairment.LASTING[0], random.Random(1), cells=9, until_s=90.0)
    assert [(change.at_s, change.cell) for change in lasting] == [(0.0, 0)]


def test_every_rate_and_policy_meets_the_same_slow_downs() -> None:
    at = [impairment.scenario_of(impairment.D, seed=7, rate=rate, phases=Phases()).changes for rate in (10.0, 20.0)]
    assert at[0] == at[1] != impairment.scenario_of(impairment.D, seed=8, rate=10.0, phases=Phases()).changes


def test_gains_are_paired_by_seed_and_judged() -> None:
    def done(level: impairment.Level, policy: str, rates: Sequence[float]) -> list[tuple[Trial, Result]]:
        args: dict[str, Argument] = {"share": level.share, "speed": level.speed, "lasting": 0, "policy": policy}
        return [
            (Trial(experiment="impairment", args={**args, "seed": seed}), {"rate": rate})
            for seed, rate in enumerate(rates)
        ]

    results = [
        *done(impairment.CLEAN, "envoy_round_robin", (20.0, 10.0)),
        *done(impairment.CLEAN, "weights", (20.0, 9.0)),
        *done(impairment.D, "envoy_round_robin", (20.0, 10.0)),
        *done(impairment.D, "weights", (30.0, 20.0)),
    ]
    rows = impairment.rows(results)
    gain = measured(
        list(rows), profile="20 % of the time at 0.4 x", policy="weights", metric="gain over envoy_round_robin"
    )
    assert gain is not None
    assert gain.value == pytest.approx((1.5 + 2.0) / 2)
    assert [claim.holds for claim in impairment.claims(rows)] == [False, None]


def test_late_telemetry_is_late_in_one_way_at_a_time() -> None:
    usual = stale.scenario_of(stale.SCRAPES, 1.0).delays
    rare, late = stale.scenario_of(stale.SCRAPES, 30.0).delays, stale.scenario_of(stale.LATE, 30.0).delays
    assert rare == replace(usual, scrape_s=30.0)
    assert late == replace(usual, view_s=30.0)
    assert stale.scenario_of(stale.SCRAPES, 0.25).delays.heartbeat_s == 0.25


def test_a_clean_fleet_without_distance_has_none() -> None:
    near = clean_fleet.scenario_of("RTT 0", CONSTANT, for_s=5.0)
    assert set(near.rtts_s[0]) == {0.0}
    assert near.wan.jitter_s == near.wan.wander_ratio == 0.0
    far = clean_fleet.scenario_of("RTT 8/22/38 ms", CONSTANT, for_s=5.0)
    assert set(far.rtts_s[0]) == {0.008, 0.022, 0.038}


@pytest.mark.parametrize(("ttft_s", "holds"), [(1.04, True), (1.06, False)])
def test_weights_may_not_lose_on_a_clean_fleet(ttft_s: float, holds: bool) -> None:
    args = {"distance": "RTT 0", "arrivals": "constant"}
    done = [
        (Trial(experiment="clean-fleet", args={**args, "policy": policy, "seed": seed}), msgspec.structs.asdict(run))
        for seed in (1, 2)
        for policy, run in (
            ("envoy_round_robin", row("envoy_round_robin", seed, ttft_s=1.0)),
            ("weights", row("weights", seed, ttft_s=ttft_s)),
        )
    ]
    rows = clean_fleet.rows(done)
    assert [claim.holds for claim in clean_fleet.claims(rows)] == [holds]
    found = measured(
        list(rows), profile="RTT 0, constant arrivals", policy="weights", metric="TTFT p95 against round robin"
    )
    assert found is not None
    assert found.value == pytest.approx(1e2 * (ttft_s - 1.0))


def test_weights_find_who_refuses_and_who_is_gone() -> None:
    trials = heterogeneous.plan(Options(quick=True, policies=("weights",)))
    result = heterogeneous.run(trials[0])
    assert result[heterogeneous.CONCENTRATION] > 80.0
    assert result["share of one killed H100"] == 0.0
    assert result["share of one constrained H100"] < 2.0
    assert 95.0 < result[heterogeneous.NOT_REFUSED] < 100.0


def test_the_spread_is_that_of_the_three_published_policies() -> None:
    three = dict(zip(homogeneous.COMPARED, (100.0, 101.0, 102.0), strict=True))
    assert homogeneous._spread({**three, "cost": 500.0}) == pytest.approx(2.0)
    assert homogeneous._spread({"cost": 1.0, "weights": 2.0}) is None


@pytest.mark.parametrize("module", [homogeneous, heterogeneous])
def test_every_published_figure_stands_beside_one_of_ours(module: object) -> None:
    experiment: Experiment = module.EXPERIMENT  # type: ignore[attr-defined]
    assert experiment.plan is not None
    first = experiment.plan(Options(seeds=1))
    if experiment.name == "homogeneous":
        result: Result = dict.fromkeys((*homogeneous.QUANTILES, "TTFT p50", "served"), 1.0)
    else:
        kinds = dict.fromkeys(heterogeneous.KINDS)
        names = [f"{what} of one {kind}" for what in ("share", "weight") for kind in kinds]
        names += ["E2E p50", "E2E p99", heterogeneous.NOT_REFUSED, heterogeneous.CONCENTRATION]
        result = dict.fromkeys(names, 1.0)
    rows = list(experiment.rows([(trial, result) for trial in first]))
    for published in experiment.published:
        found = measured(rows, profile=published.profile, policy=published.policy, metric=published.metric)
        assert found is not None, published


@pytest.mark.parametrize("module", ALL)
def test_plans_have_fresh_seeds_and_no_trial_twice(module: object) -> None:
    experiment: Experiment = module.EXPERIMENT  # type: ignore[attr-defined]
    assert experiment.plan is not None
    quick, full = experiment.plan(Options(quick=True)), experiment.plan(Options())
    assert len({msgspec.json.encode(trial) for trial in full}) == len(full) > 3 * len(quick) / 2
    later = experiment.plan(Options(seeds=2, first_seed=9_000))
    assert {trial.args["seed"] for trial in later} == {9_000, 9_001}
