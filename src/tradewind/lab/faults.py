"""Faults on a schedule: when, what, how the grid shows that it has seen it, and how soon it should."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer, SeenEvent
from tradewind.lab.watch import CellSeen

Seen = tuple[float, str]  # when on the load's clock, and by what


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """One fault to come. `begin` injects it, `end` takes it back; times on the load's clock."""

    name: str  # for people: "engine killed"
    target: str
    at_s: float
    until_s: float
    begin: Callable[[LiveGrid], Awaitable[None]]
    end: Callable[[LiveGrid], Awaitable[None]] | None
    seen: Callable[[Observer, float], Seen | None]  # given when it was injected
    within_s: float  # how soon it should be seen
    scored: bool = False  # seen by the scorer alone: a baseline cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """A fault as it happened."""

    fault: PlannedFault
    injected_s: float
    ended_s: float | None = None


async def run_schedule(
    faults: Sequence[PlannedFault],
    grid: LiveGrid,
    observer: Observer,
    *,
    say: Callable[[str], None] = lambda _line: None,
) -> list[FaultRun]:
    """Inject and end every fault at its time; the runs come in the order of the schedule."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_run_one(fault, grid, observer, say)) for fault in faults]
    return [task.result() for task in running]


async def _run_one(fault: PlannedFault, grid: LiveGrid, observer: Observer, say: Callable[[str], None]) -> FaultRun:
    await asyncio.sleep(max(0.0, fault.at_s - observer.now_s))
    injected_s = observer.now_s
    say(f"{injected_s:5.1f} s  inject: {fault.name} ({fault.target})")
    await fault.begin(grid)
    if fault.end is None:
        return FaultRun(fault=fault, injected_s=injected_s)
    await asyncio.sleep(max(0.0, fault.until_s - observer.now_s))
    ended_s = observer.now_s
    say(f"{ended_s:5.1f} s  end:    {fault.name} ({fault.target})")
    await fault.end(grid)
    return FaultRun(fault=fault, injected_s=injected_s, ended_s=ended_s)


def emulator_fault(
    fault: str,
    *,
    name: str,
    at_s: float,
    until_s: float,
    seen: Callable[[Observer, float], Seen | None],
    within_s: float,
    cell: str | None = None,
    site: str | None = None,
    params: Mapping[str, object] | None = None,
    scored: bool = False,
) -> PlannedFault:
    """A fault of the emulator's own catalogue."""
    ids: list[int] = []

    async def begin(grid: LiveGrid) -> None:
        ids.append(await grid.inject(fault, cell=cell, site=site, params=params))

    async def end(grid: LiveGrid) -> None:
        await grid.clear(ids.pop())

    return PlannedFault(
        name=name,
        target=cell or site or "",
        at_s=at_s,
        until_s=until_s,
        begin=begin,
        end=end,
        seen=seen,
        within_s=within_s,
        scored=scored,
    )


# --- how a grid shows what it has seen -------------------------------------------------------------------------------


def by_event(cell: str, *prefixes: str) -> Callable[[Observer, float], Seen | None]:
    """Seen when an event whose name begins so, and does not say "cleared", names the cell."""

    def wanted(event: SeenEvent) -> bool:
        return event.cell == cell and event.name.startswith(prefixes) and not event.name.endswith(".cleared")

    def seen(observer: Observer, after_s: float) -> Seen | None:
        event = observer.first_event(after_s, wanted)
        return None if event is None else (event.at_s, event.name)

    return seen


def by_cells(holds: Callable[[Mapping[str, CellSeen]], bool], what: str) -> Callable[[Observer, float], Seen | None]:
    """Seen when the gateway's cells are so."""

    def seen(observer: Observer, after_s: float) -> Seen | None:
        sample = observer.first_sample(after_s, holds)
        return None if sample is None else (sample.at_s, what)

    return seen


def earliest(*ways: Callable[[Observer, float], Seen | None]) -> Callable[[Observer, float], Seen | None]:
    """Seen in whichever way came first."""

    def seen(observer: Observer, after_s: float) -> Seen | None:
        found = [way(observer, after_s) for way in ways]
        return min((item for item in found if item is not None), default=None)

    return seen


def share_fell(cell: str, *, to_ratio: float) -> Callable[[Observer, float], Seen | None]:
    """Seen when the cell's share of the weight is at most `to_ratio` of what it was before the fault."""

    def seen(observer: Observer, after_s: float) -> Seen | None:
        before = [sample.cells[cell].share for sample in observer.between(0, after_s) if cell in sample.cells]
        if not before:
            return None
        bound = to_ratio * before[-1]
        sample = observer.first_sample(after_s, lambda cells: cell in cells and cells[cell].share <= bound)
        return None if sample is None else (sample.at_s, f"its share fell to {100 * to_ratio:.0f} % of before")

    return seen


def out_of_pool(cell: str) -> Callable[[Observer, float], Seen | None]:
    """Seen when Envoy was told to send it nothing."""
    return by_cells(lambda cells: cell in cells and cells[cell].weight is None, "out of the pool")


def limit_learned(cell: str) -> Callable[[Observer, float], Seen | None]:
    """Seen when the picker has learned how long a request the cell takes."""

    def holds(cells: Mapping[str, CellSeen]) -> bool:
        picked = cells[cell].picked if cell in cells else None
        return picked is not None and picked.learned_limit_tokens is not None

    return by_cells(holds, "the picker learned its limit")


def flagged(cells: Sequence[str], flag: str) -> Callable[[Observer, float], Seen | None]:
    """Seen when every one of the cells carries the flag."""
    return by_cells(lambda seen: all(cell in seen and flag in seen[cell].flags for cell in cells), f"flag {flag}")
