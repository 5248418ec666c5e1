"""Tells an exporter that serves old numbers from a GPU that is idle: frozen is only what stands still under work."""

from statistics import median

FROZEN_INTERVALS = 3.0
MIN_FROZEN_S = 5.0
UNKNOWN_INTERVAL_FROZEN_S = 65.0  # dcgm-exporter's default collect interval is 30 s
CHANGES_TO_THAW = 2
MAX_GAPS = 5
MAX_STEP_S = 10.0  # a longer hole between two looks is not counted as time under work


class FrozenWatch:
    """Fed once per page with its fingerprint and whether the engine worked since the last look."""

    def __init__(self) -> None:
        self._fingerprint: int | None = None
        self._still_s = 0.0  # how long the values stood still while the engine worked
        self._looked_s: float | None = None
        self._changed_s: float | None = None
        self._idle_since_change = False
        self._gaps_s: list[float] = []
        self._interval_s: float | None = None
        self._thaws = 0
        self.is_frozen = False

    @property
    def still_s(self) -> float:
        return self._still_s

    @property
    def interval_s(self) -> float | None:
        """How often values really change under work; None until that was seen three times."""
        return self._interval_s

    @property
    def limit_s(self) -> float:
        interval_s = self.interval_s
        return UNKNOWN_INTERVAL_FROZEN_S if interval_s is None else max(MIN_FROZEN_S, FROZEN_INTERVALS * interval_s)

    def look(self, fingerprint: int, *, engine_worked: bool, now_s: float) -> None:
        step_s = 0.0 if self._looked_s is None else min(MAX_STEP_S, now_s - self._looked_s)
        self._looked_s = now_s
        if fingerprint != self._fingerprint:
            self._fingerprint = fingerprint
            self._change(now_s)
        elif engine_worked:
            self._still_s += step_s
            if self._still_s > self.limit_s:
                self.is_frozen, self._thaws = True, 0
        if not engine_worked:
            self._idle_since_change = True

    def _change(self, now_s: float) -> None:
        if self._changed_s is not None and not self._idle_since_change and not self.is_frozen:
            self._gaps_s = [*self._gaps_s, now_s - self._changed_s][-MAX_GAPS:]
            self._interval_s = median(self._gaps_s) if len(self._gaps_s) >= 2 else None
        self._changed_s = now_s
        self._idle_since_change = False
        self._still_s = 0.0
        self._thaws += 1
        if self._thaws >= CHANGES_TO_THAW:
            self.is_frozen = False
