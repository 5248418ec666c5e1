"""Fault counters of several GPUs as one that only rises: a new fault is never hidden by another GPU's old one."""

from collections.abc import Mapping

GpuKey = tuple[str, str]  # (UUID, MIG instance or "")

MAX_GPUS = 1024  # remembered; beyond it the oldest are forgotten


class FaultCounter:
    """Starts at the largest counter seen first; then adds what any GPU adds. A GPU that goes missing, comes back or is
    reset adds nothing."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] = {}
        self._total: float | None = None

    def update(self, counters: Mapping[tuple[str, ...], float]) -> float:
        """Take the newest counters (at least one) by GPU, or by GPU and kind; returns the total."""
        if self._total is None:
            self._total = max(counters.values())
        for key, value in counters.items():
            self._total += max(0.0, value - self._last.get(key, value))
            self._last.pop(key, None)
            self._last[key] = value
        while len(self._last) > MAX_GPUS:
            self._last.pop(next(iter(self._last)))
        return self._total


class XidWatch:
    """XIDs as events. The exporter's gauge holds the *last* code for ever, so only a change is news; two equal codes in
    a row show in the exporter's window count, where that is exported."""

    def __init__(self) -> None:
        self._codes: dict[GpuKey, int] = {}
        self._window = FaultCounter()
        self._window_last: float | None = None
        self._newest: int | None = None
        self._events = 0.0

    def update(self, xids: Mapping[GpuKey, tuple[int | None, float | None]]) -> tuple[int | None, float | None]:
        """Take (last code, count in the window) per GPU. Returns the newest code and the number of XIDs seen since this
        watch began; both None while no GPU reports XIDs."""
        codes = {key: code for key, (code, _) in xids.items() if code is not None}
        counts: dict[tuple[str, ...], float] = {key: count for key, (_, count) in xids.items() if count is not None}
        if not codes and not counts:
            return None, None
        changed = [key for key, code in codes.items() if code and self._codes.get(key, code) != code]
        counted = 0.0
        if counts:
            window = self._window.update(counts)
            counted = window - self._window_last if self._window_last is not None else 0.0
            self._window_last = window
        self._events += max(float(len(changed)), counted)
        if changed:
            self._newest = codes[changed[-1]]
        elif self._newest is None:
            self._newest = max(codes.values(), default=None)
        self._codes.update(codes)
        return self._newest, self._events
