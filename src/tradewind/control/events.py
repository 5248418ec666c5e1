"""What happened to the grid lately, for people: a bounded ring of life-cycle changes with time and cause."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_EVENTS = 1_000
MAX_CAUSE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEvent:
    """One change. `sequence` counts from 1 within one control process."""

    sequence: int
    at_unix_s: float
    name: str  # "cell.registered" | "cell.state" | "cell.conflict" | "drain.on" | "cell.forgotten" | ...
    cell_id: str
    before: str  # life-cycle state, or ""
    after: str
    cause: str


class EventRing:
    """Keeps the newest events; at the bound the oldest goes, and `dropped` counts it."""

    def __init__(self, unix_clock: Callable[[], float], *, bound: int = MAX_EVENTS) -> None:
        self._clock = unix_clock
        self._events: deque[ControlEvent] = deque(maxlen=bound)
        self._sequence = 0

    @property
    def dropped(self) -> int:
        return self._sequence - len(self._events)

    def add(self, name: str, cell_id: str, *, before: str = "", after: str = "", cause: str = "") -> ControlEvent:
        self._sequence += 1
        event = ControlEvent(
            sequence=self._sequence,
            at_unix_s=self._clock(),
            name=name,
            cell_id=cell_id,
            before=before,
            after=after,
            cause=cause[:MAX_CAUSE_CHARS],
        )
        self._events.append(event)
        return event

    def after(self, sequence: int, *, limit: int) -> list[ControlEvent]:
        """Events newer than `sequence`, oldest first; the newest `limit` of them."""
        newer = [event for event in self._events if event.sequence > sequence]
        return newer[-limit:]
