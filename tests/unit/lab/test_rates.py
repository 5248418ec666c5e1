"""What `rates` makes of its runs, and which of its figures are demanded."""

import pytest

from tradewind.lab.experiments.rates import (
    AGAINST_FIXED,
    AGAINST_TRUE,
    CHANGED,
    E2E,
    EARLY,
    FIXED,
    HALVED,
    LATER,
    LEARNED,
    MIXED,
    NAME,
    ODD,
    ODD_CLASS,
    claims,
    plan,
    rows,
)
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.harness.row import measured

TABLE = f"rates={ODD_CLASS}:10"

NEAR = next(iter(HALVED))


def ended(profile: str, policy: str, table: str, seed: int, early: float, later: float | None) -> tuple[Trial, Result]:
    trial = Trial(
        experiment=NAME,
        args={"profile": profile, "policy": policy, "table": table, "seed": seed, "quick": False},
    )
    return trial, {CHANGED: early, E2E: later} if profile in HALVED else {EARLY: early, LATER: later}


def test_a_wrong_table_is_held_against_learned_rates_with_a_true_one() -> None:
    found = list(
        rows(
            [
                ended(ODD, LEARNED, "", 1, 100.0, 100.0),
                ended(ODD, LEARNED, "", 2, 100.0, None),
                ended(ODD, LEARNED, TABLE, 1, 150.0, 106.0),
                ended(ODD, LEARNED, TABLE, 2, 150.0, 104.0),
                ended(ODD, FIXED, TABLE, 1, 300.0, 300.0),
            ]
        )
    )
    row = measured(found, profile=ODD, policy=f"{LEARNED};{TABLE}", metric=f"{LATER} {AGAINST_TRUE}")
    assert row is not None
    assert row.n == 1, "a seed without a figure to compare with has no difference"
    assert row.value == pytest.approx(6.0)
    assert [check.holds for check in claims(found)] == [False, None], "fixed rates are shown"


def test_a_halved_cell_is_held_against_fixed_rates() -> None:
    found = list(rows([ended(NEAR, LEARNED, "", 1, 80.0, 5.0), ended(NEAR, FIXED, "", 1, 100.0, 10.0)]))
    row = measured(found, profile=NEAR, policy=LEARNED, metric=f"{CHANGED} {AGAINST_FIXED}")
    assert row is not None
    assert row.value == pytest.approx(-20.0)
    assert [check.holds for check in claims(found)] == [True, None]


def test_the_other_fleet_is_shown_and_demands_nothing() -> None:
    found = rows([ended(MIXED, LEARNED, "", 1, 1.0, 1.0), ended(MIXED, LEARNED, "rates=h100:10", 1, 1.0, 9.0)])
    assert [check.holds for check in claims(found)] == [None]


def test_every_wrong_table_runs_with_learned_and_with_fixed_rates() -> None:
    trials = plan(Options(seeds=1))
    tables = {(str(t.args["profile"]), str(t.args["policy"])): 0 for t in trials}
    for trial in trials:
        tables[str(trial.args["profile"]), str(trial.args["policy"])] += 1
    assert tables[ODD, LEARNED] == tables[ODD, FIXED] == 3
    assert tables[NEAR, LEARNED] == tables[NEAR, FIXED] == 1
