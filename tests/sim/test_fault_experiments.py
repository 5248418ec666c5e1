"""What the experiments on faults and signals measure: their definitions on records, and one small run of each."""

import random
from collections.abc import Mapping

import pytest

from tradewind.lab.experiments import burst, exporter_death, failover, lead_time, mismatch, network
from tradewind.lab.experiments.registry import experiment_named
from tradewind.lab.harness.experiment import Argument, Experiment, Options, Result, Trial
from tradewind.measure.record import Failure, Record
from tradewind.workload.classes import baseline_mixed

NAMES = ("calibration", "lead-time", "network", "failover", "burst", "mismatch", "exporter-death")


def record(at_s: float, *, ttft_s: float | None, cell: str = "a", **more: object) -> Record:
    content_s = None if ttft_s is None else at_s + ttft_s
    failure = Failure.NONE if ttft_s is not None else Failure.STATUS
    fields: dict[str, object] = {"failure": failure, **more}
    return Record(request_id=f"{at_s}", intended_s=at_s, content_s=content_s, cell=cell, **fields)  # type: ignore[arg-type]


def one(name: str, **wanted: Argument) -> tuple[Experiment, Result, Trial]:
    """The first trial of the quick form with these arguments, run."""
    experiment = experiment_named(name)
    assert experiment.plan is not None
    assert experiment.run is not None
    trials = experiment.plan(Options(quick=True))
    trial = next(item for item in trials if wanted.items() <= item.args.items())
    return experiment, experiment.run(trial), trial


def values(experiment: Experiment, result: Result, trial: Trial) -> Mapping[str, float | None]:
    return {row.metric: row.value for row in experiment.rows([(trial, result)])}


@pytest.mark.parametrize("name", NAMES)
def test_plans_cover_what_is_published_and_quick_ones_are_short(name: str) -> None:
    experiment = experiment_named(name)
    assert experiment.plan is not None
    whole, quick = experiment.plan(Options()), experiment.plan(Options(quick=True))
    assert len(quick) <= 12 <= len(whole)
    assert len({str(sorted(trial.args.items(), key=str)) for trial in whole}) == len(whole)
    assert experiment.published
    planned = {str(trial.args["policy"]) for trial in whole}
    assert {item.policy for item in experiment.published} <= planned | {lead_time.NOBODY_ACTS}
    own = experiment.plan(Options(policies=("random",)))
    assert {trial.args["policy"] for trial in own} == {"random"}


def test_a_violation_is_the_first_moment_at_which_the_window_is_over() -> None:
    fine = [record(float(second), ttft_s=0.3) for second in range(20)]
    late = [record(20.0 + second, ttft_s=2.0) for second in range(10)]
    assert lead_time.first_violation(fine, from_s=0.0, until_s=60.0) is None
    found = lead_time.first_violation([*fine, *late], from_s=0.0, until_s=60.0)
    assert found == pytest.approx(23.0)
    assert lead_time.first_violation([*fine, *late], from_s=0.0, until_s=21.0) is None
    few = [record(float(second), ttft_s=5.0) for second in range(4)]
    assert lead_time.first_violation(few, from_s=0.0, until_s=60.0) is None


def test_a_reroute_counts_from_the_arrival_or_the_loss() -> None:
    def rerouted(at_s: float, attempt_s: float, *attempted: str, ok: bool = True) -> float | None:
        ttft_s = 1.0 if ok else None
        item = record(at_s, ttft_s=ttft_s, attempted=attempted, attempt_s=attempt_s)
        return failover.rerouted_s(item, {"a"}, 20.0)

    assert rerouted(19.0, 20.3, "a", "b") == pytest.approx(0.3)
    assert rerouted(21.0, 21.5, "a", "b") == pytest.approx(0.5)
    assert rerouted(21.0, 21.5, "b") is None
    assert rerouted(21.0, 21.5, "b", "a") is None
    assert rerouted(21.0, 21.5, "a", "b", ok=False) is None


def test_joined_traces_keep_their_times_and_share_nothing() -> None:
    parts = [baseline_mixed(random.Random(seed), rate_per_s=5.0, for_s=4.0) for seed in (1, 2)]
    whole = network.joined(parts, each_s=10.0)
    assert [request.at_s for request in whole.requests] == pytest.approx(
        [request.at_s for request in parts[0].requests] + [10.0 + request.at_s for request in parts[1].requests]
    )
    blocks = [block for request in whole.requests for block in request.block_ids]
    assert len(blocks) == len(set(blocks))


