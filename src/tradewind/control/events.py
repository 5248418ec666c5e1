"""What happened to the grid lately, for people: a bounded ring of life-cycle changes with time and cause."""

import logging
from collections import deque
from collections.abc import Callable

from tradewind.control.api import EventRow
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

MAX_EVENTS = 1_000
MAX_DETAIL_CHARS = 300


class EventRing:
    """Keeps the newest events and logs each; at the bound the oldest goes, and `dropped` counts it."""

    def __init__(self, unix_clock: Callable[[], float], *, bound: int = MAX_EVENTS) -> None:
        self._clock = unix_clock
        self._rows: deque[EventRow] = deque(maxlen=bound)
        self._sequence = 0

    @property
    def last(self) -> int:
        """Sequence of the newest event, 0 before the first."""
        return self._sequence

    @property
    def dropped(self) -> int:
        return self._sequence - len(self._rows)

    def add(self, name: str, cell_id: str | None, detail: str, *, age_s: float = 0.0) -> None:
        """Add what happened `age_s` ago."""
        self._sequence += 1
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
