"""Watches the grid file: a valid change is handed over, an invalid one is said, counted, and changes nothing."""

import logging
from pathlib import Path

from tradewind.config.errors import ConfigError
from tradewind.config.load import load
from tradewind.config.resolve import load_checked
from tradewind.config.schema import GridConfig
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

Signature = tuple[int, int, int, int]  # device, inode, modification time, size: a swapped symlink shows in the inode


class ConfigWatch:
    """Polls one file; `poll` reads it only after it has changed."""

    def __init__(self, path: Path, current: GridConfig) -> None:
        self.path = path
        self.current = current
        self.applied = 0
        self.failures = 0
        self.last_error = ""  # "" while the newest file is valid
        self._signature = _signature(path)

    def poll(self, *, force: bool = False) -> GridConfig | None:
        """The new configuration after a valid change, else None. A file that vanished is not a change."""
        signature = _signature(self.path)
        if signature is None or (signature == self._signature and not force):
            return None
        self._signature = signature
        try:
            # The resolved file has no port left open and absolute paths; a file written by people is checked first.
            config = load(self.path) if self.path.suffix == ".json" else load_checked(self.path)
        except ConfigError as error:
            self.failures += 1
            self.last_error = str(error)
            log_event(log, "config.invalid", level=logging.ERROR, path=self.path, error=error, kept="the old one")
            return None
        self.last_error = ""
        if config == self.current:
            return None
        self.current = config
        self.applied += 1
        log_event(log, "config.applied", path=self.path)
        return config

    def refuse(self, reason: str) -> None:
        """The file is valid but cannot be applied here."""
        self.applied -= 1
        self.failures += 1
        self.last_error = reason
        log_event(log, "config.refused", level=logging.ERROR, path=self.path, reason=reason)


def _signature(path: Path) -> Signature | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size