def test_an_alert_comes_before_the_violation_and_the_drain_prevents_it() -> None:
    experiment, result, trial = one("lead-time", stress="thermal")
    found = values(experiment, result, trial)
    assert 0.0 < (found[lead_time.ALERT] or 0.0) < 8.0
    assert (found[lead_time.LEAD] or 0.0) > 2.0
    assert found[lead_time.FIRST_ALERT] == 1
    assert found[lead_time.VIOLATIONS] == found[lead_time.FALSE] == 0
    assert all(claim.holds for claim in experiment.claims(experiment.rows([(trial, result)])))
    nobody = {**result, "alert": None}
    assert not all(claim.holds for claim in experiment.claims(experiment.rows([(trial, nobody)])))


def test_weights_find_the_cell_that_refuses_and_round_robin_never_does() -> None:
    ours = values(*one("mismatch", policy="weights"))
    blind = values(*one("mismatch", policy="envoy_round_robin"))
    assert ours[mismatch.LEAK_LATER] == 0.0
    assert (blind[mismatch.LEAK_LATER] or 0.0) > 5.0
    assert ours[mismatch.SHORT_SUCCESS] == blind[mismatch.SHORT_SUCCESS] == 100.0


@pytest.mark.parametrize("policy", ["weights", "cost"])
def test_a_limit_that_falls_in_mid_run_costs_three_refusals_at_most(policy: str) -> None:
    experiment, result, trial = one("mismatch", policy=policy, falls=True)
    assert 1 <= (values(experiment, result, trial)[mismatch.MOST] or 0.0) <= mismatch.ALLOWED
    assert experiment.claims is not None
    assert all(claim.holds is not False for claim in experiment.claims(experiment.rows([(trial, result)])))
    worse = {**result, "leaked": 4}
    assert not all(claim.holds for claim in experiment.claims(experiment.rows([(trial, worse)])))


def test_a_dead_exporter_is_known_within_a_second_and_a_frozen_one_later() -> None:
    dead = values(*one("exporter-death", mode="dead", policy="weights"))
    frozen = values(*one("exporter-death", mode="frozen", policy="cost"))
    assert 0.1 < (dead[exporter_death.FLAG] or 0.0) < 1.0 < (frozen[exporter_death.FLAG] or 0.0)
    assert dead[exporter_death.SUCCESS] == frozen[exporter_death.SUCCESS] == 100.0


def test_without_the_gate_more_is_lost_than_with_it() -> None:
    with_gate = one("failover", loss="engine killed, 24 RPS")[1]
    without = one("failover", loss="engine killed, 24 RPS, no gate")[1]
    assert with_gate["lost"] == 0 < without["lost"]
    assert with_gate["after"] == 100.0
    site = one("failover", loss="site cut off")[1]
    assert site["out"] == pytest.approx(1.0, abs=1.0)
    assert site["cut"] > 0


def test_bursts_are_answered_where_weights_are() -> None:
    ours = one("burst", disturbance="D", policy="weights")[1]
    turns = one("burst", disturbance="clean", policy="envoy_round_robin")[1]
    assert ours["weighs"]
    assert len(ours["answers"]) <= ours["bursts"]
    assert not turns["weighs"]
    assert burst.REACTION not in {row.metric for row in burst.rows([_as("envoy_round_robin", turns)])}


def _as(policy: str, result: Result) -> tuple[Trial, Result]:
    return Trial(experiment="burst", args={"disturbance": "clean", "policy": policy, "seed": 1}), result


def test_the_gain_is_paired_by_seed() -> None:
    def trial(policy: str, seed: int) -> Trial:
        return Trial(experiment="network", args={"policy": policy, "seed": seed, "quick": True})

    def result(tail_ms: float) -> Result:
        return {phase.name: {network.TAIL: tail_ms, network.MEDIAN: 1.0} for phase in network.PHASES}

    done = [
        (trial("published:10", 1), result(80.0)),
        (trial("published:10", 2), result(50.0)),
        (trial("published:8", 1), result(100.0)),
        (trial("published:8", 2), result(100.0)),
        (trial("published:8", 3), result(1.0)),
    ]
    gains = [row for row in network.rows(done) if row.metric == network.GAIN]
    assert len(gains) == len(network.PHASES)
    assert all(row.value == pytest.approx(35.0) and row.n == 2 for row in gains)
