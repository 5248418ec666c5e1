"""The supervisor starts, restarts and ends children, and leaves no orphan."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.polling import until
from tests.support.processes import alive
from tradewind.runtime.children import describe_exit, tail, trim_log
from tradewind.runtime.supervise import ProcessSpec, RestartPolicy, StartFailed, Supervisor

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")
FAST = RestartPolicy(first_s=0.01, longest_s=0.05, give_up_after=3)


def file_ready(path: Path) -> Callable[[], Awaitable[str]]:
    async def ask() -> str:
        return "" if os.path.exists(path) else f"{path.name} is missing"  # noqa: ASYNC240

    return ask


def test_children_run_and_end_in_reverse_order(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with Supervisor(tmp_path) as supervisor:
            supervisor.add(ProcessSpec(name="first", argv=SLEEP))
            supervisor.add(ProcessSpec(name="second", argv=SLEEP, after=("first",)))
            await supervisor.start_all()
            pids = [supervisor.pid(name) for name in supervisor.names()]
        assert not any(alive(pid) for pid in pids if pid)
        return [event.process for event in supervisor.events if event.name == "stopped"]

    assert asyncio.run(main()) == ["second", "first"]


def test_crashed_child_is_restarted(tmp_path: Path) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path, policy=FAST) as supervisor:
            supervisor.add(ProcessSpec(name="one", argv=SLEEP))
            await supervisor.start_all()
            first = supervisor.pid("one")
            assert supervisor.kill("one") == first
            await until(lambda: supervisor.pid("one") not in {None, first})
            assert supervisor.status()[0]["restarts"] == 1
            assert supervisor.status()[0]["last_exit"] == "signal SIGKILL"

    asyncio.run(main())


def test_restarts_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path, policy=FAST) as supervisor:
            supervisor.add(ProcessSpec(name="bad", argv=(sys.executable, "-c", "raise SystemExit(3)")))
            await supervisor.start("bad")
            await until(lambda: any(event.name == "gave-up" for event in supervisor.events))
            assert supervisor.status()[0]["restarts"] == FAST.give_up_after

    asyncio.run(main())


def test_stopped_child_stays_down_until_started(tmp_path: Path) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path, policy=FAST) as supervisor:
            supervisor.add(ProcessSpec(name="one", argv=SLEEP))
            await supervisor.start("one")
            await supervisor.stop("one")
            assert supervisor.pid("one") is None
            await supervisor.start("one")
            assert supervisor.pid("one") is not None

    asyncio.run(main())


def test_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    stubborn = "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    stubborn += f"pathlib.Path({str(tmp_path / 'up')!r}).touch(); time.sleep(60)"

    async def main() -> None:
        async with Supervisor(tmp_path) as supervisor:
            argv = (sys.executable, "-c", stubborn)
            supervisor.add(ProcessSpec(name="one", argv=argv, ready=file_ready(tmp_path / "up"), grace_s=0.2))
            await supervisor.start("one")
            await supervisor.stop("one")
            assert supervisor.status()[0]["last_exit"] == "signal SIGKILL"

    asyncio.run(main())


def test_start_failure_names_the_log_and_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path) as supervisor:
            argv = (sys.executable, "-c", "raise SystemExit('no such port')")
            never = file_ready(tmp_path / "never")
            supervisor.add(ProcessSpec(name="bad", argv=argv, ready=never, restart="never"))
            await supervisor.start_all()

    with pytest.raises(StartFailed) as caught:
        asyncio.run(main())
    assert "bad.log" in str(caught.value)
    assert "no such port" in str(caught.value)


def test_not_ready_in_time_says_what_is_missing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path) as supervisor:
            never = file_ready(tmp_path / "never")
            supervisor.add(ProcessSpec(name="slow", argv=SLEEP, ready=never, ready_timeout_s=0.1))
            await supervisor.start_all()

    with pytest.raises(StartFailed, match=r"never is missing"):
        asyncio.run(main())


ORPHAN = """
import asyncio, sys
from pathlib import Path
from tradewind.runtime.supervise import ProcessSpec, Supervisor

async def main():
    async with Supervisor(Path(sys.argv[1])) as supervisor:
        supervisor.add(ProcessSpec(name="one", argv=(sys.executable, "-c", "import time; time.sleep(60)")))
        await supervisor.start_all()
        print(supervisor.pid("one"), flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the parent-death signal is Linux's")
def test_no_orphan_survives_a_killed_supervisor(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        assert alive(child)
        os.kill(supervisor.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not alive(child)


def test_log_is_bounded_and_keeps_its_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 100 + b"end")
    assert trim_log(log, limit_bytes=50)
    assert log.read_bytes() == b""
    assert (tmp_path / "a.log.1").read_bytes().endswith(b"end")
    assert not trim_log(log, limit_bytes=50)
    assert not trim_log(tmp_path / "none.log")


def test_fc_40_a_log_whose_end_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 100)
    (tmp_path / "a.log.1").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        trim_log(log, limit_bytes=50)
    assert log.read_bytes() == b""


def test_fc_40_children_are_kept_on_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Supervisor(tmp_path, policy=FAST) as supervisor:
            supervisor.add(ProcessSpec(name="one", argv=SLEEP))
            await supervisor.start_all()
            (tmp_path / "processes.draft").symlink_to("/dev/full")
            supervisor.kill("one")
            await until(lambda: supervisor.status()[0]["restarts"] == 1)
            supervisor.kill("one")
            await until(lambda: supervisor.status()[0]["restarts"] == 2)
            assert supervisor.pid("one") is not None

    asyncio.run(main())
    told = [record.getMessage() for record in caplog.records if "not_written" in record.getMessage()]
    assert len(told) == 1
    assert "No space" in told[0]


def test_fc_40_children_are_kept_where_no_log_can_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        state_dir = tmp_path / "state"
        async with Supervisor(state_dir, policy=FAST) as supervisor:
            supervisor.add(ProcessSpec(name="one", argv=SLEEP))
            await supervisor.start_all()
            shutil.rmtree(state_dir)
            state_dir.write_text("a file where the folder was")
            first = supervisor.pid("one")
            supervisor.kill("one")
            await until(lambda: supervisor.pid("one") not in {None, first})

    asyncio.run(main())
    assert "process.without_log" in caplog.text


def test_a_child_that_cannot_be_started_again_now_is_tried_later(tmp_path: Path) -> None:
    """What it needs is prepared before each start, and may be out of reach for a while."""
    calls: list[int] = []

    def prepare() -> None:
        calls.append(len(calls))
        if len(calls) in {2, 3}:
            raise OSError("the folder is gone")

    async def main() -> list[str]:
        async with Supervisor(tmp_path, policy=RestartPolicy(first_s=0.01, longest_s=0.05)) as supervisor:
            supervisor.add(ProcessSpec(name="one", argv=SLEEP, prepare=prepare))
            await supervisor.start_all()
            first = supervisor.pid("one")
            supervisor.kill("one")
            await until(lambda: supervisor.pid("one") not in {None, first})
            return [event.detail for event in supervisor.events if event.name == "not-started"]

    assert ["the folder is gone" in detail for detail in asyncio.run(main())] == [True, True]
    assert len(calls) == 4


def test_tail_and_exit_texts(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\nthree\n")
    assert tail(log, lines=2) == "two\nthree"
    assert tail(tmp_path / "none.log") == ""
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "signal SIGKILL"
