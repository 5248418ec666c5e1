"""The comparison of pickers: the floor under all, orders of equal cells, and what is demanded of `cost`."""

import random
from itertools import pairwise

import msgspec
import pytest

from tests.sim.policies import InTurn
from tests.sim.test_compare import row
from tradewind.lab.experiments import pick
from tradewind.lab.harness.experiment import Options, Trial
from tradewind.lab.simulated.compare import RunRow, run_once
from tradewind.lab.simulated.floor import FLOOR, floor_row
from tradewind.lab.simulated.trials import shortened
from tradewind.sim.scenarios import SCENARIOS, permuted
from tradewind.workload.conversations import conversations, shipped_conversations
from tradewind.workload.mooncake import reuse


def done(*runs: RunRow) -> list[tuple[Trial, dict[str, object]]]:
    return [
        (
            Trial(experiment="pick", args={"scenario": run.scenario, "policy": run.policy, "seed": run.seed}),
            msgspec.structs.asdict(run),
        )
        for run in runs
    ]


def on(scenario: str, policy: str, *, ttft_s: float, e2e_s: float, served: float = 1.0) -> list[RunRow]:
    runs = [row(policy, seed, ttft_s=ttft_s, e2e_s=e2e_s) for seed in (1, 2)]
    return [msgspec.structs.replace(run, scenario=scenario, success_ratio=served) for run in runs]


@pytest.mark.parametrize("name", ["S1-ts1", "S3", "S4"])
def test_no_policy_is_below_the_floor(name: str) -> None:
    scenario = shortened(SCENARIOS[name], 20.0)
    floor, run = floor_row(scenario, seed=1), run_once(scenario, lambda _: InTurn(), policy="in turn", seed=1)
    assert floor.requests == run.requests
    assert floor.ttft_p50_s < run.ttft_p50_s
    assert floor.ttft_p95_s < run.ttft_p95_s
    assert floor.e2e_p95_s < run.e2e_p95_s
    assert floor.hit_served_ratio >= run.hit_served_ratio


def test_the_floor_is_prefill_and_decode_alone_on_the_nearest_path() -> None:
    floor = floor_row(shortened(SCENARIOS["S2"], 60.0), seed=1)
    # 512 tokens on an RTX PRO 6000: 8 ms of path, 15 of ingest, 3.5 + hypot(24, 256) of prefill; then 127 steps of 27.8
    assert floor.ttft_p50_s == pytest.approx(0.284, abs=0.02)
    assert floor.e2e_p50_s - floor.ttft_p50_s == pytest.approx(127 * 0.0278, abs=0.03)


def test_the_orders_of_three_cells_are_six_and_the_first_is_the_declared_one() -> None:
    far = SCENARIOS["S1-ts1"]
    orders = [permuted(far, number).rtts_s[0] for number in range(6)]
    assert orders[0] == far.rtts_s[0]
    assert len(set(orders)) == 6
    assert {tuple(sorted(order)) for order in orders} == {far.rtts_s[0]}


def test_the_shipped_conversations_are_in_order_short_enough_and_share_prefixes() -> None:
    parts = [
        conversations(random.Random(seed), for_s=900.0, most_prompt_tokens=32_768, time_scale=1.5) for seed in (1, 2)
    ]
    assert len(shipped_conversations().requests) == 3_000
    for part in parts:
        assert 1_500 < len(part.requests) < 2_500
        assert all(before.at_s <= after.at_s for before, after in pairwise(part.requests))
        assert part.requests[0].at_s >= 0.0
        assert part.requests[-1].at_s < 900.0 + 4.5
        assert max(request.prompt_tokens for request in part.requests) <= 32_768
        assert len({request.at_s for request in part.requests}) > 0.9 * len(part.requests)
        assert 0.15 < reuse(part).anywhere < 0.4
    assert parts[0] != parts[1]


def test_claims_are_judged_against_the_best_of_each_metric() -> None:
    found = pick.rows(
        done(
            *on("S3", "cost", ttft_s=0.7, e2e_s=8.0),
            *on("S3", "gorgo:.5/.1", ttft_s=1.0, e2e_s=10.0),
            *on("S3", "gorgo:.5/.1;index=unbounded", ttft_s=1.4, e2e_s=12.0),
            *on("S3", "least_request:N", ttft_s=0.1, e2e_s=0.1, served=0.5),
            *on("S3", FLOOR, ttft_s=0.01, e2e_s=0.01),
        )
    )
    ttft, e2e, published, _ = pick.claims(found)
    assert ttft.value == pytest.approx(-30.0)
    assert ttft.holds
    assert ttft.note.endswith("gorgo:.5/.1")
    assert published.value == pytest.approx(-50.0)
    assert published.note.endswith("gorgo:.5/.1;index=unbounded")
    assert e2e.value == pytest.approx(-20.0)
    assert e2e.holds is False  # 25 % are demanded


def test_a_clean_hot_prefix_is_reported_and_elsewhere_five_percent_is_the_bound() -> None:
    for name, holds in (("S4", None), ("S6", False)):
        runs = (*on(name, "cost", ttft_s=1.2, e2e_s=1.0), *on(name, "random", ttft_s=1.0, e2e_s=1.0))
        assert pick.claims(pick.rows(done(*runs)))[0].holds is holds


def test_a_seed_that_one_policy_lacks_is_left_out_for_all() -> None:
    runs = (*on("S2", "cost", ttft_s=1.0, e2e_s=1.0), on("S2", "random", ttft_s=2.0, e2e_s=1.0)[0])
    (found,) = [one for one in pick.rows(done(*runs)) if one.metric == "TTFT p95 against the best other"]
    assert found.n == 1
    assert found.value == pytest.approx(-50.0)


def test_the_plan_has_every_order_and_the_quick_form_runs() -> None:
    plan = pick.plan(Options(seeds=6))
    assert {trial.args["order"] for trial in plan if trial.args["scenario"] == "S1-ts1"} == set(range(6))
    assert {trial.args["order"] for trial in plan if trial.args["scenario"] == "S3"} == {0}
    quick = pick.plan(Options(quick=True))
    results = [(trial, pick.run(trial)) for trial in quick if trial.args["scenario"] == "S4-D"]
    assert pick.figures(pick.rows(results))[0].series[0].y[0] is not None
