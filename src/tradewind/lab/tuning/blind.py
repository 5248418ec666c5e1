"""A tuner of any blind search, for comparison: it tries a child beside the parent and tells the search what it saw."""

import random
from collections.abc import Callable, Sequence
from math import expm1, log, log1p
from typing import NamedTuple, Protocol

from tradewind.core.tuner.adjust import Difference, Measured, adjusted_difference
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.kept import MAX_GENERATION, Reader
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

SHARE, GRACE = 0.5, 60  # GRACE: that may end after a child's requests, so that slow ones are among them


class Search(Protocol):
    """Where to look next. It holds no time and no requests."""

    def ask(self, parent: Weights) -> Weights:
        """A child to try."""

    def tell(self, parent: Weights, child: Weights, seen: Difference) -> Weights | None:
        """What its log TTFT was against the parent's. The new parent, or None if it stays."""


class _Seen(NamedTuple):
    dispatched_s: float
    child: bool
    measured: Measured


class BlindTuner:
    """No guards, no test, no memory of the search beyond a restart: what a child did is what it is."""

    def __init__(
        self,
        *,
        name: str,
        driver: str,
        seed: int,
        start: Weights,
        box: Box,
        requests: int,
        search: Callable[[random.Random, Box], Search],
    ) -> None:
        self._name = name
        self._rng = random.Random(seed)
        self._start = start
        self._box = box
        self._requests = requests  # per child, both arms
        self._make_search = search
        self._search = search(self._rng, box)
        self._orders = Orders(driver, start)
        self._seen: list[_Seen] = []
        self._frozen = False

    @property
    def name(self) -> str:
        """As the laboratory writes it."""
        return self._name

    @property
    def order(self) -> TuningOrder:
        """What is in force."""
        return self._orders.last

    @property
    def frozen(self) -> bool:
        """Whether it only watches."""
        return self._frozen

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end."""
        events: list[TunerEvent] = []
        for sample in samples:
            if self._frozen:
                break
            if self.order.child is None:
                events.append(self._try(now_s))
            elif self._orders.has(sample) and sample.ttft_s:
                known = log1p(sample.least_uncached_tokens), log1p(sample.prompt_tokens)
                self._seen.append(_Seen(sample.dispatched_s, sample.child, Measured(log(sample.ttft_s), *known)))
                if len(self._seen) >= self._requests + GRACE:
                    events += self._judge(self.order.child, now_s)
        return events

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, end a comparison, propose nothing."""
        if self._frozen:
            return ()
        self._frozen = True
        return (self._alone(self.order.weights, Happened.FROZEN, now_s, "asked for"),)

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on."""
        if not self._frozen:
            return ()
        self._frozen = False
        return (self._alone(self.order.weights, Happened.THAWED, now_s, "asked for"),)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """Other weights, and a search that begins there; raises ValueError outside the box."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        self._search = self._make_search(self._rng, self._box)
        return (self._alone(weights, Happened.SET, now_s, reason),)

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start."""
        self._search = self._make_search(self._rng, self._box)
        return (self._alone(self._start, Happened.RESET, now_s, "back to the start"),)

    def keep(self) -> Kept:
        """The weights; the search begins anew."""
        order = self.order
        return {
            "tuner": self._name,
            "generation": order.generation,
            "weights": list(order.weights),
            "frozen": self._frozen,
        }

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Begin at the weights that `keep` gave. Raises ValueError for what it cannot read."""
        read = Reader(kept)
        read.same("tuner", self._name)
        weights, frozen = self._box.clipped(read.weights("weights")), read.flag("frozen")
        self._orders.follow(read.whole("generation", 0, MAX_GENERATION))
        self._frozen = frozen
        return (self._alone(weights, Happened.SET, now_s, "as kept; the search begins anew"),)

    def _try(self, now_s: float) -> TunerEvent:
        child = self._search.ask(self.order.weights)
        self._seen.clear()
        order = self._orders.give(self.order.weights, child=child, child_share=SHARE)
        return TunerEvent(now_s, Happened.PROPOSED, order.generation, order.weights, child, "next of the search")

    def _judge(self, child: Weights, now_s: float) -> tuple[TunerEvent, TunerEvent]:
        first = sorted(self._seen)[: self._requests]
        arms = ([each.measured for each in first if each.child is child_arm] for child_arm in (False, True))
        seen = adjusted_difference(*arms)
        moved = self._search.tell(self.order.weights, child, seen)
        order = self._orders.give(self.order.weights if moved is None else moved)
        what = Happened.REJECTED if moved is None else Happened.ACCEPTED
        reason = f"TTFT {100 * expm1(seen.change):+.1f} % against the parent's in the mean of logarithms"
        figures = (("log_ttft_change", seen.change), ("log_ttft_z", seen.z))
        verdict = TunerEvent(now_s, what, order.generation, order.weights, child, reason, figures)
        return verdict, self._try(now_s)

    def _alone(self, weights: Weights, what: Happened, now_s: float, reason: str) -> TunerEvent:
        order = self._orders.give(weights)
        return TunerEvent(now_s, what, order.generation, order.weights, None, reason)
