"""A policy without an opinion: each request goes to the cell that served it live."""

import random
from collections.abc import Mapping, Sequence

from tradewind.core.pick.cell import OthersLoad
from tradewind.model.decision import Decision
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.view import GridView, PathReading


class Assigned:
    """What is left to the simulator is how long everything takes."""

    def __init__(self, cells: Sequence[str]) -> None:
        """`cells`: by the number of the request, which comes in this order."""
        self._cells = cells
        self._next = 0

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision:
        """The cell that had it."""
        number, self._next = self._next, self._next + 1
        return Decision(f"d{number}", request.request_id, "assigned", self._cells[number], "")

    def first_token(self, decision_id: str, now_s: float) -> None:
        """Nothing to learn."""

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        """Nothing to learn."""

    def observe_view(self, view: GridView, now_s: float) -> None:
        """Nothing to learn."""

    def observe_path(self, path: PathReading, now_s: float) -> None:
        """Nothing to learn."""

    def outstanding(self) -> Mapping[str, OthersLoad]:
        """There is no other gateway to tell."""
        return {}

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        """There is no other gateway."""
