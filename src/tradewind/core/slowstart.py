"""Warm a returning cell by what it has served, not by the clock alone (recipe line 19)."""

from dataclasses import dataclass

from tradewind.core.settings import SlowStartSettings


@dataclass(slots=True)
class SlowStart:
    """Ramp of one cell, 0.1..1; 1 when no start is under way."""

    started_s: float | None = None
    served: int = 0
    last_served_s: float = 0.0
    linear_s: float | None = None  # a short clock ramp instead, for a cell whose cache is still warm

    def begin(self, now_s: float, *, linear_s: float | None = None) -> None:
        """Starts at the floor; `linear_s` ramps by clock over that time."""
        self.started_s, self.last_served_s = now_s, now_s
        self.served, self.linear_s = 0, linear_s

    def on_served(self, now_s: float) -> None:
        """Counts a request that the cell has finished."""
        if self.started_s is not None:
            self.served += 1
            self.last_served_s = now_s

    def value(self, now_s: float, settings: SlowStartSettings, *, reuse_ratio: float | None) -> float:
        """The factor at `now_s`. `reuse_ratio`: share of prompt tokens served from prefix caches; None unknown."""
        if self.started_s is None:
            return 1.0
        elapsed_s = now_s - self.started_s
        reached = self.served / settings.served_full
        if self.linear_s is not None:
            reached = max(reached, elapsed_s / self.linear_s)
        elif reuse_ratio is not None and reuse_ratio < settings.low_reuse:
            reached = max(reached, elapsed_s / settings.low_reuse_s)
        idle_s = now_s - self.last_served_s
        if reached >= 1.0 or idle_s >= settings.idle_done_s or elapsed_s >= 2 * settings.idle_done_s:
            self.started_s = None
            return 1.0
        return max(settings.floor, reached)
