"""The published evolution strategy with its faults repaired: parent and child side by side, and no luck kept.

Each request counts by its decision, the parent is measured in every comparison, a child is accepted only if it is
better for sure, and sigma is bounded. Safe where weights have no effect; not fast where they have (tuner study, 3, 4).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tradewind.core.numbers import clip
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.es import stepped
from tradewind.core.tuner.kept import MAX_GENERATION, Reader
from tradewind.core.tuner.looks import Looks, LookSettings
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

NAME = "es-repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """Of sigma, in e-folds."""

    start: float = 0.35
    bounds: tuple[float, float] = (0.05, 1.0)
    on_success: float = 1.3
    on_failure: float = 0.94


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedSettings:
    """All of it."""

    step: StepSettings = field(default_factory=StepSettings)
    look: LookSettings = field(default_factory=LookSettings)


class EsRepaired:
    """Half of the requests go by the child while one is tried, which is always unless it is frozen."""

    def __init__(
        self, *, driver: str, seed: int, start: Weights, box: Box, settings: RepairedSettings | None = None
    ) -> None:
        self._settings = settings or RepairedSettings()
        self._driver = driver
        self._seed = seed
        self._start = start
        self._box = box
        self._orders = Orders(driver, start)
        self._sigma = self._settings.step.start
        self._looks: Looks | None = None
        self._frozen = False

    @property
    def name(self) -> str:
        """As it is written in configuration."""
        return NAME

    @property
    def order(self) -> TuningOrder:
        """What is in force."""
        return self._orders.last

    @property
    def frozen(self) -> bool:
        """Whether it only watches."""
        return self._frozen

    @property
    def sigma(self) -> float:
        """Of the next step, in e-folds."""
        return self._sigma

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end."""
        if self._frozen:
            return ()
        events: list[TunerEvent] = []
        for sample in samples:
            if self._looks is None:
                events.append(self._propose(now_s))
            elif self._orders.has(sample):
                events += self._heard(self._looks, sample, now_s)
        return events

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, end a comparison, propose nothing."""
        if self._frozen:
            return ()
        voided = self._void(now_s, "frozen by an operator")
        self._frozen = True
        return (*voided, self._tell(Happened.FROZEN, now_s, "keeps these weights until it is thawed"))

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on."""
        if not self._frozen:
            return ()
        self._frozen = False
        return (self._tell(Happened.THAWED, now_s, f"goes on from these weights, sigma {self._sigma:.2f}"),)

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights; raises ValueError outside the box."""
        if problem := self._box.problem(weights):
            raise ValueError(problem)
        voided = self._void(now_s, "an operator put other weights")
        self._orders.give(weights)
        return (*voided, self._tell(Happened.SET, now_s, reason))

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start; what was learned is void."""
        voided = self._void(now_s, "reset by an operator")
        self._sigma = self._settings.step.start
        self._orders.give(self._start)
        return (*voided, self._tell(Happened.RESET, now_s, "back to the start"))

    def keep(self) -> Kept:
        """Everything that must outlive a restart; recent samples are not part of it."""
        order = self.order
        return {
            "tuner": NAME,
            "generation": order.generation,
            "weights": list(order.weights),
            "child": None if order.child is None else list(order.child),
            "sigma": self._sigma,
            "frozen": self._frozen,
        }

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Go on from what `keep` gave. Nothing changes if it cannot be read."""
        read = Reader(kept)
        read.same("tuner", NAME)
        generation = read.whole("generation", 0, MAX_GENERATION)
        weights, sigma, frozen = read.weights("weights"), read.positive("sigma"), read.flag("frozen")
        child = read.weights("child") if read.has("child") else None
        self._orders.follow(generation)
        self._orders.give(self._box.clipped(weights))
        self._looks, self._frozen = None, frozen
        self._sigma = clip(sigma, *self._settings.step.bounds)
        if child is None:
            return ()
        return (self._tell(Happened.VOIDED, now_s, "a restart ended the comparison", child=child),)

    def _propose(self, now_s: float) -> TunerEvent:
        # By generation, so that a restarted search goes on and does not draw the same again.
        rng = random.Random(f"{self._seed}/{self.order.generation}")
        share = self._settings.look.share
        child = stepped(self.order.weights, self._sigma, rng, self._box)
        order = self._orders.give(self.order.weights, child=child, child_share=share)
        self._looks = Looks(driver=self._driver, generation=order.generation, settings=self._settings.look)
        reason = f"{share:.0%} of the requests go by it; sigma {self._sigma:.2f}"
        return self._tell(Happened.PROPOSED, now_s, reason, child=child, figures=(("sigma", self._sigma),))

    def _heard(self, looks: Looks, sample: Sample, now_s: float) -> Sequence[TunerEvent]:
        verdict = looks.add(sample)
        if verdict is None:
            return self._void(now_s, "too few requests had a first token to compare") if looks.starved else ()
        child, step = self.order.child or self.order.weights, self._settings.step
        factor = step.on_success if verdict.accepted else step.on_failure
        self._sigma = clip(self._sigma * factor, *step.bounds)
        self._looks = None
        self._orders.give(child if verdict.accepted else self.order.weights)
        refused = Happened.ROLLED_BACK if verdict.breach else Happened.REJECTED
        what = Happened.ACCEPTED if verdict.accepted else refused
        figures = (*verdict.figures, ("sigma", self._sigma))
        told = self._tell(what, now_s, verdict.reason, child=child, figures=figures)
        return (told, self._propose(now_s))

    def _void(self, now_s: float, reason: str) -> tuple[TunerEvent, ...]:
        child = self.order.child
        self._looks = None
        if child is None:
            return ()
        self._orders.give(self.order.weights)
        return (self._tell(Happened.VOIDED, now_s, reason, child=child),)

    def _tell(
        self,
        what: Happened,
        now_s: float,
        reason: str,
        *,
        child: Weights | None = None,
        figures: tuple[tuple[str, float], ...] = (),
    ) -> TunerEvent:
        return TunerEvent(now_s, what, self.order.generation, self.order.weights, child, reason, figures)
