"""A tuner beside which a switchback check can run: it waits, and goes on where it was when there is an answer."""

from collections.abc import Sequence

from tradewind.core.tuner.answer import Answer
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.power import LEAST
from tradewind.core.tuner.switchback import Check, Switchback
from tradewind.core.tuner.tuner import Happened, Kept, Tuner, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights


class Checked:
    """Implements `Tuner`; an operator's order ends a check and then reaches the tuner."""

    def __init__(self, tuner: Tuner, *, box: Box) -> None:
        self._tuner = tuner
        self._box = box
        self._checks = 0
        self._check: Switchback | None = None  # the one that runs, or the last one

    @property
    def name(self) -> str:
        """The tuner's."""
        return self._tuner.name

    @property
    def order(self) -> TuningOrder:
        """What is in force: the check's while one runs. It has a driver of its own."""
        return self._check.order if self._check is not None and self.checking else self._tuner.order

    @property
    def frozen(self) -> bool:
        """Whether the tuner only watches, apart from a check."""
        return self._tuner.frozen

    @property
    def checking(self) -> bool:
        """Whether a check runs."""
        return self._check is not None and not self._check.frozen

    @property
    def last_check(self) -> Switchback | None:
        """The one that runs, or the last one; it is not kept through a restart."""
        return self._check

    @property
    def answer(self) -> Answer | None:
        """Of the last check; None while it runs, or if it was given up."""
        return None if self._check is None else self._check.answer

    def begin_check(
        self, other: Weights, now_s: float, *, requests: int = LEAST, seed: int = 0
    ) -> Sequence[TunerEvent]:
        """Compare the parent with these weights in blocks. Raises ValueError, also while another check runs."""
        if self.checking:
            raise ValueError("a check is running already; `tradewind tuner freeze` ends it")
        order = self._tuner.order
        asked = Check(present=order.weights, other=other, requests=requests, seed=seed)
        check = Switchback(driver=f"{order.driver}.check{self._checks + 1}", check=asked, box=self._box)
        self._check = check
        self._checks += 1
        reason = f"a check of {check.requests:,} requests in blocks, all by one setting and then all by the other"
        return (TunerEvent(now_s, Happened.PROPOSED, check.order.generation, asked.present, other, reason),)

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests: to whom they belong."""
        if self._check is not None and self.checking:
            return self._check.learn(samples, now_s)
        return self._tuner.learn(samples, now_s)

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, end a check and a comparison, propose nothing."""
        return (*self._end_check(now_s), *self._tuner.freeze(now_s))

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on. A check that runs is not touched."""
        return self._tuner.thaw(now_s)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights; raises ValueError outside the box."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        return (*self._end_check(now_s), *self._tuner.put(weights, now_s, reason))

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start; what was learned is void."""
        return (*self._end_check(now_s), *self._tuner.reset(now_s))

    def keep(self) -> Kept:
        """The tuner's: a check does not outlive a restart."""
        return self._tuner.keep()

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """The tuner's. Raises ValueError for what it cannot read."""
        return self._tuner.restore(kept, now_s)

    def _end_check(self, now_s: float) -> Sequence[TunerEvent]:
        return self._check.freeze(now_s) if self._check is not None else ()
