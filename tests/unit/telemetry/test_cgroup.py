"""CPU throttling of control groups, v1 and v2, on a made-up file system."""

from pathlib import Path

import pytest

from tradewind.telemetry.cgroup import ThrottleReader, find_listener, find_stat_file


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


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("0::/kube/pod", "kube/pod/cpu.stat"),
        ("4:cpu,cpuacct:/kube/pod", "cpu,cpuacct/kube/pod/cpu.stat"),
        ("4:cpu:/kube/pod", "cpu/kube/pod/cpu.stat"),
        ("0::/host/path/not/in/this/container", "cpu.stat"),
    ],
)
def test_the_group_of_a_process(tmp_path: Path, line: str, where: str) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"9:memory:/elsewhere\n{line}\n")
    expected = write_stat(cgroup / where, 3, 1)
    assert find_stat_file(7, proc=proc, cgroup=cgroup) == expected
    assert find_stat_file(8, proc=proc, cgroup=cgroup) is None


def test_the_listener_of_a_port(tmp_path: Path) -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = (
        "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
    )
    (tmp_path / "net").mkdir()
    rows = [("1F90", "0A", "111"), ("1F91", "0A", "222"), ("1F90", "01", "333")]
    text = head + "".join(row.format(port=port, state=state, inode=inode) for port, state, inode in rows)
    (tmp_path / "net" / "tcp").write_text(text)
    for pid, inode in ((10, "222"), (11, "333"), (12, "111")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(f"socket:[{inode}]")
    (tmp_path / "self").mkdir()
    assert find_listener(8080, proc=tmp_path) == 12
    assert find_listener(8082, proc=tmp_path) is None
    assert find_listener(8080, proc=tmp_path / "nothing") is None
