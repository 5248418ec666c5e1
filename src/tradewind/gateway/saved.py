"""The last view and routing of a gateway on disk, so that a restart needs no control; nothing here is ever fatal."""

import logging
import os
import threading
from dataclasses import replace
from pathlib import Path

import msgspec

from tradewind.model.routing import Routing
from tradewind.model.telemetry import Telemetry
from tradewind.model.view import CellView
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

FORMAT = 1
MAX_BYTES = 64 * 2**20  # ten thousand cells are about 10 MB


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives the process. Telemetry is left out: its age would not be known after a restart."""

    format: int = FORMAT
    gateway_id: str = ""
    cells: tuple[CellView, ...] = ()
    routing: Routing = Routing()
    weights: tuple[tuple[str, int], ...] = ()


def without_telemetry(cells: tuple[CellView, ...]) -> tuple[CellView, ...]:
    """The same cells with all telemetry unknown."""
    return tuple(replace(view, telemetry=Telemetry()) for view in cells)


class SavedView:
    """Reads and atomically replaces one file; counts what failed and says why once per kind of failure."""

    def __init__(self, path: Path, gateway_id: str) -> None:
        self.path = path
        self.failures = 0
        self.last_error = ""
        self._gateway_id = gateway_id
        self._writing = threading.Lock()  # a write of a thread may still run when the process ends with another

    def load(self) -> SavedState | None:
        """The saved state, or None when there is none or it cannot be used (said in the log)."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
            state = msgspec.json.decode(self.path.read_bytes(), type=SavedState)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError, AssertionError) as error:
            self._failed("saved_view.unusable", error)
            return None
        if state.format != FORMAT or state.gateway_id != self._gateway_id:
            self._failed("saved_view.foreign", ValueError(f"format {state.format} of gateway {state.gateway_id!r}"))
            return None
        return state

    def store(self, state: SavedState) -> bool:
        """Write the state beside the file and move it over; False when the disk refused."""
        try:
            with self._writing:
                self._replace(msgspec.json.encode(state))
        except OSError as error:
            self._failed("saved_view.not_written", error)
            return False
        self.last_error = ""
        return True

    def _replace(self, data: bytes) -> None:
        partial = self.path.with_suffix(".partial")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(self.path)

    def _failed(self, name: str, error: Exception) -> None:
        self.failures += 1
        text = f"{name}: {error}"
        if text != self.last_error:
            log_event(log, name, level=logging.WARNING, path=self.path, error=error)
        self.last_error = text
