"""A picker with real behaviour and no grid: round robin over given addresses, and models with a known fate."""

import itertools
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.gateway.epp.service import Ending
from tradewind.gateway.epp.subset import holds
from tradewind.model.decision import Decision, Refusal, RefusalKind

MODEL, LORA, BUSY_MODEL, EMPTY_MODEL = "demo", "demo-lora", "busy", "empty"


@dataclass(slots=True)
class Served:
    """What the server told about one decision."""

    firsts: int = 0
    ends: list[tuple[str | None, int, Ending]] = field(default_factory=list)


class RoundRobin:
    """A PickService. LORA is served by the first endpoint only."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self.endpoints = endpoints
        self.asked: deque[tuple[int, str, bool, tuple[str, ...] | None]] = deque(
            maxlen=100
        )  # bytes, path, partial, hint
        self.told: dict[str, Served] = {}
        self._turn = itertools.count()

    @property
    def open(self) -> list[str]:
        """Decisions whose end was not told."""
        return [decision for decision, served in self.told.items() if not served.ends]

    def pick(
        self,
        body: bytes,
        *,
        path: str,
        headers: Mapping[str, str],
        partial: bool,
        allowed_addresses: tuple[str, ...] | None,
    ) -> Decision | Refusal:
        self.asked.append((len(body), path, partial, allowed_addresses))
        model = MODEL if not body and not partial else model_of(body, partial=partial)
        usable = [entry for entry in self.endpoints if holds(allowed_addresses, entry)]
        if model == LORA:
            usable = usable[:1] if usable[:1] == list(self.endpoints[:1]) else []
        match model:
            case None:
                return refusal(RefusalKind.UNREADABLE, "The body names no model.")
            case "busy":
                return refusal(RefusalKind.BUSY, "Everything is busy.", retry_after_s=2.5)
            case "empty":
                return refusal(RefusalKind.NO_CELL, "Nothing is ready.")
            case "demo" | "demo-lora" if not usable:
                return refusal(RefusalKind.NO_CELL, "Nothing of the subset is ready.")
            case "demo" | "demo-lora":
                return self._decision(usable)
            case _:
                return refusal(RefusalKind.UNKNOWN_MODEL, f"There is no model {model[:40]!r}.")

    def first_token(self, decision_id: str) -> None:
        self.told[decision_id].firsts += 1

    def served(self, decision_id: str, address: str | None, status: int, ending: Ending) -> None:
        self.told[decision_id].ends.append((address, status, ending))

    def addresses(self, cell_ids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cell for cell in cell_ids if cell in self.endpoints)

    def _decision(self, usable: list[str]) -> Decision:
        turn = next(self._turn)
        order = usable[turn % len(usable) :] + usable[: turn % len(usable)]
        self.told[str(turn)] = Served()
        return Decision(
            decision_id=str(turn),
            request_id="",
            policy="round_robin",
            cell_id=order[0],
            address=order[0],
            alternatives=tuple(order[1:]),
        )


def model_of(body: bytes, *, partial: bool) -> str | None:
    """The model that a body names; of the beginning of one, where it is written first."""
    if partial or len(body) > 100_000:
        beginning = body[:200]
        if beginning.startswith(b'{"model": "') and beginning.count(b'"') > 3:
            return beginning.split(b'"')[3].decode()
    if partial:
        return None
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return None
    model = decoded.get("model") if isinstance(decoded, dict) else None
    return model if isinstance(model, str) else None


def refusal(kind: RefusalKind, message: str, *, retry_after_s: float | None = None) -> Refusal:
    return Refusal(request_id="", kind=kind, message=message, retry_after_s=retry_after_s)
