"""Small policies for the simulator's own tests: no index, no estimates."""

import random
from collections.abc import Callable, Mapping

from tradewind.core.pick.cell import OthersLoad
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.view import GridView, PathReading
from tradewind.sim.scenario import Scenario


class InTurn:
    """Round robin over the cells of the newest view; it writes down what it was told."""

    def __init__(self) -> None:
        self.cells: tuple[tuple[str, str], ...] = ()
        self.views: list[float] = []
        self.paths: dict[str, PathReading] = {}
        self.picked: dict[str, float] = {}
        self.firsts: dict[str, float] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.others: list[tuple[float, dict[str, OthersLoad]]] = []

    def observe_view(self, view: GridView, now_s: float) -> None:
        self.cells = tuple((item.cell.cell_id, item.cell.address) for item in view.cells)
        self.views.append(now_s)

    def observe_path(self, path: PathReading, now_s: float) -> None:
        self.paths[path.cell_id] = path

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        cell_id, address = self.cells[len(self.picked) % len(self.cells)]
        decision_id = f"d{len(self.picked)}"
        self.picked[decision_id] = now_s
        return Decision(
            decision_id=decision_id, request_id=request.request_id, policy="test", cell_id=cell_id, address=address
        )

    def first_token(self, decision_id: str, now_s: float) -> None:
        self.firsts[decision_id] = now_s

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        self.outcomes[decision_id] = outcome

    def outstanding(self) -> Mapping[str, OthersLoad]:
        return {"a-near-0": OthersLoad(requests=len(self.picked) - len(self.outcomes))}

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        self.others.append((now_s, dict(loads)))


class AtRandom(InTurn):
    """Any cell, by the chance that the grid gives."""

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        for _ in range(rng.randrange(len(self.cells))):
            self.cells = self.cells[1:] + self.cells[:1]
        return super().pick(request, now_s=now_s, rng=rng)


def in_turn(made: list[InTurn]) -> Callable[[Scenario], InTurn]:
    """A maker that keeps what it made in `made`."""

    def make(scenario: Scenario) -> InTurn:
        made.append(InTurn())
        return made[-1]

    return make
