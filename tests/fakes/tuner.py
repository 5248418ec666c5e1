"""A tuner that does what a test tells it: proposes at each hundredth sample, accepts at the next one."""

import time
from collections.abc import Sequence

from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

EACH = 100


class FakeTuner:
    """Implements `Tuner`."""

    def __init__(self, driver: str) -> None:
        self.order = TuningOrder(driver=driver, generation=1, weights=PHYSICS)
        self.frozen = False
        self.learned: list[Sample] = []
        self.slow_s = 0.0  # of each learning step
        self.breaks = False

    @property
    def name(self) -> str:
        return "fake"

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        if self.slow_s:
            _work(self.slow_s)
        if self.breaks:
            raise RuntimeError("a bug")
        before = len(self.learned) // EACH
        self.learned.extend(samples)
        if self.frozen or len(self.learned) // EACH == before:
            return ()
        if self.order.child is None:
            self._give(self.order.weights, Weights(0.5, 0.5))
            return (self._event(Happened.PROPOSED, now_s),)
        self._give(self.order.child, None)
        return (self._event(Happened.ACCEPTED, now_s, figures=(("z", 2.5),)),)

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        self.frozen = True
        self._give(self.order.weights, None)
        return (self._event(Happened.FROZEN, now_s),)

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        self.frozen = False
        return (self._event(Happened.THAWED, now_s),)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        if weights.rtt > 2.0:
            raise ValueError("the rtt weight must be between 0 and 2")
        self._give(weights, None)
        return (self._event(Happened.SET, now_s, reason=reason),)

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        self._give(PHYSICS, None)
        return (self._event(Happened.RESET, now_s),)

    def keep(self) -> Kept:
        return {"generation": self.order.generation, "weights": list(self.order.weights), "frozen": self.frozen}

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        weights = kept["weights"]
        if not isinstance(weights, list):
            raise ValueError("weights must be a list")
        self.frozen = bool(kept["frozen"])
        self._give(Weights(*weights), None)
        return ()

    def _give(self, weights: Weights, child: Weights | None) -> None:
        share = 0.5 if child is not None else 0.0
        generation = self.order.generation + 1
        self.order = self.order._replace(generation=generation, weights=weights, child=child, child_share=share)

    def _event(
        self, what: Happened, now_s: float, *, reason: str = "", figures: tuple[tuple[str, float], ...] = ()
    ) -> TunerEvent:
        order = self.order
        return TunerEvent(now_s, what, order.generation, order.weights, order.child, reason or what.value, figures)


def _work(for_s: float) -> None:
    """Keeps the interpreter busy, as a fit does."""
    until_s = time.perf_counter() + for_s
    while time.perf_counter() < until_s:
        pass
