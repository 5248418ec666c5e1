"""What `tuner-change` makes of its runs: seed by seed against physics, and against the best fixed weights."""

import pytest

from tradewind.lab.experiments.tuner_change import (
    AFTER,
    AGAIN,
    AGAINST_BEST,
    CALIBRATOR,
    CALM,
    HALF,
    LOAD,
    NAME,
    OWN,
    WAY,
    best_fixed,
    claims,
    fixed,
    plan,
    rows,
    run,
    scenario,
)
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.harness.row import measured
from tradewind.model.tuning import Weights
from tradewind.workload.streams import stream

GOOD, BAD = fixed(Weights(0.2, 0.5)), fixed(Weights(1.0, 2.0))


def ended(policy: str, seed: int, after: float, windows: list[float | None]) -> tuple[Trial, Result]:
    trial = Trial(experiment=NAME, args={"change": HALF, "policy": policy, "seed": seed, "quick": False})
    return trial, {"first": after, "after": after, "windows": windows, "moves": None}


DONE = [
    ended(OWN, 1, 1.0, [1.0, 1.0]),
    ended(OWN, 2, 2.0, [2.0, None]),
    ended(AGAIN, 1, 1.0, [1.2, 1.0]),
    ended(AGAIN, 2, 2.0, [2.0, 5.0]),
    ended(CALIBRATOR, 1, 1.0, [1.05, 0.9]),
    ended(CALIBRATOR, 2, 2.0, [2.1, 9.0]),
    ended(GOOD, 1, 0.8, [0.8, 0.8]),
    ended(BAD, 1, 3.0, [3.0, 3.0]),
]


def test_the_best_fixed_weights_are_the_measure() -> None:
    found = list(rows(DONE))
    row = measured(found, profile=HALF, policy=CALIBRATOR, metric=f"{AFTER} {AGAINST_BEST}")
    assert row is not None
    assert row.value == pytest.approx(25.0), "as physics, which has a quarter more than the best point"
    own = measured(found, profile=HALF, policy=OWN, metric=f"{AFTER} {AGAINST_BEST}")
    assert own is not None
    assert own.value == pytest.approx(25.0)
    assert best_fixed({OWN: {1: {"after": 1.0}}, BAD: {1: {"after": 3.0}}}) == (OWN, 1.0), "physics may be the best"
    holds = {check.name: check.holds for check in claims(found)}
    assert holds[f"{HALF}, {CALIBRATOR}: {AFTER} {AGAINST_BEST}"] is False
    assert holds[f"{HALF}, {AGAIN}: {AFTER} {AGAINST_BEST}"] is None


def test_a_window_counts_where_both_have_one() -> None:
    found = list(rows(DONE))
    calm = {policy: measured(found, profile=HALF, policy=policy, metric=CALM) for policy in (AGAIN, CALIBRATOR)}
    assert [(row.value, row.n) for row in calm.values() if row is not None] == [(1.0, 2), (2.0, 2)]


@pytest.mark.parametrize(("change", "rates"), [(LOAD, (2.0, 4.0)), (WAY, (2.0, 2.0)), (HALF, (2.0, 2.0))])
def test_the_change_comes_in_the_middle(change: str, rates: tuple[float, float]) -> None:
    made = scenario(change, quick=False)
    times = [request.at_s for request in made.load(stream(1, "load")).requests]
    change_s = 1_250.0
    before, after = (sum(at_s < change_s for at_s in times), sum(at_s >= change_s for at_s in times))
    assert before / change_s == pytest.approx(rates[0], rel=0.1)
    assert after / (made.for_s - change_s) == pytest.approx(rates[1], rel=0.1)
    assert times[-1] < made.for_s
    assert all(effect.at_s == change_s for effect in made.changes)
    assert bool(made.changes) is (change != LOAD)


def test_physics_against_itself_differs_by_chance_and_by_nothing_else() -> None:
    def ran(policy: str) -> Result:
        return run(Trial(experiment=NAME, args={"change": HALF, "policy": policy, "seed": 3, "quick": True}))

    own, again = ran(OWN), ran(AGAIN)
    assert own == ran(OWN)
    assert own != again
    assert again["after"] == pytest.approx(own["after"], rel=0.5)


def test_searches_and_fixed_weights_run_on_a_part_of_the_seeds() -> None:
    trials = plan(Options())
    policies = [str(trial.args["policy"]) for trial in trials if trial.args["change"] == WAY]
    assert policies.count(CALIBRATOR) == policies.count(AGAIN) == policies.count(OWN) == 20
    assert policies.count("cost;tuner=es") == 5
    assert policies.count(GOOD) == 4
    assert len(plan(Options(quick=True))) <= 15
