"""What a gateway drives: a scorer takes what is observed and says, each tick, what every cell should weigh."""

from random import Random
from typing import Protocol

from tradewind.core.baseline import BaselineScorer
from tradewind.core.pools import Router, routing
from tradewind.core.published import PublishedScorer
from tradewind.core.recipe import WeightScorer
from tradewind.core.settings import ScoringSettings
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder, WeightDecision
from tradewind.model.view import CellView, GridView, PathReading

__all__ = [
    "BaselineScorer",
    "PublishedScorer",
    "Router",
    "Scorer",
    "ScoringSettings",
    "WeightScorer",
    "make_scorer",
    "routing",
]


class Scorer(Protocol):
    """One policy. Every `observe_*` returns True when the next tick should not wait for its second."""

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        """All cells as the gateway now knows them, sorted by id; ages are as of `now_s` for values that are new."""

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """One finished request."""

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        """One reading of the path to one cell."""

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """The answer to a ProbeOrder: its HTTP status, 0 for none."""

    def tick(self, now_s: float, rng: Random) -> WeightDecision:
        """The weights of now; call it about once a second, and at once when an observation said so."""


def make_scorer(scoring: str, baseline: str, settings: ScoringSettings) -> Scorer:
    """The scorer of a gateway's configuration; any baseline ("round-robin", ...) turns scoring off."""
    if baseline:
        return BaselineScorer(settings)
    if scoring == "recipe":
        return WeightScorer(settings)
    if scoring in ("published", "published-v2"):
        return PublishedScorer(settings, signals=8 if scoring == "published-v2" else 10)
    raise ValueError(f"unknown scoring {scoring!r}")
