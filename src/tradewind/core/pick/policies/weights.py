"""The weights of `routing: weights` as a per-request policy, spread by credits instead of dice."""

from tradewind.core.lowdisc import CreditPick
from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.policies.ranking import measured

MAX_POOLS = 1_024  # sets of cells with credits of their own; beyond, all start anew


class Pressure:
    """Shares in proportion to the pressure weights."""

    name = "pressure"
    in_seconds = False

    def __init__(self) -> None:
        self._credits: dict[tuple[str, ...], CreditPick] = {}
        self._weights: dict[tuple[str, ...], dict[str, int]] = {}

    def choose(self, ask: Ask) -> Choice:
        weights = {cell.cell_id: cell.weight for cell in ask.cells}
        key = tuple(weights)
        if key not in self._credits:
            if len(self._credits) >= MAX_POOLS:
                self._credits.clear()
                self._weights.clear()
            self._credits[key] = CreditPick()
        spread = self._credits[key]
        if self._weights.get(key) != weights:
            self._weights[key] = weights
            spread.update(weights)
        chosen = spread.pick()
        ranked = measured(ask.cells, lambda cell: float(-cell.weight))
        place = next(place for place, (_, cell) in enumerate(ranked) if cell.cell_id == chosen)
        return Choice(ranked, place, (0.0,) * place + (1.0,))
