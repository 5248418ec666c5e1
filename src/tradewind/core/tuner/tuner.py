"""What every tuner is: samples in, an order and events out; frozen, reset and restored from what was kept."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from tradewind.model.tuning import Sample, TuningOrder, Weights

Kept = Mapping[str, object]  # what JSON can say: numbers, texts, lists and mappings of them


class Happened(StrEnum):
    """Kinds of events in a tuner's history."""

    PROPOSED = "proposed"  # a child is compared from now on
    ACCEPTED = "accepted"  # ... and is the parent now
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"  # a guard was breached: the weights before, at once
    VOIDED = "voided"  # a comparison that the world changed under
    REGIME = "regime"  # another load or fleet: its own weights
    FROZEN = "frozen"
    THAWED = "thawed"
    RESET = "reset"
    CHECKED = "checked"  # two settings were compared in blocks: what was seen; the weights are as before
    SET = "set"  # by an operator's consent, e.g. what pretrain proposed


class TunerEvent(NamedTuple):
    """One line of history."""

    at_s: float
    what: Happened
    generation: int
    weights: Weights  # in force after it
    child: Weights | None
    reason: str  # for people: with figures
    figures: tuple[tuple[str, float], ...] = ()  # for machines


class Tuner(Protocol):
    """One per grid, in control or in the simulator. Times come in; nothing is drawn but from its own seeded stream."""

    @property
    def name(self) -> str:
        """As it is written in configuration."""
        ...

    @property
    def order(self) -> TuningOrder:
        """What is in force."""
        ...

    @property
    def frozen(self) -> bool:
        """Whether it only watches."""
        ...

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end. The order may be another one afterwards."""
        ...

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """Keep the parent's weights, end a comparison, propose nothing."""
        ...

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Go on."""
        ...

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """An operator's weights; raises ValueError outside the box."""
        ...

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """Back to the start; what was learned is void."""
        ...

    def keep(self) -> Kept:
        """Everything that must outlive a restart; recent samples are not part of it."""
        ...

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Go on from what `keep` gave; the order has a new generation. Raises ValueError for what it cannot read."""
        ...
