"""The last view, routing and experience of a gateway on disk, so that a restart needs no control and no second lesson.

Nothing here is ever fatal: a file that cannot be used is said and ignored, and experience that cannot be used costs
the view nothing. Ages travel: what lay on disk is older by the time since then, as this host's boot clock tells.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tradewind.core.memory import Memory
from tradewind.model.routing import Routing
from tradewind.model.telemetry import Telemetry
from tradewind.model.tuning import TuningOrder
from tradewind.model.view import CellView
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

FORMAT = 1
MAX_BYTES = 64 * 2**20  # ten thousand cells are about 10 MB
MAX_MEMORY_AGE_S = 3600.0  # error rates cover an hour; what is older is learned anew
REBOOT_AGE_S = 60.0  # nobody knows how long a host was down: no suspicion is left, verdicts and rates are
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives the process. Telemetry is left out: engines are asked anew within a second."""

    format: int = FORMAT
    gateway_id: str = ""
    cells: tuple[CellView, ...] = ()
    routing: Routing = Routing()
    weights: tuple[tuple[str, int], ...] = ()
    memory: Memory = Memory()  # ages as of now
    order: TuningOrder | None = None  # of a tuner, that was followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A point in the life of one host: seconds since it booted, suspended time included."""

    boot_id: str = ""  # "" where the host does not say
    uptime_s: float = 0.0


class _OnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A SavedState as written; `memory` is read apart. Where cells or routing are missing, they are not empty."""

    format: int
    gateway_id: str
    cells: tuple[CellView, ...]
    routing: Routing
    weights: tuple[tuple[str, int], ...] = ()
    memory: msgspec.Raw = msgspec.Raw(b"null")
    order: TuningOrder | None = None
    moment: Moment = Moment()


def moment_now() -> Moment:
    """This moment of this host."""
    try:
        boot_id = BOOT_ID.read_text().strip()
    except OSError:
        boot_id = ""
    return Moment(boot_id=boot_id, uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME))


def without_telemetry(cells: tuple[CellView, ...]) -> tuple[CellView, ...]:
    """The same cells with all telemetry unknown."""
    return tuple(replace(view, telemetry=Telemetry()) for view in cells)


class SavedView:
    """Reads and atomically replaces one file; counts what failed and says why once per kind of failure."""

    def __init__(self, path: Path, gateway_id: str, *, moment: Callable[[], Moment] = moment_now) -> None:
        self.path = path
        self._moment = moment
        self.failures = 0
        self.last_error = ""
        self._gateway_id = gateway_id
        self._writing = threading.Lock()  # a write of a thread may still run when the process ends with another

    def load(self) -> SavedState | None:
        """The saved state, or None when there is none or it cannot be used (said in the log)."""
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
            state = msgspec.json.decode(self.path.read_bytes(), type=_OnDisk)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError, AssertionError, RecursionError) as error:
            self._failed("saved_view.unusable", error)
            return None
        if state.format != FORMAT or state.gateway_id != self._gateway_id:
            self._failed("saved_view.foreign", ValueError(f"format {state.format} of gateway {state.gateway_id!r}"))
            return None
        return SavedState(
            gateway_id=state.gateway_id,
            cells=state.cells,
            routing=state.routing,
            weights=state.weights,
            memory=self._memory(state),
            order=state.order if state.order is not None and state.order.usable else None,
        )

    def _memory(self, state: _OnDisk) -> Memory:
        """What was learned, as old as it is now; nothing when it is too old or cannot be read."""
        lay_s = lain_s(state.moment, self._moment())
        if lay_s > MAX_MEMORY_AGE_S:
            return Memory()
        try:
            memory = msgspec.json.decode(state.memory, type=Memory | None)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            self._failed("saved_view.memory_unusable", error)
            return Memory()
        return Memory() if memory is None else memory.aged(lay_s)

    def store(self, state: SavedState) -> bool:
        """Write the state beside the file and move it over; False when the disk refused."""
        try:
            with self._writing:
                self._replace(msgspec.json.encode({**msgspec.structs.asdict(state), "moment": self._moment()}))
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


def lain_s(then: Moment, now: Moment) -> float:
    """How long a file lay, at least; a guess where the host was rebooted or does not say."""
    if not then.boot_id or then.boot_id != now.boot_id:
        return REBOOT_AGE_S
    return max(0.0, now.uptime_s - then.uptime_s)
