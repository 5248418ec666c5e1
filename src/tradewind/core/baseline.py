"""Scoring turned off: every READY cell weighs the same, and only membership is ever pushed."""

from random import Random

from tradewind.core.membership import MembershipWatch
from tradewind.core.settings import ScoringSettings
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder, WeightDecision, WeightRow
from tradewind.model.view import CellView, GridView, PathReading


class BaselineScorer:
    """For `--baseline`: Envoy's own policy does the picking."""

    def __init__(self, settings: ScoringSettings) -> None:
        self._weight = settings.projection.best
        self._members = MembershipWatch()
        self._rows: dict[str, WeightRow] = {}  # of the newest tick, which the next one mostly repeats

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        """Only who is READY matters."""
        return self._members.update(view)

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """Nothing to learn."""
        return False

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        """Nothing to learn."""
        return False

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """No probe is ever ordered."""
        return False

    def tick(self, now_s: float, rng: Random) -> WeightDecision:
        """Equal weights; a push when the READY set has changed."""
        self._rows = {cell_id: self._row(cell_id, view) for cell_id, view in self._members.ready.items()}
        return WeightDecision(rows=tuple(self._rows.values()), push=self._members.take_change())

    def _row(self, cell_id: str, view: CellView) -> WeightRow:
        old = self._rows.get(cell_id)
        if old is not None and old.blind == view.silent:
            return old
        return WeightRow(cell_id=cell_id, weight=self._weight, blind=view.silent)
