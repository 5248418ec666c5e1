"""From factors to integer weights relative to the best cell, and whether the change is worth a push (lines 9-11)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.core.settings import ProjectionSettings


def attraction(
    *, pressure: float, speed: float, capacity: float, ramp: float, backpressure: float, gamma: float, exponent: float
) -> float:
    """y = capacity * speed^exponent * (1 - p)^gamma * ramp * backpressure; finite and >= 0."""
    room = 1.0 - min(1.0, max(0.0, pressure))
    return capacity * math.pow(speed, exponent) * math.pow(room, gamma) * ramp * backpressure


def weight_of(value: float, best: float, settings: ProjectionSettings) -> int:
    """1..134: the best of the pool always has 134, and nobody is at 0."""
    if not best > 0 or not math.isfinite(value):
        return settings.best
    return max(1, min(settings.best, round(settings.best * value / best)))


@dataclass(slots=True)
class PushGate:
    """Dead band: small movements wait, at most `refresh_s`; membership, verdicts and alerts do not."""

    settings: ProjectionSettings
    pushed: dict[str, int] = field(default_factory=dict)
    pushed_s: float = -math.inf

    def decide(self, weights: Mapping[str, int], now_s: float, *, urgent: bool) -> bool:
        """True when `weights` (routed cells only) should replace what was pushed last; remembers them then."""
        if weights == self.pushed:
            return False
        due = urgent or now_s - self.pushed_s >= self.settings.refresh_s
        if due or self._moved(weights):
            self.pushed, self.pushed_s = dict(weights), now_s
            return True
        return False

    def _moved(self, weights: Mapping[str, int]) -> bool:
        if len(weights) != len(self.pushed):
            return True
        band = self.settings.dead_band
        for cell_id, weight in weights.items():
            before = self.pushed.get(cell_id)
            if before is None or abs(weight - before) >= band * before:
                return True
        return False
