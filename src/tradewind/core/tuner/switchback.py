"""A blocked A/B of two settings: all requests by one, then all by the other, in pairs whose order is drawn.

It sees what requests do to those after them, which arms side by side share and hide. What it costs is requests: see
`power`. It changes nothing: at the end the present setting is in force, as it was before, and there is an answer.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from tradewind.core.tuner.answer import Answer, Block, answer_of
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.kept import MAX_GENERATION, Reader
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.power import BLOCK, DISCARD, LEAST, MOST, PAIR, whole_pairs
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

NAME = "switchback"


class Check(NamedTuple):
    """What is asked."""

    present: Weights
    other: Weights
    requests: int = LEAST  # rounded up to pairs of blocks
    seed: int = 0

    def problem(self, box: Box) -> str:
        """Why this is no check, "" if it is one."""
        if self.present == self.other:
            return "both settings are the same: there is nothing to check"
        if not LEAST <= self.requests <= MOST:
            return f"a check takes {LEAST:,} to {MOST:,} requests, not {self.requests:,}"
        return box.problem(self.other)


class Switchback:
    """Implements `Tuner`. Once the check has ended it keeps the present setting; `answer` says what was seen."""

    def __init__(self, *, driver: str, check: Check, box: Box) -> None:
        if problem := check.problem(box):
            raise ValueError(problem)
        self.check = check
        self.answer: Answer | None = None
        self._box = box
        self._arms = _arms(check)  # of each block: whether it goes by the other setting
        self._orders = Orders(driver, self._setting(other=self._arms[0]))
        self._blocks: list[Block] = []
        self._by_generation: dict[int, Block] = {}
        self._ended = 0  # requests by the order in force
        self._running = False
        self._begin()

    @property
    def name(self) -> str:
        """As tuners have one."""
        return NAME

    @property
    def order(self) -> TuningOrder:
        """What is in force."""
        return self._orders.last

    @property
    def frozen(self) -> bool:
        """Whether no check runs, or none any more."""
        return not self._running

    @property
    def requests(self) -> int:
        """That the check takes; some more end late."""
        return BLOCK * len(self._arms)

    @property
    def heard(self) -> int:
        """Requests of the check that have ended."""
        return sum(len(block.seen) for block in self._blocks)

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests: each belongs to the block that it was decided in, however late it ends."""
        events: list[TunerEvent] = []
        for sample in samples:
            if self._running and sample.driver == self.order.driver:
                events += self._take(sample, now_s)
        return events

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Give the check up; the present setting is in force."""
        return self._stop(now_s, "the check was given up by an operator")

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """The check begins anew, if it was given up."""
        if self._running or self.answer is not None:
            return ()
        return self._again(now_s)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights end the check; raises ValueError outside the box."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        stopped = self._stop(now_s, "an operator put other weights")
        self.check = self.check._replace(present=weights)
        self._orders.give(weights)
        return (*stopped, self._tell(Happened.SET, now_s, reason))

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """The check begins anew, from its first block."""
        return (*self._stop(now_s, "the check was reset by an operator"), *self._again(now_s))

    def keep(self) -> Kept:
        """What was asked. A check does not outlive a restart: what its requests showed is not kept."""
        return {"tuner": NAME, "generation": self.order.generation, "present": list(self.check.present)}

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """The present setting, as it was before the check. Raises ValueError for what it cannot read."""
        read = Reader(kept)
        read.same("tuner", NAME)
        generation, present = read.whole("generation", 0, MAX_GENERATION), read.weights("present")
        self._orders.follow(generation)
        self.check = self.check._replace(present=self._box.clipped(present))
        return self._stop(now_s, "a restart ended the check")

    def _take(self, sample: Sample, now_s: float) -> Sequence[TunerEvent]:
        block = self._by_generation.get(sample.generation)
        if block is not None:
            block.add(sample)
        if not self._orders.has(sample):
            return ()
        self._ended += 1
        if block is None:  # the last block is over
            return self._finish(now_s) if self._ended >= DISCARD else ()
        if self._ended >= BLOCK:
            self._next()
        return ()

    def _next(self) -> None:
        """The next block, or, after the last one, the present setting until the late ones of that have ended."""
        self._ended = 0
        number = len(self._blocks)
        if number == len(self._arms):
            self._orders.give(self.check.present)
            return
        self._orders.give(self._setting(other=self._arms[number]))
        self._open()

    def _open(self) -> None:
        block = Block(other=self._arms[len(self._blocks)])
        self._blocks.append(block)
        self._by_generation[self.order.generation] = block

    def _finish(self, now_s: float) -> Sequence[TunerEvent]:
        self.answer = answer_of(self._blocks, discard=DISCARD)
        self._running = False
        figures = tuple((f"{each.figure} change", each.change) for each in self.answer.estimates)
        return (self._tell(Happened.CHECKED, now_s, self.answer.told, figures),)

    def _stop(self, now_s: float, reason: str) -> Sequence[TunerEvent]:
        if not self._running:
            return ()
        self._running = False
        self._orders.give(self.check.present)
        return (self._tell(Happened.VOIDED, now_s, f"{reason}, after {self.heard:,} of {self.requests:,} requests"),)

    def _again(self, now_s: float) -> Sequence[TunerEvent]:
        self.answer = None
        self._orders.give(self._setting(other=self._arms[0]))
        self._begin()
        return (self._tell(Happened.PROPOSED, now_s, f"a check of {self.requests:,} requests begins anew"),)

    def _begin(self) -> None:
        self._blocks.clear()
        self._by_generation.clear()
        self._ended = 0
        self._running = True
        self._open()

    def _setting(self, *, other: bool) -> Weights:
        return self.check.other if other else self.check.present

    def _tell(
        self, what: Happened, now_s: float, reason: str, figures: tuple[tuple[str, float], ...] = ()
    ) -> TunerEvent:
        order = self.order
        return TunerEvent(now_s, what, order.generation, order.weights, self.check.other, reason, figures)


def _arms(check: Check) -> tuple[bool, ...]:
    """AB or BA for each pair, drawn."""
    rng = random.Random(check.seed)
    pairs = whole_pairs(check.requests) // PAIR
    firsts = [rng.random() < 0.5 for _ in range(pairs)]
    return tuple(arm for first in firsts for arm in (first, not first))
