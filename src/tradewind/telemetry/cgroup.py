"""How much an engine's control group is throttled by its CPU limit, cgroup v1 and v2."""

from pathlib import Path

from tradewind.model.telemetry import HostReading

MAX_STAT_BYTES = 4096
CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")


class ThrottleReader:
    """Reads cpu.stat of one group; two reads make one ratio."""

    def __init__(self, stat_file: Path) -> None:
        self._stat_file = stat_file
        self._last: tuple[int, int] | None = None

    def read(self) -> HostReading | None:
        """The share of CPU periods since the last call that were throttled; None when there is no limit, no period
        has passed, or the file cannot be read."""
        counts = _read_counts(self._stat_file)
        last, self._last = self._last, counts
        if counts is None or last is None:
            return None
        periods, throttled = counts[0] - last[0], counts[1] - last[1]
        if periods <= 0 or throttled < 0:
            return None
        return HostReading(cpu_throttled_ratio=min(1.0, throttled / periods))


def find_stat_file(pid: int, *, proc: Path = PROC_ROOT, cgroup: Path = CGROUP_ROOT) -> Path | None:
    """The cpu.stat of a process's group, or None. v2 has one hierarchy ("0::/path"), v1 one for the cpu controller."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        roots = [cgroup] if not controllers else [cgroup / controllers, cgroup / "cpu", cgroup / "cpu,cpuacct"]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in roots:
            # Inside a container the path is the host's; the group's own file then is at the root.
            for stat_file in (root / path.lstrip("/") / "cpu.stat", root / "cpu.stat"):
                if _read_counts(stat_file) is not None:
                    return stat_file
    return None


def find_listener(port: int, *, proc: Path = PROC_ROOT) -> int | None:
    """The pid of a process of this host that listens on a TCP port, or None if it cannot be seen.

    Walks /proc once, so call it when an engine comes up and not at every scrape.
    """
    inodes = _listening_inodes(port, proc)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for entry in sorted(proc.iterdir()):
        if entry.name.isdigit() and _holds_any(entry / "fd", wanted):
            return int(entry.name)
    return None


def _listening_inodes(port: int, proc: Path) -> set[str]:
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            listening = len(fields) > 9 and fields[3] == "0A"
            if listening and fields[1].rpartition(":")[2] == f"{port:04X}":
                found.add(fields[9])
    return found


def _holds_any(descriptors: Path, wanted: set[str]) -> bool:
    try:
        return any(_link(descriptor) in wanted for descriptor in descriptors.iterdir())
    except OSError:
        return False


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


def _read_counts(stat_file: Path) -> tuple[int, int] | None:
    """(periods, throttled periods), or None if there is no CPU limit or no such file."""
    try:
        with stat_file.open(encoding="ascii", errors="replace") as stream:
            text = stream.read(MAX_STAT_BYTES)
    except OSError:
        return None
    values = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    periods, throttled = values.get("nr_periods", ""), values.get("nr_throttled", "")
    if not periods.strip().isdigit() or not throttled.strip().isdigit() or int(periods) == 0:
        return None
    return int(periods), int(throttled)
