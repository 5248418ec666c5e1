"""The trap of a queue weight of 0, in small: what it does, who refuses its children, and what counts as trapped."""

import pytest

from tests.unit.tuner.samples import under
from tradewind.core.tuner.tuner import Happened, TunerEvent
from tradewind.lab.experiments.tuner_trap import (
    ACCEPTED,
    BARE,
    FORCED,
    FREE,
    GUARDS,
    IN_TRAP,
    NAME,
    SHAPE,
    WHOLE,
    claims,
    rows,
    run,
)
from tradewind.lab.harness.experiment import Argument, Trial
from tradewind.lab.tuning.forced import RULES, Forced
from tradewind.model.tuning import Weights


def trial(**args: Argument) -> Trial:
    return Trial(experiment=NAME, args={"seed": 3, "quick": True, **args})


def shape(cost: str, queue: float) -> dict[str, float]:
    return dict(run(trial(part=SHAPE, cost=cost, rate=9.0, rtt=1.0, queue=queue)))


def test_without_a_queue_weight_all_goes_to_the_nearest_and_answers_take_longer() -> None:
    trap, start = shape(BARE, 0.0), shape(BARE, 5.0)
    assert trap["top_share"] > 0.95 > start["top_share"]
    assert trap["e2e_p95_s"] > 1.2 * start["e2e_p95_s"]
    whole = shape(WHOLE, 0.0)
    assert whole["top_share"] < 0.6, "the whole cost counts what decodes cost"


@pytest.mark.parametrize("rule", RULES)
def test_a_child_in_the_trap_is_refused_by_a_guard(rule: str) -> None:
    done = run(trial(part=FORCED, cost=BARE, rule=rule, rate=9.0, parent="1/5", child="1/0"))
    assert done["verdicts"]
    assert set(done["verdicts"]) <= set(GUARDS.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_forced_comparison_accepts_what_is_better_and_goes_on(rule: str) -> None:
    forced = Forced(rule, parent=Weights(1.0, 5.0), child=Weights(1.0, 1.0))
    events: list[TunerEvent] = []
    for number in range(2_000):
        told = under(forced.order, number)
        told = told._replace(ttft_s=(0.2 if told.child else 0.4) + 0.001 * (number % 7))
        events += forced.learn([told], told.finished_s)
    assert {event.what for event in events} == {Happened.ACCEPTED}
    assert len(events) >= 2
    assert forced.order.weights == Weights(1.0, 5.0), "the parent stays"


def test_a_run_is_trapped_by_its_answers_against_those_of_the_start() -> None:
    def free(tuner: str, seed: int, e2e_s: float) -> tuple[Trial, dict[str, float]]:
        made = Trial(
            experiment=NAME,
            args={"seed": seed, "quick": False, "part": FREE, "cost": BARE, "tuner": tuner, "rate": 9.0},
        )
        return made, {"ttft_p95_s": 0.2, "e2e_p95_s": e2e_s, "top_share": 0.9, "rtt": 1.0, "queue": 0.1}

    done = [free("fixed", 1, 6.0), free("fixed", 2, 6.0), free("calibrator", 1, 8.9), free("calibrator", 2, 9.1)]
    found = rows(done)
    (trapped,) = (row for row in found if row.metric == IN_TRAP and row.policy == "calibrator")
    assert (trapped.value, trapped.n) == (1.0, 2)
    assert [check.holds for check in claims(found) if "calibrator" in check.name] == [False]


def test_an_accepted_child_breaks_the_claim() -> None:
    made = trial(part=FORCED, cost=BARE, rule="calibrator", rate=9.0, parent="1/5", child="1/0")
    found = rows([(made, {"verdicts": {"accepted": 1, "mean E2E": 9}, "reasons": []})])
    (accepted,) = (row for row in found if row.metric == ACCEPTED)
    assert accepted.value == 1.0
    assert [check.holds for check in claims(found)] == [False]
