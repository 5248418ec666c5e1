"""An operator's order to every control at once, and what came of it.

Controls do not talk to each other, and a drain at any control that a gateway hears holds there. So a drain must reach
one control of every gateway, and its end must reach all that hold it: only the answer of every control is success.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from tradewind.runtime.ask import AskFailed

Order = Literal["drain", "undrain"]
Send = Callable[[str, str], object]  # (address, path) -> the decoded reply; raises AskFailed

MAX_AT_ONCE = 16
UNKNOWN_CELL = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A control of the grid file. `id` is "" for one that was named by its address alone."""

    id: str
    address: str

    @property
    def name(self) -> str:
        return f"control {self.id}" if self.id else f"control {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one control made of the order. `knows` False: it has never heard of the cell, so it holds nothing.
    `refused`: it answers, and says no; to repeat the same order would change nothing."""

    control: Asked
    obeyed: bool
    knows: bool = True
    refused: bool = False
    state: str = ""
    saved: bool = False  # it would survive a restart of this control
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answers of all controls, in the file's order."""

    cell_id: str
    order: Order
    answers: tuple[Answer, ...]

    @property
    def complete(self) -> bool:
        """True when no control may be left that thinks otherwise."""
        obeyed = any(answer.obeyed for answer in self.answers)
        return obeyed and all(answer.obeyed or not answer.knows for answer in self.answers)

    def as_json(self) -> dict[str, object]:
        """For --json. `state` is that of the first control that obeyed, "" when none did."""
        obeyed = [answer for answer in self.answers if answer.obeyed]
        return {
            "cell_id": self.cell_id,
            "order": self.order,
            "complete": self.complete,
            "state": obeyed[0].state if obeyed else "",
            "saved": bool(obeyed) and all(answer.saved for answer in obeyed),
            "controls": [
                {
                    "id": answer.control.id,
                    "address": answer.control.address,
                    "obeyed": answer.obeyed,
                    "knows_cell": answer.knows,
                    "state": answer.state,
                    "saved": answer.saved,
                    "problem": answer.problem,
                }
                for answer in self.answers
            ],
        }

    def lines(self) -> list[str]:
        """For people: what holds, and what is still open."""
        obeyed = [answer for answer in self.answers if answer.obeyed]
        names = ", ".join(answer.control.name for answer in obeyed)
        out = []
        if obeyed:
            what = "drained" if self.order == "drain" else "back in service"
            out.append(f"{self.cell_id}: {what}, state {obeyed[0].state} ({names})")
            out += [f"not saved: a restart of {a.control.name} would forget it" for a in obeyed if not a.saved]
        for answer in self.answers:
            if not answer.obeyed and answer.knows:
                again = "" if answer.refused else f" Repeat the order when {answer.control.name} is back."
                out.append(f"{answer.problem}; {self._open(names)}{again}")
            elif not answer.obeyed:
                out.append(f"{answer.control.name} does not know {self.cell_id}")
        if not any(answer.knows for answer in self.answers):
            out.append("nothing is changed; `tradewind status` shows the cells that there are")
        return out

    def _open(self, names: str) -> str:
        if self.order == "undrain":
            return "if it holds the drain, the cell is out wherever it is heard."
        return f"the drain holds where {names} is heard." if names else "nothing is drained."


def order_all(controls: Sequence[Asked], cell_id: str, order: Order, send: Send) -> Report:
    """Give the order to all controls at the same time; never raises for what a control does."""
    path = f"/v1/cells/{quote(cell_id, safe='')}/{order}"
    with ThreadPoolExecutor(max_workers=min(MAX_AT_ONCE, len(controls))) as pool:
        answers = tuple(pool.map(lambda control: _give(control, path, send), controls))
    return Report(cell_id=cell_id, order=order, answers=answers)


def _give(control: Asked, path: str, send: Send) -> Answer:
    try:
        reply = send(control.address, path)
    except AskFailed as error:
        knows = error.status != UNKNOWN_CELL
        refused = bool(error.status)
        return Answer(control=control, obeyed=False, knows=knows, refused=refused, problem=f"{control.name}: {error}")
    if not isinstance(reply, dict):
        return Answer(control=control, obeyed=False, problem=f"{control.name} answers something else than a cell")
    return Answer(
        control=control, obeyed=True, state=str(reply.get("state", "unknown")), saved=reply.get("saved") is True
    )
