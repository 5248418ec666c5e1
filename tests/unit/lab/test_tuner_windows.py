"""What `tuner-windows` freezes, and what it compares."""

import msgspec
import pytest

from tradewind.core.tuner.tuner import Happened, TunerEvent
from tradewind.lab.experiments.tuner_windows import (
    JUDGED_ON,
    NAME,
    OURS,
    TUNED,
    UNTUNED,
    claims,
    learned,
    plan,
    profile,
    rows,
)
from tradewind.lab.harness.experiment import Json, Options, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.compare import RunRow
from tradewind.model.tuning import TuningOrder, Weights
from tradewind.sim.tuning import TuningHistory

START, CHILD, OTHER = Weights(0.5, 0.1), Weights(0.3, 0.4), Weights(0.9, 0.2)


def history(*happened: tuple[Happened, Weights]) -> TuningHistory:
    order = TuningOrder(driver="d", generation=1, weights=START)
    events = tuple(TunerEvent(1.0 * at, what, at, weights, None, "") for at, (what, weights) in enumerate(happened))
    return TuningHistory(orders=((0.0, order),), events=events, samples=9)


def test_a_child_on_trial_is_not_what_was_learned() -> None:
    assert learned(history()) == START
    assert learned(history((Happened.PROPOSED, CHILD))) == START
    taken = [(Happened.PROPOSED, CHILD), (Happened.ACCEPTED, CHILD), (Happened.PROPOSED, OTHER)]
    assert learned(history(*taken)) == CHILD
    assert learned(history(*taken, (Happened.REJECTED, CHILD))) == CHILD


def ended(policy: str, seed: int, ttft_s: float) -> tuple[Trial, dict[str, Json]]:
    row = RunRow(
        scenario="s", policy=policy, seed=seed, requests=9, success_ratio=1.0, ttft_p50_s=ttft_s, ttft_p95_s=ttft_s,
        ttft_p99_s=ttft_s, e2e_p50_s=1.0, e2e_p95_s=1.0, itl_mean_s=0.01, itl_p95_s=0.01, hit_served_ratio=0.5,
        hit_predicted_ratio=0.5, max_share=0.4, trace_hash="",
    )  # fmt: skip
    trial = Trial(experiment=NAME, args={"policy": policy, "seed": seed, "order": 0, "for_s": 900.0})
    windows = {profile(*window): msgspec.structs.asdict(row) for window in JUDGED_ON}
    return trial, {"weights": [0.5 * seed, 1.0] if policy == OURS else None, "windows": windows}


def test_frozen_weights_are_held_against_those_of_the_start() -> None:
    done = [ended(OURS, 1, 1.2), ended(OURS, 2, 1.2), ended(UNTUNED, 1, 1.0), ended(UNTUNED, 2, 1.0)]
    found = list(rows(done))
    name = profile(*JUDGED_ON[0])
    row = measured(found, profile=name, policy=UNTUNED, metric=f"TTFT p95: {OURS} against it")
    assert row is not None
    assert row.value == pytest.approx(20.0)
    held = [check.holds for check in claims(found) if "frozen" in check.name]
    assert held == [False, True, False, True], "TTFT and E2E of either window"
    weights = {r.metric: r.value for r in found if r.metric.startswith("rtt weight")}
    assert weights == {"rtt weight, median": 0.75, "rtt weight, least": 0.5, "rtt weight, most": 1.0}


def test_a_seed_that_one_policy_lacks_is_left_out() -> None:
    found = list(rows([ended(OURS, 1, 1.0), ended(OURS, 2, 9.0), ended(UNTUNED, 1, 1.0)]))
    row = measured(found, profile=profile(*JUDGED_ON[0]), policy=OURS, metric="TTFT p95")
    assert row is not None
    assert row.n == 1
    assert row.value == pytest.approx(1000.0)


def test_every_tuner_and_baseline_is_in_the_plan() -> None:
    policies = {str(trial.args["policy"]) for trial in plan(Options())}
    assert set(TUNED) < policies
    assert {"cost", "gorgo:.276/.5", "session_affinity", "least_request:N", "prefix_cache", "random"} < policies
