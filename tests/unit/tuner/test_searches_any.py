"""Whatever comes, searches and checks keep the promises of every tuner."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.tuner.bed import sample
from tests.unit.tuner.test_calibrator_any import STEPS, Burst, made_of
from tradewind.core.tuner.box import SHIPPED
from tradewind.core.tuner.es import Es
from tradewind.core.tuner.es_repaired import EsRepaired, RepairedSettings
from tradewind.core.tuner.looks import LookSettings
from tradewind.core.tuner.settings import CompareSettings
from tradewind.core.tuner.switchback import Check, Switchback
from tradewind.core.tuner.tuner import Happened, Tuner
from tradewind.model.tuning import PHYSICS, Weights

GUARDS = CompareSettings(window=1 << 53, look_each=5, look_from=20, starved=150)
HASTY = RepairedSettings(look=LookSettings(looks=(24, 48), grace=3, guards=GUARDS))
CHECK = Check(present=PHYSICS, other=Weights(1.0, 0.5))

MAKERS: dict[str, Callable[[], Tuner]] = {
    "es": lambda: Es(driver="d", seed=1, start=PHYSICS, box=SHIPPED),
    "es-repaired": lambda: EsRepaired(driver="d", seed=1, start=PHYSICS, box=SHIPPED, settings=HASTY),
    "switchback": lambda: Switchback(driver="d", check=CHECK, box=SHIPPED),
}


def done(tuner: Tuner, step: Any, now_s: float, make: Callable[[], Tuner]) -> Tuner:
    """One step of a history; the tuner that goes on."""
    match step:
        case Burst():
            tuner.learn(made_of(step, tuner.order, now_s), now_s)
        case "restart":
            kept = json.loads(json.dumps(tuner.keep(), allow_nan=False))
            fresh = make()
            fresh.restore(kept, now_s)
            assert fresh.order.generation >= tuner.order.generation
            return fresh
        case str():
            getattr(tuner, step)(now_s)
            assert step != "freeze" or (tuner.frozen and tuner.order.child is None)
        case dict():
            tuner.learn([sample(tuner.order, **step)] * 2, now_s)
        case _:
            weights = Weights(*step)
            if SHIPPED.problem(weights):
                with pytest.raises(ValueError, match="weight"):
                    tuner.put(weights, now_s, "by hand")
            else:
                tuner.put(weights, now_s, "by hand")
                assert tuner.order.weights == weights
    return tuner


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_a_search_never_leaves_its_box_and_generations_never_fall(name: str, steps: list[Any]) -> None:
    """INV-23."""
    make = MAKERS[name]
    tuner, generation = make(), 0
    for number, step in enumerate(steps):
        tuner = done(tuner, step, 12.0 * number, make)
        order = tuner.order
        assert SHIPPED.problem(order.weights) == ""
        assert order.child is None or SHIPPED.problem(order.child) == ""
        assert (order.child is None) == (order.child_share == 0.0)
        assert order.generation >= generation
        generation = order.generation


@pytest.mark.parametrize("name", MAKERS)
def test_such_histories_reach_verdicts(name: str) -> None:
    """The property above is not about tuners that sleep."""
    tuner, told, generations = MAKERS[name](), set(), set()
    for number in range(40):
        burst = Burst(count=80, rtt=0.3, queue=1.0, ended_s=0.0, failing=number > 30, old=0)
        told |= {event.what for event in tuner.learn(made_of(burst, tuner.order, 20.0 * number), 20.0 * number)}
        generations.add(tuner.order.generation)
    wanted = {
        "es": {Happened.PROPOSED, Happened.ACCEPTED},
        "es-repaired": {Happened.PROPOSED, Happened.REJECTED, Happened.ROLLED_BACK},
        "switchback": set(),
    }
    assert wanted[name] <= told
    assert len(generations) >= 5
