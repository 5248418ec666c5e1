"""Drives the passing of time, and tells silence of cells from deafness of control itself."""

import asyncio
from collections.abc import Callable

from tradewind.control.grid import Grid

TICK_S = 0.05  # how late a silent cell may be noticed
TICK_OF_MANY_S = 0.1  # with more than MANY cells a look at each costs too much to be taken more often
MANY = 250
DEAF_S = 0.2  # a tick this late means that beats wait unread: they are read first
MAX_SKIPPED = 5  # in a row; a loop that is always late must still notice the dead


async def tick(grid: Grid, clock: Callable[[], float]) -> None:
    """Tick until cancelled."""
    skipped = 0
    due_s = clock()
    while True:
        if clock() - due_s > DEAF_S and skipped < MAX_SKIPPED:
            skipped += 1
            grid.counters["ticks_skipped"] += 1
        else:
            skipped = 0
            grid.tick(clock())
        interval_s = TICK_S if grid.cells <= MANY else TICK_OF_MANY_S
        due_s = clock() + interval_s
        await asyncio.sleep(interval_s)
