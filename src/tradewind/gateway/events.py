"""What the gateway decided and saw lately, for people: a bounded ring with wall-clock times."""

import logging
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from tradewind.model.routing import Event
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

MAX_EVENTS = 1_000
MAX_DETAIL_CHARS = 300


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it is shown. `sequence` counts from 1 within one gateway process."""

    sequence: int
    at_unix_s: float
    name: str
    cell_id: str | None
    detail: str


class EventRing:
    """Keeps the newest events; at the bound the oldest goes."""

    def __init__(self, unix_clock: Callable[[], float], *, bound: int = MAX_EVENTS) -> None:
        self.counts: dict[str, int] = {}  # by name; names are constants of the code, so their number is bounded
        self._clock = unix_clock
        self._rows: deque[EventRow] = deque(maxlen=bound)
        self._sequence = 0

    def take(self, events: Iterable[Event], *, now_s: float) -> None:
        """Add what happened; an event older than now keeps its distance in wall time."""
        for event in events:
            self.add(event.name, event.cell_id, event.detail, age_s=max(0.0, now_s - event.at_s))

    def add(self, name: str, cell_id: str | None, detail: str, *, age_s: float = 0.0) -> None:
        """Add one event and log it."""
        self._sequence += 1
        self.counts[name] = self.counts.get(name, 0) + 1
        detail = detail[:MAX_DETAIL_CHARS]
        at_unix_s = self._clock() - age_s
        self._rows.append(
            EventRow(sequence=self._sequence, at_unix_s=at_unix_s, name=name, cell_id=cell_id, detail=detail)
        )
        log_event(log, name, cell=cell_id or "-", detail=detail)

    def after(self, sequence: int, *, limit: int) -> list[EventRow]:
        """Events newer than `sequence`, oldest first; the newest `limit` of them."""
        newer = [row for row in self._rows if row.sequence > sequence]
        return newer[-limit:] if limit > 0 else []
