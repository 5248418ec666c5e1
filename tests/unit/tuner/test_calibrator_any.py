"""Whatever comes, the calibrator keeps its promises."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.tuner.bed import sample, wrong
from tradewind.core.tuner.box import AS_TESTED, SHIPPED, Box
from tradewind.core.tuner.calibrator import Calibrator
from tradewind.core.tuner.settings import (
    CalibratorSettings,
    CompareSettings,
    CusumSettings,
    FitSettings,
    ProposalSettings,
    RegimeSettings,
)
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

# Small numbers of everything, so that a few hundred samples reach every state.
HASTY = CalibratorSettings(
    fit=FitSettings(least=12, window=40, least_t=0.5),
    proposal=ProposalSettings(each=5, cool_down=5, least_t=0.1),
    compare=CompareSettings(window=44, grace=3, starved=150, look_each=5, look_from=20),
    cusum=CusumSettings(reference=40, block=4, cell_block=2, cells=2),
    regime=RegimeSettings(window=20, each=5, readings=2, physics_window=60, physics_least=10),
)
# Whatever a clock, a broken gateway or a stranger may say; not NaN, which the wire's readers refuse.
TIMES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=True),
    st.floats(0.001, 30.0),
    st.sampled_from((0.0, -0.0, -1.0, 1e300, -1e300, 5e-324, 0.1)),
)
MAYBE = st.one_of(st.none(), TIMES)


@dataclass(frozen=True)
class Burst:
    """Samples that differ little, and so may convince it of something."""

    count: int
    rtt: float
    queue: float
    ended_s: float
    failing: bool
    old: int


BURSTS = st.builds(
    Burst,
    count=st.integers(20, 80),
    rtt=st.sampled_from((0.0, 0.3, 1.0, 8.0)),
    queue=st.sampled_from((0.0, 0.3, 1.0, 8.0)),
    ended_s=st.floats(0.0, 1e4),
    failing=st.booleans(),
    old=st.sampled_from((0, 0, 0, 1, 7)),
)
ONES = st.fixed_dictionaries(
    {
        "generation": st.integers(-3, 40),
        "driver": st.sampled_from(("d", "d", "other", "")),
        "child": st.booleans(),
        "cell_id": st.sampled_from(("a", "b", "c", "")),
        "dispatched_s": TIMES,
        "finished_s": TIMES,
        "rtt_s": TIMES,
        "queue_s": TIMES,
        "prefill_s": TIMES,
        "ttft_s": MAYBE,
        "e2e_s": MAYBE,
        "itl_s": MAYBE,
        "failed": st.booleans(),
    }
)
STEPS = st.lists(
    st.one_of(
        ONES,
        ONES,
        BURSTS,
        BURSTS,
        st.sampled_from(("freeze", "thaw", "reset", "restart")),
        st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 20.0)),
    ),
    max_size=25,
)


EXTREME = {"generation": 1, "ttft_s": 5e-324, "rtt_s": 3_600.0, "queue_s": 3_600.0, "prefill_s": 3_600.0}


def made_of(step: Burst, order: TuningOrder, now_s: float) -> list[Sample]:
    """Linear in what was believed, in three cells, both arms in turn."""
    made = []
    for number in range(step.count):
        rtt_s, queue_s, prefill_s = 0.1 * (number % 3), 0.07 * (number % 5), 0.11 * (number % 7)
        ttft_s = 0.02 + step.rtt * rtt_s + step.queue * queue_s + prefill_s + 0.001 * (number % 11)
        plain = sample(order, child=number % 2 == 0 and order.child is not None, cell_id="abc"[number % 3])
        made.append(
            plain._replace(
                generation=order.generation - step.old,
                dispatched_s=now_s + 0.2 * number,
                finished_s=now_s + 0.2 * number + step.ended_s,
                rtt_s=rtt_s,
                queue_s=queue_s,
                prefill_s=prefill_s,
                ttft_s=ttft_s,
                e2e_s=ttft_s + 1.0,
                failed=step.failing and number % 4 == 0,
            )
        )
    return made


class Checked:
    """A calibrator that is looked at after each call."""

    def __init__(self, start: Weights, box: Box) -> None:
        self.box = box
        self.start = start
        self.tuner = Calibrator(driver="d", start=start, box=box, settings=HASTY)
        self.generation = self.tuner.order.generation
        self.now_s = 0.0

    def do(self, step: Any) -> None:
        """One step of a history."""
        self.now_s += 12.0
        tuner, before = self.tuner, self.tuner.order
        match step:
            case Burst():
                events: Sequence[Any] = tuner.learn(made_of(step, tuner.order, self.now_s), self.now_s + 12.0)
            case "restart":
                kept = json.loads(json.dumps(tuner.keep(), allow_nan=False))
                self.tuner = tuner = Calibrator(driver="d", start=self.start, box=self.box, settings=HASTY)
                events = tuner.restore(kept, self.now_s)
                assert {**tuner.keep(), "generation": 0} == {**kept, "generation": 0, "child": None}
            case str():
                events = getattr(tuner, step)(self.now_s)
            case dict():
                events = tuner.learn([sample(before, **step)] * 2, self.now_s)
            case _:
                events = self.put(Weights(*step))
        assert all(event.reason and event.at_s >= self.now_s - 12.0 for event in events)
        if step == "freeze":
            assert tuner.frozen
            assert tuner.order.child is None
            assert tuner.order.weights == before.weights
        self.check()

    def put(self, weights: Weights) -> Sequence[Any]:
        """By hand, if the box allows."""
        before = self.tuner.order
        try:
            return self.tuner.put(weights, self.now_s, "by hand")
        except ValueError:
            assert self.box.problem(weights)
            assert self.tuner.order == before
            return ()

    def check(self) -> None:
        """What must hold whatever came."""
        order = self.tuner.order
        assert self.box.problem(order.weights) == ""
        assert order.child is None or self.box.problem(order.child) == ""
        assert order.generation >= self.generation
        assert (order.child is None) == (order.child_share == 0.0)
        assert not (self.tuner.frozen and order.child is not None)
        self.generation = order.generation


@settings(max_examples=50, deadline=None)
@example(steps=[EXTREME] * 120, start=PHYSICS)
@given(steps=STEPS, start=st.sampled_from((PHYSICS, wrong("rtt high"), wrong("queue low"))))
def test_a_calibrator_never_leaves_its_box_and_generations_never_fall(steps: list[Any], start: Weights) -> None:
    """INV-23."""
    box = SHIPPED if start == PHYSICS else AS_TESTED
    checked = Checked(start, box)
    for step in steps:
        checked.do(step)


def test_such_histories_reach_every_kind_of_verdict() -> None:
    """The property above is not about a calibrator that sleeps."""
    told: set[str] = set()
    for failing in (False, True):
        checked = Checked(PHYSICS, AS_TESTED)
        for number in range(4):
            burst = Burst(count=60, rtt=0.3, queue=8.0, ended_s=0.0, failing=failing, old=0)
            events = checked.tuner.learn(made_of(burst, checked.tuner.order, 12.0 * number), 12.0 * number + 12.0)
            told |= {event.what.value for event in events}
            checked.check()
    assert {"proposed", "accepted", "rolled_back", "regime"} <= told
