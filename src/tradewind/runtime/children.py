"""One child process: how it is started, where its output goes, and how it ends."""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tradewind.runtime.log import log_event

_log = logging.getLogger(__name__)

LOG_BYTES = 8 * 2**20  # per log file; one older file of this size is kept beside it
PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    """What a child runs before exec so that the kernel ends it with the thread that started it; Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded before the fork: a child must not take the loader's lock
    parent = os.getpid()

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was gone before the call
            os._exit(1)

    return before_exec


def spawn(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a child in its own session, output appended to `log`. Raises OSError.

    Call it from the main thread: the child ends with the thread that started it.
    """
    descriptor = _opened(log)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=dict(env),
            start_new_session=True,  # a terminal's Ctrl-C reaches the supervisor alone, which ends the rest in order
            preexec_fn=die_with_parent(),  # noqa: PLW1509 (it takes no lock: one system call, prepared before)
        )
    finally:
        os.close(descriptor)


def _opened(log: Path) -> int:
    """A descriptor to append to; where the disk refuses, the child runs and its words are lost."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        trim_log(log)
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        log_event(_log, "process.without_log", level=logging.ERROR, path=log, error=error)
        return os.open(os.devnull, os.O_WRONLY)


def trim_log(log: Path, *, limit_bytes: int = LOG_BYTES) -> bool:
    """When `log` has outgrown its limit, keep its end as NAME.1 and empty it in place; True when it did.

    The child keeps its descriptor: it appends, so its next line lands at the new end. Raises OSError when the end could
    not be kept, as on a full disk; the log is emptied all the same, and gives room.
    """
    try:
        size = log.stat().st_size
        if size <= limit_bytes:
            return False
        with log.open("r+b") as current:
            current.seek(size - limit_bytes)
            kept = current.read(limit_bytes)
            try:
                log.with_suffix(log.suffix + ".1").write_bytes(kept)
            finally:
                current.truncate(0)
    except FileNotFoundError:
        return False
    return True


def tail(log: Path, *, lines: int = 5, limit_bytes: int = 4096) -> str:
    """The last lines of a log, for an error message; "" when there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - limit_bytes))
            text = stream.read(limit_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def send(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a child that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def describe_exit(code: int) -> str:
    """ "exit code 3" or "signal SIGKILL"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
