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
    a row show in the exporter's window count, where that is exported. Many exporters make both with a GPU's first XID:
    a GPU that was there without is one that had none."""

    def __init__(self) -> None:
        self._last: dict[GpuKey, tuple[int, float]] = {}  # code and count
        self._newest: int | None = None
        self._events = 0.0

    def update(self, xids: Mapping[GpuKey, tuple[int | None, float | None]]) -> tuple[int | None, float | None]:
        """Take (last code, count in the window) of each GPU, None where it has none. Returns the newest code and the
        number of XIDs seen since this watch began; both None while no GPU reports XIDs."""
        changed: list[int] = []
        counted = 0.0
        for key, (code, count) in xids.items():
            code_before, count_before = self._last.pop(key, (code or 0, count or 0.0))
            if code and code != code_before:
                changed.append(code)
            counted += max(0.0, (count or 0.0) - count_before)
            self._last[key] = (code_before if code is None else code, count_before if count is None else count)
        while len(self._last) > MAX_GPUS:
            self._last.pop(next(iter(self._last)))
        self._events += max(float(len(changed)), counted)
        if changed:
            self._newest = changed[-1]
        elif self._newest is None:
            self._newest = max((code for code, _ in xids.values() if code is not None), default=None)
        silent = all(code is None and count is None for code, count in xids.values())
        return (None, None) if silent else (self._newest, self._events)
