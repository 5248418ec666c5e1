"""Load in steps of two, and what is kept for each: weights, and how long requests took under physics."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2

from tradewind.core.numbers import clip
from tradewind.core.tuner.compare import quantile
from tradewind.core.tuner.settings import RegimeSettings
from tradewind.model.tuning import Weights

NUMBERS = (-20, 30)  # a request in twelve days .. a thousand million in a second
_INNER = 0.8  # of a window's decisions lie between its 10 % and its 90 % quantile


@dataclass(slots=True)
class Regime:
    """What is known of one load. None = not known."""

    weights: Weights | None = None  # accepted, or put, here
    physics_p95_s: float | None = None  # of E2E
    barred: bool = False  # what left physics broke a guard here: only the way back is open, until the world changes
    recent_s: deque[float] = field(default_factory=deque)  # E2E under physics

    def under_physics(self, e2e_s: float, settings: RegimeSettings) -> None:
        """A request ended while nothing but physics was in force."""
        self.recent_s.append(e2e_s)
        if len(self.recent_s) > settings.physics_window:
            self.recent_s.popleft()

    def refer(self, settings: RegimeSettings) -> None:
        """Takes the latest times as the reference, if they are enough."""
        if len(self.recent_s) >= settings.physics_least:
            self.physics_p95_s = quantile(self.recent_s, 0.95)


class LoadSteps:
    """Which regime it is, from when requests were sent; hysteresis keeps it where it is in doubt."""

    def __init__(self, settings: RegimeSettings, number: int | None = None) -> None:
        self._settings = settings
        self._sent_s: deque[float] = deque(maxlen=settings.window)
        self._until_reading = settings.each
        self._elsewhere = 0
        self.number = number  # None until there is a first reading
        self.rate: float | None = None  # requests per second

    def add(self, dispatched_s: float) -> bool:
        """Whether the regime is another one now."""
        self._sent_s.append(dispatched_s)
        self._until_reading -= 1
        if self._until_reading > 0 or len(self._sent_s) < self._settings.window:
            return False
        self._until_reading = self._settings.each
        self.rate = _rate(self._sent_s)
        return self.rate is not None and self._read(log2(self.rate))

    def _read(self, level: float) -> bool:
        number = int(clip(round(level), *NUMBERS))
        if self.number is None:
            self.number = number
            return True
        if number == self.number or abs(level - self.number) <= self._settings.beyond:
            self._elsewhere = 0
            return False
        self._elsewhere += 1
        if self._elsewhere < self._settings.readings:
            return False
        self.number, self._elsewhere = number, 0
        return True


def _rate(sent_s: Sequence[float]) -> float | None:
    """By the inner part: one request that took an hour says nothing of the load."""
    ordered = sorted(sent_s)
    count = len(ordered)
    low, high = int((1 - _INNER) / 2 * count), int((1 + _INNER) / 2 * count) - 1
    span_s = ordered[high] - ordered[low]
    return (high - low) / span_s if span_s > 1e-6 else None
