"""Watches the grid file: a valid change is handed over, an invalid one is said, counted, and changes nothing.

Half a file may be valid, too, and name half the cells: what was written a moment ago is not read yet.
"""

import logging
import stat
import time
from collections.abc import Callable
from pathlib import Path

from tradewind.config.errors import ConfigError
from tradewind.config.resolve import load_checked
from tradewind.config.schema import GridConfig
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

REST_S = 0.5  # since the last write; who writes in place, or copies over a network, does so in pieces
Signature = tuple[int, int, int, int]  # device, inode, modification time, size: a swapped symlink shows in the inode


class ConfigWatch:
    """Polls one file; `poll` reads it only after it has changed."""

    def __init__(self, path: Path, current: GridConfig, *, unix_clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.current = current
        self.applied = 0
        self.failures = 0
        self.last_error = ""  # "" while the newest file is valid and in force
        self._before = current
        self._unix_clock = unix_clock
        self._signature = _signature(path)

    def poll(self, *, force: bool = False) -> GridConfig | None:
        """The new configuration after a valid change, else None. A file that vanished is not a change."""
        signature = _signature(self.path)
        if signature is None or (not force and (signature == self._signature or self._is_fresh(signature))):
            return None
        self._signature = signature
        try:
            config = load_checked(self.path)
        except ConfigError as error:
            self.failures += 1
            self.last_error = str(error)
            log_event(log, "config.invalid", level=logging.ERROR, path=self.path, error=error, kept="the old one")
            return None
        self.last_error = ""
        if config == self.current:
            return None
        self._before, self.current = self.current, config
        self.applied += 1
        log_event(log, "config.applied", path=self.path)
        return config

    def _is_fresh(self, signature: Signature) -> bool:
        """A time of writing that is yet to come says nothing: clocks of two hosts are never compared."""
        return 0.0 <= self._unix_clock() - signature[2] / 1e9 < REST_S

    def refuse(self, reason: str, *, for_now: bool = False) -> None:
        """The configuration that `poll` gave out is valid but cannot be applied here: the one before stays.

        `for_now`: the next `poll` gives it out again.
        """
        self.current = self._before
        self.applied -= 1
        self.failures += 1
        self.last_error = reason
        if for_now:
            self._signature = None
        log_event(log, "config.refused", level=logging.ERROR, path=self.path, reason=reason)


def _signature(path: Path) -> Signature | None:
    """None where there is no file; a pipe is none either: to read it again would wait for ever."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
