"""CPU throttling of control groups, v1 and v2, on a made-up file system."""

import os
import socket
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from tradewind.telemetry.cgroup import ThrottleReader, find_throttle


def write_stat(path: Path, periods: int, throttled: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"usage_usec 5\nnr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 9\n")
    return path


def test_two_reads_make_a_ratio(tmp_path: Path) -> None:
    stat = write_stat(tmp_path / "cpu.stat", 100, 10)
    reader = ThrottleReader(stat)
    assert reader.read() is None
    write_stat(stat, 110, 15)
    reading = reader.read()
    assert reading is not None
    assert reading.cpu_throttled_ratio == 0.5
    assert reader.read() is None, "no period has passed"
    write_stat(stat, 5, 0)
    assert reader.read() is None, "a counter that fell belongs to another group"


@pytest.mark.parametrize(
    "text", ["", "usage_usec 5\n", "nr_periods 0\nnr_throttled 0\n", "nr_periods x\n", "\x00" * 99]
)
def test_no_limit_or_nonsense_is_unknown(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "cpu.stat"
    stat.write_text(text)
    reader = ThrottleReader(stat)
    assert (reader.read(), reader.read()) == (None, None)
    assert ThrottleReader(tmp_path / "absent").read() is None


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
BOOTED_S = 1_700_000_000
MAPPED = "0000000000000000FFFF00000100007F"  # ::ffff:127.0.0.1


class Host:
    """A made-up /proc and its group hierarchies."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.sockets: list[tuple[str, str]] = []
        self.mounts: list[str] = []
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "self").mkdir()
        (self.proc / "stat").write_text(f"cpu 1 2 3\nbtime {BOOTED_S}\n")

    def mount(self, below: str = "", *, root: str = "/", kind: str = "cgroup2 cgroup2 rw") -> None:
        self.mounts.append(f"31 23 0:28 {root} {self.cgroup / below} rw,nosuid - {kind}\n")
        (self.proc / "self" / "mountinfo").write_text("1 0 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(self.mounts))

    def listen(self, address: str, inode: str, *, state: str = "0A") -> None:
        self.sockets.append((address, inode))
        for name, length in (("tcp", 13), ("tcp6", 37)):
            rows = [
                ROW.format(address=where, state=state, inode=i) for where, i in self.sockets if len(where) == length
            ]
            (self.proc / "net" / name).write_text(HEAD + "".join(rows))

    def process(self, pid: int, inode: str, *, group: str, name: str = "python3", started_s: float = 100.0) -> None:
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(f"9:memory:/elsewhere\n{group}\n")
        ticks = round(started_s * os.sysconf("SC_CLK_TCK"))
        (folder / "stat").write_text(f"{pid} (a) b) S {' 0' * 18} {ticks} 0 0\n")

    def find(self, host: str = "127.0.0.1", *, start_time_s: float | None = None) -> ThrottleReader | str:
        return find_throttle(host, 8080, start_time_s=start_time_s, proc=self.proc)

    def ratio(self, stat_file: Path, host: str = "127.0.0.1", *, start_time_s: float | None = None) -> float | None:
        """What is read once `stat_file` has moved by 10 periods, 5 of them throttled."""
        write_stat(stat_file, 100, 10)
        found = self.find(host, start_time_s=start_time_s)
        if isinstance(found, str):
            return None
        found.read()
        write_stat(stat_file, 110, 15)
        reading = found.read()
        return None if reading is None else reading.cpu_throttled_ratio


@pytest.fixture
def host(tmp_path: Path) -> Host:
    made = Host(tmp_path)
    made.listen("0100007F:1F90", "111")
    return made


@pytest.mark.parametrize(
    ("line", "kind", "below", "root", "where"),
    [
        ("0::/kube/pod", "cgroup2 cgroup2 rw", "", "/", "kube/pod/cpu.stat"),
        ("4:cpu,cpuacct:/kube/pod", "cgroup cgroup rw,cpu,cpuacct", "c", "/", "c/kube/pod/cpu.stat"),
        ("4:cpu:/kube/pod", "cgroup cgroup rw,cpu", "cpu", "/", "cpu/kube/pod/cpu.stat"),
        ("0::/", "cgroup2 cgroup2 rw", "", "/", "cpu.stat"),  # both in one container
        ("4:cpu:/docker/us", "cgroup cgroup rw,cpu", "", "/docker/us", "cpu.stat"),  # the same, the host's names
        ("0::/kube/pod", "cgroup2 cgroup2 rw", "", "/", "kube/cpu.stat"),  # the limit of a group above
    ],
)
def test_the_group_of_an_engine(host: Host, line: str, kind: str, below: str, root: str, where: str) -> None:
    host.mount(below, root=root, kind=kind)
    host.process(7, "111", group=line)
    if root == "/":
        (host.cgroup / below / line.rpartition(":")[2].strip("/")).mkdir(parents=True, exist_ok=True)
    assert host.ratio(host.cgroup / where) == 0.5


@pytest.mark.parametrize(
    ("line", "kind", "root"),
    [
        ("0::/host/path/not/in/this/container", "cgroup2 cgroup2 rw", "/"),
        ("0::/../engine", "cgroup2 cgroup2 rw", "/"),  # the agent in a container, the engine in another
        ("0::/../engine", "cgroup2 cgroup2 rw", "/../.."),
        ("0::/" + "x" * 300, "cgroup2 cgroup2 rw", "/"),  # no name that a file can have
        ("4:cpu:/docker/engine", "cgroup cgroup rw,cpu", "/docker/agent"),
        ("4:cpu:/docker/engine", "cgroup2 cgroup2 rw", "/"),
    ],
)
def test_the_agents_own_throttling_is_not_the_engines(host: Host, line: str, kind: str, root: str) -> None:
    host.mount(root=root, kind=kind)
    host.process(7, "111", group=line)
    assert host.ratio(host.cgroup / "cpu.stat") is None
    assert host.find() == "its control group is not visible from here"


def test_a_group_without_a_limit_says_so(host: Host) -> None:
    host.mount()
    host.process(7, "111", group="0::/free")
    (host.cgroup / "free").mkdir(parents=True)
    assert host.find() == "the engine has no CPU limit"


@pytest.mark.parametrize("name", ["docker-proxy", "ssh", "systemd-socket-"])
def test_a_forwarder_is_not_the_engine(host: Host, name: str) -> None:
    host.mount()
    host.process(7, "111", group="0::/", name=name)
    write_stat(host.cgroup / "cpu.stat", 100, 10)
    assert host.find() == f"{name} listens on port 8080 and is not the engine itself"


def test_the_engines_own_start_time_tells_it_from_what_listens_for_it(host: Host) -> None:
    host.mount()
    host.process(7, "111", group="0::/", name="my-relay", started_s=100.0)
    stat = host.cgroup / "cpu.stat"
    assert host.ratio(stat, start_time_s=BOOTED_S + 100.0) == 0.5
    assert host.ratio(stat, start_time_s=BOOTED_S + 100.4) is None, "the engine was started just after its proxy"
    assert host.find(start_time_s=5.0) == "my-relay listens on port 8080 and is not the engine itself"


def test_of_several_processes_that_hold_the_socket_the_engine_is_taken(host: Host) -> None:
    host.mount()
    host.process(7, "111", group="0::/launcher", started_s=100.0)
    host.process(12, "111", group="0::/server", started_s=103.0)
    write_stat(host.cgroup / "launcher" / "cpu.stat", 1, 0)
    assert host.ratio(host.cgroup / "server" / "cpu.stat", start_time_s=BOOTED_S + 103.0) == 0.5


@pytest.mark.parametrize(
    ("asked", "bound", "seen"),
    [
        ("127.0.0.1", "0100007F", True),
        ("127.0.0.1", "00000000", True),
        ("127.0.0.1", "0" * 32, True),
        ("127.0.0.1", MAPPED, True),
        ("localhost", "0100007F", True),
        ("::1", "0" * 24 + "01000000", True),
        ("127.0.0.1", "0500000A", False),  # 10.0.0.5: another program on the same port
        ("::1", "0100007F", False),
        ("10.0.0.5", "00000000", False),
        ("engine.example", "00000000", False),
    ],
)
def test_only_what_listens_at_the_engines_address(tmp_path: Path, asked: str, bound: str, seen: bool) -> None:
    host = Host(tmp_path)
    host.mount()
    host.listen(f"{bound}:1F90", "111")
    host.process(7, "111", group="0::/")
    assert (host.ratio(host.cgroup / "cpu.stat", asked) is not None) is seen


def test_the_most_special_address_answers(host: Host) -> None:
    host.mount()
    host.listen("00000000:1F90", "222")
    host.process(6, "222", group="0::/other")
    host.process(7, "111", group="0::/engine")
    write_stat(host.cgroup / "other" / "cpu.stat", 1, 0)
    assert host.ratio(host.cgroup / "engine" / "cpu.stat") == 0.5


def test_other_ports_and_open_connections_are_no_listeners(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.find() == "not on this host, or its process is not visible"
    host.listen("0100007F:1F91", "111")
    host.process(7, "111", group="0::/")
    assert host.find() == "not on this host, or its process is not visible"
    host.listen("0100007F:1F90", "111", state="01")
    assert host.find() == "not on this host, or its process is not visible"


def test_a_process_of_this_machine_is_found_by_its_own_start_time() -> None:
    """The kernel's own tables, against the client library that engines use."""
    started_s = next(
        sample.value
        for family in ProcessCollector(registry=None).collect()
        for sample in family.samples
        if sample.name == "process_start_time_seconds"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        mine = find_throttle("127.0.0.1", port, start_time_s=started_s)
        other = find_throttle("127.0.0.1", port, start_time_s=started_s - 1.0)
    assert isinstance(mine, ThrottleReader) or mine in (
        "the engine has no CPU limit",
        "its control group is not visible from here",
    )
    assert isinstance(other, str)
    assert "is not the engine itself" in other
