"""`tradewind lab run` that is interrupted or killed leaves no worker behind, and says how to go on."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# A suite that runs in the background of a script has SIGINT ignored, and children inherit that.
START = "import signal as s; s.signal(s.SIGINT, s.default_int_handler); from tradewind.cli.main import main; main()"


def living(group: int) -> list[int]:
    """Processes of a group that have not ended; a dead one that nobody has read does not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "not in time"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_a_run(tmp_path: Path, number: signal.Signals) -> None:
    """After SIGINT the run waited for trials of minutes, without a word; after SIGTERM the workers went on alone."""
    command = [sys.executable, "-c", START, "lab", "run", "pick", "--jobs", "2", "--results", str(tmp_path)]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(lambda: len(living(run.pid)) >= 5)  # itself, two servants of multiprocessing, two workers
        run.send_signal(number)
        said = run.communicate(timeout=20)[1].decode()
        wait_for(lambda: not living(run.pid), within_s=10.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
    if number == signal.SIGINT:
        assert run.returncode == 130
        assert "the same command goes on from there" in said
        assert "Traceback" not in said
