"""Requests under which engines died: their like is kept from the engines for a while.

Two deaths under one request are the request's doing or bad luck: whoever waited beside a killer on two engines has two
deaths as well. So the first quarantine is short, and each further incident of the same request doubles it.
"""

from collections import OrderedDict
from dataclasses import dataclass

MAX_REQUESTS = 1_024  # beyond it the one that was quarantined longest ago is let go
FORGOTTEN_AFTER = 8.0  # times its own length: after so long without another incident a request begins anew


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineSettings:
    """Times in seconds."""

    deaths: int = 2  # of engines under one request
    first_s: float = 60.0  # 0 = off
    longest_s: float = 3_600.0


DEFAULT_QUARANTINE = QuarantineSettings()


@dataclass(slots=True)
class _Held:
    until_s: float
    length_s: float


class Quarantine:
    """By fingerprint: any number that equal requests share. Used by one thread; `now_s` is monotonic."""

    def __init__(self, settings: QuarantineSettings) -> None:
        self.settings = settings
        self.incidents = 0  # requests that ended engines, for metrics
        self._held: OrderedDict[int, _Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def observe(self, fingerprint: int, deaths: int, now_s: float) -> bool:
        """The request is over, and so many engines died under it; whether its like is now in quarantine by that."""
        settings = self.settings
        if deaths < settings.deaths or settings.first_s <= 0:
            return False
        self.incidents += 1
        held = self._held.pop(fingerprint, None)
        length_s = settings.first_s
        if held is not None and now_s < held.until_s + FORGOTTEN_AFTER * held.length_s:
            length_s = min(settings.longest_s, 2 * held.length_s)
        self._held[fingerprint] = _Held(now_s + length_s, length_s)
        if len(self._held) > MAX_REQUESTS:
            self._held.popitem(last=False)
        return True

    def left_s(self, fingerprint: int, now_s: float) -> float:
        """How long a request of this fingerprint must not reach an engine; 0 = it may now."""
        held = self._held.get(fingerprint)
        return max(0.0, held.until_s - now_s) if held is not None else 0.0
