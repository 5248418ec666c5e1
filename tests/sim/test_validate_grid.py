"""The simulator against recorded live runs, and the verdicts on it."""

from pathlib import Path

import msgspec
import pytest

from tradewind.lab.experiments.validate_grid import experiment
from tradewind.lab.experiments.validate_grid.assigned import Assigned
from tradewind.lab.experiments.validate_grid.course import POLICIES, scenario_of
from tradewind.lab.experiments.validate_grid.model import assigned, measured, simulated
from tradewind.lab.experiments.validate_grid.ranking import ranking
from tradewind.lab.experiments.validate_grid.record import kept_runs
from tradewind.lab.experiments.validate_grid.sent import LiveRun, Sent, recorded_runs, traced
from tradewind.lab.harness.experiment import Options, Trial
from tradewind.sim.grid import SimGrid

RUNS = {run.policy: run for run in recorded_runs()}


def test_every_policy_has_a_recorded_run_in_which_all_was_served() -> None:
    assert tuple(RUNS) == POLICIES
    for run in RUNS.values():
        assert len(run.sent) == run.asked > 200
        assert run.failures == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_with_the_decisions_as_live_the_simulator_says_what_the_client_saw(policy: str) -> None:
    live, ours = measured(RUNS[policy]), assigned(RUNS[policy])
    errors = {metric: ours[metric] / live[metric] - 1 for metric in ("TTFT p95", "E2E p50", "E2E p95")}
    assert all(abs(error) < 0.10 for error in errors.values()), errors
    # The recorded machine was busy, which a first token without a queue cannot hide.
    assert -0.15 < ours["TTFT p50"] / live["TTFT p50"] - 1 < 0.10


def test_prefix_caches_hit_request_by_request_as_they_did_live() -> None:
    run = RUNS["round_robin"]
    grid = SimGrid(
        scenario_of(traced(run.sent), for_s=run.for_s), lambda _: Assigned([one.cell for one in run.sent]), seed=1
    )
    ours = [record.usage_cached_tokens for record in grid.run().records]
    equal = sum(one.cached_tokens == tokens for one, tokens in zip(run.sent, ours, strict=True))
    assert sum(one.cached_tokens for one in run.sent) > 100_000
    assert equal >= 0.95 * len(ours)


def test_round_robin_decides_as_it_did_live() -> None:
    run = RUNS["round_robin"]
    ours, live = simulated(run, seed=1), measured(run)
    assert {name: round(value, 2) for name, value in ours.items() if name.startswith("share")} == {
        name: round(value, 2) for name, value in live.items() if name.startswith("share")
    }


Times = dict[str, float]


def result(live: Times, ours: list[Times], same: Times | None = None) -> dict[str, object]:
    machine = {"busy_before_ratio": 0.1, "busy_ratio": 0.5, "load_before": 0.2, "load_after": 1.0, "late_p95_ms": 1.0}
    return {"live": live, "assigned": same or live, "simulated": ours, "requests": 9, "asked": 9, "machine": machine}


def times(value: float) -> Times:
    return dict.fromkeys(experiment.METRICS, value)


def verdicts(results: dict[str, dict[str, object]]) -> list[bool | None]:
    done = [
        (Trial(experiment=experiment.NAME, args={"policy": policy, "first_seed": 1, "seeds": 1}), found)
        for policy, found in results.items()
    ]
    return [claim.holds for claim in experiment.claims(experiment.rows(done))]


def test_what_agrees_holds() -> None:
    found = verdicts({"a": result(times(1.0), [times(1.05)]), "b": result(times(2.0), [times(1.9)])})
    assert found == [True] * 12


def test_an_error_beyond_the_bound_and_a_swapped_pair_do_not_hold() -> None:
    off = verdicts({"a": result(times(1.0), [times(1.0)], times(0.88)), "b": result(times(2.0), [times(2.0)])})
    assert off == [False] * 4 + [True] * 8
    swapped = verdicts({"a": result(times(1.0), [times(2.0)]), "b": result(times(2.0), [times(1.0)])})
    assert swapped == [True] * 4 + [False] * 8


def test_policies_that_are_no_further_apart_than_the_bound_have_no_order() -> None:
    found = verdicts({"a": result(times(1.0), [times(1.02)]), "b": result(times(1.05), [times(1.0)])})
    assert found == [True] * 8 + [None] * 4


def test_policies_without_a_recorded_run_are_left_out() -> None:
    plan = experiment.plan(Options(policies=("mine.py:Mine", "cost")))
    assert [trial.args["policy"] for trial in plan] == ["cost"]


def test_a_ranking_counts_the_pairs_that_are_told_apart() -> None:
    order = ranking({"a": 1.0, "b": 1.05, "c": 2.0}, {"a": 2.0, "b": 3.0, "c": 2.5}, apart=0.1)
    assert (order.pairs, order.swapped) == (2, 1)
    assert order.text == "a < b < c"


def test_only_the_newest_run_of_a_policy_is_put_into_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "validate-grid" / "code"
    folder.mkdir(parents=True)
    sent = [Sent(0.0, 1.0, 2.0, 10, 2, 0, "near-0", ())]
    for number, commit in enumerate(("old", "new")):
        run = msgspec.structs.replace(RUNS["cost"], commit=commit, sent=sent)
        path = folder / f"{number}.json"
        path.write_bytes(msgspec.json.encode({"run": run}))
    (folder / "2.json").write_bytes(b'{"live":{}}')
    found: list[LiveRun] = kept_runs(tmp_path)
    assert [(run.policy, run.commit, run.sent) for run in found] == [("cost", "new", sent)]
