"""Measures the path from this gateway to every cell: one warm prober per cell, gone with the cell."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from tradewind.model.view import PathReading
from tradewind.telemetry.rtt import PathProber

INTERVAL_S = 1.0
JITTER_ALPHA = 0.2

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


@dataclass(slots=True)
class Path:
    """What is known of one path; seconds. `reachable` None before the first verdict."""

    address: str
    rtt_s: float | None = None
    jitter_s: float | None = None
    reachable: bool | None = None
    at_s: float | None = None
    losses: int = 0  # how often it became unreachable

    def take(self, rtt_s: float | None, *, reachable: bool, at_s: float) -> bool:
        """Add one verdict of the prober; True when reachability changed."""
        if rtt_s is not None:
            if self.rtt_s is not None:
                step_s = abs(rtt_s - self.rtt_s)
                jitter_s = self.jitter_s if self.jitter_s is not None else step_s
                self.jitter_s = jitter_s + JITTER_ALPHA * (step_s - jitter_s)
            self.rtt_s = rtt_s
        changed = self.reachable is not reachable
        self.losses += changed and not reachable
        self.reachable, self.at_s = reachable, at_s
        return changed


class PathKeeper:
    """Keeps exactly the probers that the view asks for. `on_path(reading, changed)` is called for each verdict."""

    def __init__(
        self, on_path: Callable[[PathReading, bool], None], *, spawn: Spawn, clock: Callable[[], float]
    ) -> None:
        """`spawn` starts a task in the caller's group, which ends it at the latest."""
        self.paths: dict[str, Path] = {}
        self.refused: dict[str, str] = {}  # cell id -> address that no prober can be made for
        self._on_path = on_path
        self._spawn = spawn
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def sync(self, addresses: Mapping[str, str]) -> None:
        """Probe these cells at these addresses ("ip:port") and no others."""
        for cell_id in sorted(self.paths.keys() - addresses.keys()):
            self._stop(cell_id)
        self.refused = {cell: address for cell, address in self.refused.items() if addresses.get(cell) == address}
        for cell_id, address in sorted(addresses.items()):
            path = self.paths.get(cell_id)
            if path is not None and path.address != address:
                self._stop(cell_id)
            if cell_id not in self.paths and cell_id not in self.refused:
                self._start(cell_id, address)

    def unreachable(self) -> frozenset[str]:
        """Cells whose last verdict was unreachable."""
        return frozenset(cell_id for cell_id, path in self.paths.items() if path.reachable is False)

    def _start(self, cell_id: str, address: str) -> None:
        path = Path(address=address)
        try:
            prober = PathProber(
                address,
                interval_s=INTERVAL_S,
                on_reading=lambda rtt_s, reachable, at_s: self._take(cell_id, path, rtt_s, reachable, at_s),
                clock=self._clock,
            )
        except ValueError:
            self.refused[cell_id] = address
            return
        self.paths[cell_id] = path
        self._tasks[cell_id] = self._spawn(prober.run())

    def _stop(self, cell_id: str) -> None:
        self.paths.pop(cell_id, None)
        task = self._tasks.pop(cell_id, None)
        if task is not None:
            task.cancel()

    def _take(self, cell_id: str, path: Path, rtt_s: float | None, reachable: bool, at_s: float) -> None:
        changed = path.take(rtt_s, reachable=reachable, at_s=at_s)
        reading = PathReading(cell_id=cell_id, rtt_s=rtt_s, jitter_s=path.jitter_s, reachable=reachable)
        self._on_path(reading, changed)
