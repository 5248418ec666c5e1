"""429 and 503 from an engine mean "less, please", never "broken" (recipe line 16)."""

import math
from dataclasses import dataclass, field

from tradewind.core.numbers import known
from tradewind.core.settings import BackpressureSettings


@dataclass(slots=True)
class Backpressure:
    """bp of one cell: halved per refusal of the last second, held for Retry-After, then growing back."""

    value: float = 1.0
    held_until_s: float = -math.inf
    seen_s: float = field(default=-math.inf)
    grown_s: float = field(default=-math.inf)

    def on_refused(self, retry_after_s: float | None, settings: BackpressureSettings, now_s: float) -> None:
        """One 429 or 503. A later, shorter Retry-After never shortens the hold."""
        self.value = max(settings.floor, self.value * settings.factor)
        wait_s = known(retry_after_s)
        hold_s = settings.window_s if wait_s is None else min(settings.max_hold_s, max(settings.window_s, wait_s))
        self.held_until_s = max(self.held_until_s, now_s + hold_s)
        self.seen_s = now_s

    def current(self, settings: BackpressureSettings, now_s: float) -> float:
        """The factor at `now_s`, growing by `recovery_per_s` for each second since the hold ended."""
        if self.value >= 1.0:
            return 1.0
        since_s = max(self.held_until_s, self.grown_s)
        if now_s > since_s:
            self.value = min(1.0, self.value * settings.recovery_per_s ** (now_s - since_s))
            self.grown_s = now_s
        return self.value
