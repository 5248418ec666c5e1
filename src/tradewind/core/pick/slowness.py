"""Fast: how much slower than its class a cell is right now, learned from each first token (pick study, section 3).

Slow rates of a class are another matter and another estimator: see calibration.py.
"""

from math import exp, inf, log

from tradewind.core.numbers import clip
from tradewind.core.pick.settings import LearningSettings


class Slowness:
    """l_i of one cell. `factor` is k: 1 while |l| is within the dead zone."""

    __slots__ = (
        "_base",
        "_log",
        "_settings",
        "_updated_s",
        "factor",
        "first_tokens",
        "heard_s",
        "inverse",
        "stale_s",
    )

    def __init__(self, settings: LearningSettings) -> None:
        self._settings = settings
        self._log = 0.0
        self._base = 0.0  # where a silent cell returns to
        self._updated_s = -inf
        self.heard_s = -inf
        self.stale_s = inf  # from here on `relax` has something to do
        self.factor = 1.0
        self.inverse = 1.0
        self.first_tokens = 0  # that have taught it

    def learn(self, *, observed_s: float, predicted_s: float, now_s: float, calm: bool = False) -> None:
        """A first token after `observed_s` of engine time where `predicted_s` was nominal; `calm`: it had no queue."""
        s = self._settings
        if not s.alpha:
            return
        self.first_tokens += 1
        if now_s > self.stale_s:
            self.relax(now_s)
        found = log((max(0.0, observed_s) + s.pad_s) / (predicted_s + s.pad_s))
        ratio = clip(found, -s.calm_clip if calm else -s.clip, s.clip)
        gain = min(1.0, predicted_s / s.full_s)
        # No accident makes an idle cell faster than it is: the first ones that come sooner than thought are believed.
        mean = 1.0 / self.first_tokens
        sure = mean if calm and mean > s.alpha and ratio < self._log else 0.0
        self._log += max(s.alpha, sure) * gain * (ratio - self._log)
        self._base += max(s.base_alpha, sure) * gain * (ratio - self._base)
        self.heard_s = max(self.heard_s, now_s)
        self._updated_s = self.heard_s + s.silence_s
        self.stale_s = self._updated_s
        self._apply()

    def relax(self, now_s: float) -> None:
        """Silence: back towards the base, so that a cell that nobody sends to is tried again."""
        held_s = now_s - self._updated_s
        if held_s <= 0:
            return
        self._log = self._base + (self._log - self._base) * exp(-held_s / self._settings.relax_s)
        self._updated_s = now_s
        self.stale_s = now_s + 0.5 if abs(self._log - self._base) > 1e-3 else inf
        self._apply()

    def explain(self, log_ratio: float) -> None:
        """Its class is thought exp(log_ratio) as slow as before: so much of what it has learned is not its own."""
        self._log = _nearer(self._log, log_ratio)
        self._base = _nearer(self._base, log_ratio)
        self._apply()

    def _apply(self) -> None:
        size = abs(self._log) - self._settings.dead_zone
        self.factor = 1.0 if size <= 0 else exp(size if self._log > 0 else -size)
        self.inverse = 1.0 / self.factor


def _nearer(value: float, by: float) -> float:
    """Nearer to 0 by as much as `by` has the same sign, never beyond it."""
    if value * by <= 0.0:
        return value
    return value - by if abs(by) < abs(value) else 0.0
