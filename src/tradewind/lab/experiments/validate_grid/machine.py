"""How busy a machine was beside a live run."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Moment:
    """Counters at one time."""

    at_s: float
    busy_s: float | None  # of all cores; None where the kernel does not say
    load: float


def now() -> Moment:
    """The counters of this moment."""
    try:
        fields = [int(text) for text in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    except (OSError, ValueError):
        return Moment(time.monotonic(), None, os.getloadavg()[0])
    idle = fields[3] + fields[4]  # idle, iowait
    return Moment(time.monotonic(), (sum(fields[:8]) - idle) / _TICKS_PER_S, os.getloadavg()[0])


def busy_ratio(before: Moment, after: Moment) -> float | None:
    """Share of all cores' time that somebody used between two moments."""
    if before.busy_s is None or after.busy_s is None:
        return None
    return (after.busy_s - before.busy_s) / ((after.at_s - before.at_s) * (os.cpu_count() or 1))
