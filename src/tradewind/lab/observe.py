"""Watches a live grid while it runs: samples of every cell, and events of gateway and control, on the load's clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from tradewind.lab import watch
from tradewind.lab.grid import LiveGrid
from tradewind.lab.watch import CellSeen
from tradewind.runtime.ask import AskFailed

EVERY_S = 0.2
MAX_SAMPLES = 36_000  # two hours; the lab's longest run is minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All cells as the first gateway saw them at one moment."""

    at_s: float
    cells: Mapping[str, CellSeen]
    control_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """One event of a gateway or a control."""

    at_s: float
    source: str  # "gateway" | "control"
    name: str
    cell: str
    detail: str


class Observer:
    """Watching begins the load's clock: every `at_s` counts from `start_s`, which is on time.monotonic()."""

    def __init__(self, grid: LiveGrid, *, every_s: float = EVERY_S) -> None:
        self.samples: list[Sample] = []
        self.events: list[SeenEvent] = []
        self._grid = grid
        self._every_s = every_s
        self.start_s = 0.0
        self._unix_to_load_s = 0.0
        self._newest = {"gateway": 0, "control": 0}

    @property
    def now_s(self) -> float:
        """Now, on the load's clock."""
        return time.monotonic() - self.start_s

    @asynccontextmanager
    async def watching(self) -> AsyncIterator["Observer"]:
        """Sample until the block ends."""
        await self._begin()
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            await asyncio.sleep(2 * EVERY_S)  # what happened last has time to be reported
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def latest(self) -> Mapping[str, CellSeen]:
        """The newest sample's cells."""
        return self.samples[-1].cells if self.samples else {}

    def served(self) -> dict[str, float]:
        """Share of the requests that ended since the start, by cell, as the gateway counts them."""
        if not self.samples:
            return {}
        first, last = self.samples[0].cells, self.samples[-1].cells
        ended = {name: cell.requests - first[name].requests for name, cell in last.items() if name in first}
        total = sum(ended.values())
        return {name: count / total for name, count in ended.items()} if total > 0 else {}

    def first_event(self, after_s: float, wanted: Callable[[SeenEvent], bool]) -> SeenEvent | None:
        """The earliest event from `after_s` on that is wanted."""
        found = [event for event in self.events if event.at_s >= after_s and wanted(event)]
        return min(found, key=lambda event: event.at_s, default=None)

    def first_sample(self, after_s: float, wanted: Callable[[Mapping[str, CellSeen]], bool]) -> Sample | None:
        """The earliest sample from `after_s` on whose cells are as wanted."""
        return next((sample for sample in self.samples if sample.at_s >= after_s and wanted(sample.cells)), None)

    def between(self, begin_s: float, end_s: float) -> Iterator[Sample]:
        """The samples of a span of time."""
        return (sample for sample in self.samples if begin_s <= sample.at_s < end_s)

    async def _run(self) -> None:
        while True:
            begin_s = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.02, self._every_s - (time.monotonic() - begin_s)))

    async def look(self) -> None:
        """Take one sample and the new events; a part that does not answer is skipped."""
        try:
            status = await watch.gateway_status(self._grid.gateway)
            if len(self.samples) < MAX_SAMPLES:
                cells = {cell.cell_id: cell for cell in watch.cells_of(status)}
                live = watch.control_live(status)
                self.samples.append(Sample(at_s=self.now_s, cells=cells, control_live=live))
            self._take("gateway", await watch.gateway_events(self._grid.gateway, after=self._newest["gateway"]))
        except AskFailed:
            self._newest["gateway"] = 0  # a restarted gateway counts from 1 again
        try:
            self._take("control", await watch.control_events(self._grid.grid, after=self._newest["control"]))
        except AskFailed:
            self._newest["control"] = 0

    async def _begin(self) -> None:
        """Step over the events of before, and start the clock."""
        await self.look()
        self.events.clear()
        self.samples.clear()
        self.start_s = time.monotonic()
        self._unix_to_load_s = -time.time()

    def _take(self, source: str, rows: list[watch.Json]) -> None:
        for row in rows:
            sequence = row.get("sequence")
            self._newest[source] = max(self._newest[source], sequence if isinstance(sequence, int) else 0)
            at_s = self._at_s(row)
            if at_s < -1.0:
                continue  # older than this load; a part whose events are read again from the first
            detail = str(row.get("detail") or row.get("cause") or "")
            event = SeenEvent(
                at_s=at_s, source=source, name=str(row["name"]), cell=str(row.get("cell_id") or ""), detail=detail
            )
            if event not in self.events[-500:]:
                self.events.append(event)

    def _at_s(self, row: watch.Json) -> float:
        """Gateways give seconds since the epoch, controls an RFC 3339 text."""
        unix_s = row.get("at_unix_s")
        if not isinstance(unix_s, int | float):
            unix_s = datetime.fromisoformat(str(row["at"])).timestamp()
        return round(float(unix_s) + self._unix_to_load_s, 4)
