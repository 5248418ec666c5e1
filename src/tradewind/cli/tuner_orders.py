"""An operator's order to the tuner of every control at once, and what came of it.

Each control has a tuner of its own, and gateways follow the first that is connected: only the answer of every control
tells what will be in force when that one dies.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tradewind.cli.orders import MAX_AT_ONCE, Asked
from tradewind.runtime.ask import AskFailed

Send = Callable[[str, str], object]  # (address, path) -> the decoded reply; raises AskFailed
Json = Mapping[str, object]
NO_TUNER = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerSeen:
    """The tuner of one control, None where it has none or did not answer."""

    control: Asked
    tuner: Json | None
    has_none: bool = False
    saved: bool | None = None  # after an order: it would survive a restart of this control
    refused: bool = False  # it answers, and says no; to repeat the same order would change nothing
    problem: str = ""

    def as_json(self) -> dict[str, object]:
        """For --json."""
        return {
            "id": self.control.id,
            "address": self.control.address,
            "tuner": self.tuner,
            "has_none": self.has_none,
            "saved": self.saved,
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerReport:
    """The answers of all controls, in the file's order."""

    order: str
    seen: tuple[TunerSeen, ...]

    @property
    def complete(self) -> bool:
        """True when every tuner obeyed, and there is one."""
        obeyed = any(item.tuner is not None for item in self.seen)
        return obeyed and all(item.tuner is not None or item.has_none for item in self.seen)

    def as_json(self) -> dict[str, object]:
        """For --json."""
        return {"order": self.order, "complete": self.complete, "controls": [item.as_json() for item in self.seen]}

    def lines(self) -> list[str]:
        """For people: what is in force, and what is still open."""
        out = []
        for item in self.seen:
            if item.tuner is None:
                again = "" if item.refused else f"; repeat the order when {item.control.name} is back"
                out.append(f"{item.problem}{again}")
                continue
            out.append(f"{item.control.name}: {state(item.tuner)}")
            if item.saved is False:
                out.append(f"not saved: a restart of {item.control.name} would forget it")
        return out


def state(tuner: Json) -> str:
    """Weights in force and what holds for them."""
    text = weights(tuner.get("weights"))
    if tuner.get("child") is not None:
        share = tuner.get("child_share")
        text += f"; {100 * share if isinstance(share, float) else 0:.0f} % of requests try {weights(tuner['child'])}"
    if tuner.get("frozen"):
        text += "; frozen"
    if tuner.get("problem"):
        text += f"; disabled: {tuner['problem']}"
    return text


def weights(row: object) -> str:
    """ "rtt 1, queue 0.5"."""
    if not isinstance(row, dict):
        return "no weights"
    return ", ".join(f"{name} {float(value):.4g}" for name, value in row.items())


def tuners(controls: Sequence[Asked], send: Send) -> tuple[TunerSeen, ...]:
    """The tuner of every control; never raises for what a control does."""
    return _all(controls, lambda control: _seen(control, "/v1/tuner", send))


def order_tuners(controls: Sequence[Asked], order: str, send: Send) -> TunerReport:
    """Give the order to all controls at the same time; never raises for what a control does."""
    return TunerReport(order=order, seen=_all(controls, lambda control: _seen(control, f"/v1/tuner/{order}", send)))


def first_history(controls: Sequence[Asked], send: Send, *, limit: int) -> Json:
    """Of the first control that has a tuner. Raises AskFailed with the first problem when none has."""
    problem: AskFailed | None = None
    for control in controls:
        try:
            reply = send(control.address, f"/v1/tuner/history?limit={limit}")
        except AskFailed as error:
            problem = problem or error
            continue
        if isinstance(reply, dict):
            return reply
    raise problem or AskFailed("no control answers with a history")


def gateways_follow(file: Path) -> list[dict[str, object]]:
    """What each gateway of the file follows; `order` None: its policy's own weights, or it does not pick."""
    from tradewind.lab.locate import running
    from tradewind.runtime.ask import ask

    found: list[dict[str, object]] = []
    for gateway in running(file).gateways:
        try:
            status = ask(gateway.admin, "/v1/status")
        except AskFailed as error:
            found.append({"id": gateway.id, "order": None, "problem": str(error)})
            continue
        pick = status.get("pick") if isinstance(status, dict) else None
        tuner = pick.get("tuner") if isinstance(pick, dict) else None
        found.append({"id": gateway.id, "order": tuner, "problem": "" if pick else "it does not pick"})
    return found


def _all(controls: Sequence[Asked], look: Callable[[Asked], TunerSeen]) -> tuple[TunerSeen, ...]:
    with ThreadPoolExecutor(max_workers=min(MAX_AT_ONCE, len(controls))) as pool:
        return tuple(pool.map(look, controls))


def _seen(control: Asked, path: str, send: Send) -> TunerSeen:
    try:
        reply = send(control.address, path)
    except AskFailed as error:
        return TunerSeen(
            control=control,
            tuner=None,
            has_none=error.status == NO_TUNER,
            refused=bool(error.status),
            problem=f"{control.name}: {error}",
        )
    if not isinstance(reply, dict):
        return TunerSeen(control=control, tuner=None, problem=f"{control.name} answers something else than a tuner")
    ordered = isinstance(reply.get("tuner"), dict)
    saved = reply.get("saved") is True if ordered else None
    return TunerSeen(control=control, tuner=reply["tuner"] if ordered else reply, saved=saved)
