"""How much an engine's control group is throttled by its CPU limit, cgroup v1 and v2."""

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from tradewind.model.telemetry import HostReading

MAX_STAT_BYTES = 4096
PROC_ROOT = Path("/proc")
START_SLACK_S = 0.05  # a container's proxy starts a moment before its engine
LISTEN = "0A"  # a socket's state in /proc/net/tcp
ANY_V4, ANY_V6 = "0" * 8, "0" * 32

# What listens for somebody else, by the names in /proc/PID/comm: for engines whose pages hold no start time.
FORWARDERS = frozenset(
    [
        *("docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2", "passt", "passt.avx2"),
        *("gvproxy", "conmon", "systemd", "systemd-socket-", "kubectl", "ssh", "sshd", "sshd-session", "socat"),
        *("haproxy", "nginx", "envoy", "traefik", "caddy"),
    ]
)

Address = IPv4Address | IPv6Address


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


def find_throttle(host: str, port: int, *, start_time_s: float | None, proc: Path = PROC_ROOT) -> ThrottleReader | str:
    """The throttling of the engine that listens on a loopback address of this host, or why it is unknown.

    start_time_s: of the engine's process, as its own page gives it. What listens may be a forwarder in another group (a
    published container port, a tunnel), and only this tells for certain. Walks /proc once, so call it when an engine
    comes up and not at every scrape.
    """
    pids = _listeners(host, port, proc)
    if not pids:
        return "not on this host, or its process is not visible"
    name = _name(pids[0], proc)
    if start_time_s is not None:
        pids = [pid for pid in pids if _is_start(_start_time_s(pid, proc), start_time_s)]
    elif name in FORWARDERS:
        pids = []
    if not pids:
        return f"{name or 'the process'} listens on port {port} and is not the engine itself"
    stat_file = _stat_file(pids[0], proc)
    return stat_file if isinstance(stat_file, str) else ThrottleReader(stat_file)


def _stat_file(pid: int, proc: Path) -> Path | str:
    """The cpu.stat of the nearest group with a limit that a process is in, or why there is none. v2 has one hierarchy
    ("0::/path"), v1 one for the cpu controller."""
    reason = "its control group is not visible from here"
    for line in _lines(proc / str(pid) / "cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for mount in _mounts(proc, unified=not controllers):
            group = mount.folder(path)
            if group is None:
                continue
            reason = "the engine has no CPU limit"
            # The limit of a group that holds this one throttles this one.
            for folder in (group, *group.parents):
                if not folder.is_relative_to(mount.point):
                    break
                if _read_counts(folder / "cpu.stat") is not None:
                    return folder / "cpu.stat"
    return reason


class _Mount(NamedTuple):
    """A part of a group hierarchy that this process can see."""

    root: tuple[str, ...]  # which group of the hierarchy stands at `point`
    point: Path

    def folder(self, path: str) -> Path | None:
        """Where a group is seen; None for one outside: a container sees only its own, and its own is not another's."""
        parts = _parts(path)
        rest = parts[len(self.root) :]
        if parts[: len(self.root)] != self.root or ".." in rest:
            return None
        folder = self.point.joinpath(*rest)
        try:
            return folder if folder.is_dir() else None
        except OSError:  # not ours to look into
            return None


def _mounts(proc: Path, *, unified: bool) -> list[_Mount]:
    found = []
    for line in _lines(proc / "self" / "mountinfo"):
        mount, _, kind = line.partition(" - ")
        fields, (system, _, options) = mount.split(), (*kind.split(), "", "", "")[:3]
        wanted = system == "cgroup2" if unified else system == "cgroup" and "cpu" in options.split(",")
        if wanted and len(fields) > 4:
            found.append(_Mount(_parts(fields[3]), Path(fields[4])))
    return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _name(pid: int, proc: Path) -> str:
    return next(iter(_lines(proc / str(pid) / "comm")), "")


def _start_time_s(pid: int, proc: Path) -> float | None:
    """When a process was started, worked out as the client library of Prometheus does it."""
    fields = "".join(_lines(proc / str(pid) / "stat")).rpartition(")")[2].split()
    booted = next((line.split()[1] for line in _lines(proc / "stat") if line.startswith("btime ")), "")
    if len(fields) < 20 or not fields[19].isdigit() or not booted.isdigit():
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") + int(booted)


def _is_start(found_s: float | None, wanted_s: float) -> bool:
    return found_s is not None and abs(found_s - wanted_s) < START_SLACK_S


def _listeners(host: str, port: int, proc: Path) -> list[int]:
    """Every process that holds the socket which answers at a loopback address; several share it after a fork."""
    inodes = _listening_inodes(host, port, proc)
    if not inodes:
        return []
    wanted = {f"socket:[{inode}]" for inode in inodes}
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if _holds_any(proc / str(pid) / "fd", wanted)]


def _listening_inodes(host: str, port: int, proc: Path) -> set[str]:
    """The sockets bound to this very address, else those bound to all addresses: that is whom the kernel asks."""
    by_address: dict[str, set[str]] = {}
    for name in ("tcp", "tcp6"):
        for line in _lines(proc / "net" / name)[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN and fields[1].endswith(f":{port:04X}"):
                by_address.setdefault(fields[1].partition(":")[0], set()).add(fields[9])
    for address in _loopback(host):
        exact, everywhere = [_as_listed(address)], [ANY_V6]
        if address.version == 4:
            exact.append(_as_listed(ip_address(f"::ffff:{address}")))
            everywhere.append(ANY_V4)
        for names in (exact, everywhere):
            found = {inode for name in names for inode in by_address.get(name, ())}
            if found:
                return found
    return set()


def _loopback(host: str) -> list[Address]:
    names = ("127.0.0.1", "::1") if host == "localhost" else (host,)
    try:
        addresses = [ip_address(name) for name in names]
    except ValueError:
        return []
    return [address for address in addresses if address.is_loopback]


def _as_listed(address: Address) -> str:
    """An address as /proc/net shows it: words of 32 bits, each in the host's byte order."""
    packed = address.packed
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


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
