"""What one gateway has still to be told: ids of cells, never values, so that a slow gateway gets the newest cheaply;
and what other gateways have placed."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from tradewind.control.prefixes import PlacedPart, Waiting

LOADS_INTERVAL_S = 0.05  # what other gateways have in flight goes out at most this often
REFRESH_INTERVAL_S = 0.1  # telemetry goes out at most this often; life-cycle changes at once
KEEP_ALIVE_S = 1.0  # with nothing to tell, an empty message says that control lives
MAX_CELLS_PER_MESSAGE = 1_000  # of a delta; a full view is one message, since a cell it leaves out is taken as gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The next message: which cells to describe as they are now, which ids are gone for good, and what was placed."""

    full: bool
    cell_ids: tuple[str, ...]
    removed: tuple[str, ...]
    placed: bytes = b""  # by other gateways, serialised


class Feed:
    """Collects changes for one view stream. Bounded: each cell waits at most once, and of placed blocks the newest."""

    def __init__(self, clock: Callable[[], float], *, known: Callable[[], list[str]]) -> None:
        self.gateway_id = ""  # known from its first report on
        self.sent = 0
        self._clock = clock
        self._known = known
        self._full = True
        self._held = True
        self._urgent: dict[str, None] = {}
        self._stale: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._placed = Waiting()
        self._loaded = False
        self._loads_due_s = 0.0
        self._refresh_due_s = 0.0
        self._alive_due_s = 0.0
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many cells this gateway has not been told of yet."""
        return len(self._urgent.keys() | self._stale.keys() | self._removed.keys())

    @property
    def waiting_blocks(self) -> int:
        """How many blocks of other gateways' prompts it has not been told of yet."""
        return self._placed.blocks

    def release(self) -> None:
        """Control knows enough: start with everything it knows."""
        if self._held:
            self._held = False
            self._wake.set()

    def changed(self, cell_id: str) -> None:
        """The life cycle, the drain or the capabilities of a cell changed: send at once."""
        self._removed.pop(cell_id, None)
        self._urgent[cell_id] = None
        self._wake.set()

    def refreshed(self, cell_id: str) -> None:
        """A cell has newer telemetry: send with the next refresh."""
        if not self._fresh:
            self._wake.set()
        self._stale[cell_id] = None

    def removed(self, cell_id: str) -> None:
        """A cell is gone for good."""
        self._urgent.pop(cell_id, None)
        self._stale.pop(cell_id, None)
        self._removed[cell_id] = None
        self._wake.set()

    def ordered(self) -> None:
        """The tuner has another order, and every message carries it: send one at once."""
        self._alive_due_s = -math.inf
        self._wake.set()

    def placed(self, parts: Sequence[PlacedPart]) -> int:
        """Another gateway has placed prompts: send with the next refresh. Returns how many older ones gave way."""
        if not self._fresh:
            self._wake.set()
        return self._placed.add(parts)

    def loaded(self) -> None:
        """Another gateway has other work in flight, which every message tells: send one soon."""
        if not self._loaded:
            self._loaded = True
            self._wake.set()

    def drop_placed(self) -> int:
        """What waits was hashed by a key that holds no longer. Returns how many prompts that were."""
        return self._placed.clear()

    async def next(self) -> Batch:
        """Wait until there is something to send, and take it."""
        while True:
            self._wake.clear()
            batch = None if self._held else self._take(self._clock())
            if batch is not None:
                return batch
            await self._wait()

    @property
    def _fresh(self) -> bool:
        """Something waits for the next refresh."""
        return bool(self._stale or self._placed.blocks)

    async def _wait(self) -> None:
        if self._held or self._full:
            await self._wake.wait()
            return
        due_s = self._alive_due_s
        if self._fresh:
            due_s = min(due_s, self._refresh_due_s)
        if self._loaded:
            due_s = min(due_s, self._loads_due_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_s - self._clock())):
                await self._wake.wait()

    def _take(self, now_s: float) -> Batch | None:
        if self._full:
            return self._take_full(now_s)
        refresh = self._fresh and now_s >= self._refresh_due_s
        if refresh:
            self._plan_refresh(now_s)
            self._urgent |= self._stale
            self._stale = {}
        loads = self._loaded and now_s >= self._loads_due_s
        if refresh or loads or self._urgent or self._removed or now_s >= self._alive_due_s:
            return self._take_delta(now_s)
        return None

    def _take_full(self, now_s: float) -> Batch | None:
        known = self._known()
        if not known:
            return None  # an empty set for lack of knowledge is never sent
        self._full = self._loaded = False
        self._loads_due_s = now_s + LOADS_INTERVAL_S
        self._urgent, self._stale, self._removed = {}, {}, {}
        self._plan_refresh(now_s)
        self._alive_due_s = now_s + KEEP_ALIVE_S
        return Batch(full=True, cell_ids=tuple(known), removed=(), placed=self._placed.take())

    def _plan_refresh(self, now_s: float) -> None:
        # All feeds refresh on the same beat, so that they can share what is serialised for it.
        self._refresh_due_s = (math.floor(now_s / REFRESH_INTERVAL_S) + 1) * REFRESH_INTERVAL_S

    def _take_delta(self, now_s: float) -> Batch:
        self._alive_due_s = now_s + KEEP_ALIVE_S
        self._loaded, self._loads_due_s = False, now_s + LOADS_INTERVAL_S
        cell_ids = tuple(islice(self._urgent, MAX_CELLS_PER_MESSAGE))
        for cell_id in cell_ids:
            del self._urgent[cell_id]
            self._stale.pop(cell_id, None)
        removed = tuple(islice(self._removed, MAX_CELLS_PER_MESSAGE))
        for cell_id in removed:
            del self._removed[cell_id]
        return Batch(full=False, cell_ids=cell_ids, removed=removed, placed=self._placed.take())
