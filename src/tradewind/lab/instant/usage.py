"""CPU and memory of a process, from /proc."""

import contextlib
import os
import resource
import statistics
from collections.abc import Sequence
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = resource.getpagesize()


def cpu_s(pid: int) -> float:
    """User plus system time of all threads of a process, in seconds; resolution 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def family(pid: int) -> list[int]:
    """A process and all that descend from it; those that ended meanwhile are left out."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [one for child in task.read_text().split() for one in family(int(child))]
    return found


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def pin(pid: int, core: int) -> None:
    """Keep all threads of a process on one core, where the machine has it."""
    if (os.cpu_count() or 1) > core:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {core})


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]
