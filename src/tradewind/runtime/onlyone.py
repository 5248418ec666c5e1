"""One process at a time for what lies in a folder: two that write the same files would undo each other's words."""

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)


@contextlib.contextmanager
def only_one(lock: Path, *, what: str) -> Iterator[None]:
    """Hold a lock file for the block; the kernel lets go of it with the process, however that ends.

    Raises OSError when another process holds it. A disk on which no lock can be had is told, and keeps nobody out.
    """
    with contextlib.ExitStack() as stack:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(f"another process runs {what} with this folder: {lock} is held") from error
        except OSError as error:
            log_event(log, "lock.not_to_be_had", level=logging.WARNING, path=lock, error=error)
        yield
