"""Local ejection: a cell that this gateway cannot reach gets nothing from it, whatever the view says."""

import math
from collections import deque
from dataclasses import dataclass, field

from tradewind.core.settings import EjectionSettings


@dataclass(slots=True)
class EjectionTrack:
    """This gateway's own reachability evidence of one cell."""

    unreachable: int = 0  # consecutive negative readings of the gateway's probe
    failures: deque[float] = field(default_factory=lambda: deque(maxlen=16))
    doubt_s: float = -math.inf  # newest attempt that was retried elsewhere, for whatever reason
    ejected_s: float | None = None
    hold_s: float = 0.0
    returned_s: float = -math.inf
    reason: str = ""

    def on_path(self, *, reachable: bool | None) -> None:
        """The gateway's own probe of the path."""
        if reachable is None:
            return
        self.unreachable = 0 if reachable else self.unreachable + 1

    def on_unreached(self, now_s: float) -> None:
        """A request that found no connection, or was reset before an answer."""
        self.failures.append(now_s)

    def on_retried(self, now_s: float) -> None:
        """An attempt here found no connection and was served elsewhere: it supports other evidence."""
        self.doubt_s = now_s

    def on_answered(self) -> None:
        """Any answer at all proves that the cell is reached."""
        self.failures.clear()

    def suspect(self, settings: EjectionSettings, now_s: float) -> str:
        """Why the cell should be out now; empty when it should not."""
        recent = sum(1 for at_s in self.failures if now_s - at_s <= settings.window_s)
        doubted = recent or now_s - self.doubt_s <= settings.window_s
        if self.unreachable >= settings.unreachable_readings or (self.unreachable and doubted):
            return "connection refused"
        if recent >= settings.failures:
            return f"{recent} requests unanswered"
        return ""

    def update(self, settings: EjectionSettings, now_s: float, *, allowed: bool) -> bool:
        """Ejects or re-admits; True on a change. `allowed` False (observer cut off): nobody is ejected."""
        if self.ejected_s is None:
            self.reason = self.suspect(settings, now_s) if allowed else ""
            if not self.reason:
                return False
            again = now_s - self.returned_s < settings.forgive_s
            self.hold_s = min(settings.hold_max_s, 2 * self.hold_s) if again else settings.hold_s
            self.ejected_s = now_s
            return True
        waited = now_s - self.ejected_s >= self.hold_s
        if allowed and (self.unreachable or not waited):
            return False
        self.ejected_s, self.returned_s = None, now_s
        self.failures.clear()
        return True

    @property
    def quiet(self) -> bool:
        """Nothing to watch."""
        return self.ejected_s is None and not self.unreachable and not self.failures

    def forget(self) -> None:
        """A new engine starts with a clean record."""
        self.unreachable, self.hold_s, self.ejected_s = 0, 0.0, None
        self.failures.clear()
