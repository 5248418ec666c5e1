"""Writes what must last from a thread of its own, so that a slow disk never delays a heartbeat."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tradewind.control.api import TunerEventRow
from tradewind.control.store import (
    MAX_BYTES,
    MAX_TUNER_EVENTS,
    Changes,
    Drain,
    Saved,
    Store,
    StoreError,
    open_store,
    read_copy,
)
from tradewind.model.view import CellView
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

RETRY_S = 5.0
LOOK_S = 5.0  # how often it is looked whether the file is still there
EMPTY = Saved(cells={}, drains={})


class Saver:
    """Keeps a state file in step with memory. What waits is one value per cell and a bounded history.

    A failure never reaches the caller: it is logged, counted in `failures` and shown in `problem` until a later
    attempt, every RETRY_S, has rewritten the whole file from `snapshot`. A file that could not be read at the start is
    read first, and what it held is handed to `found_late`: nothing is overwritten unread.
    """

    def __init__(
        self,
        path: Path,
        *,
        incarnation: str,
        snapshot: Callable[[], Saved],
        found_late: Callable[[Saved], None] = lambda _saved: None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.path = path
        self.problem = ""
        self.failures = 0
        self.started_empty_because = ""  # what was wrong with the file found at start; shown until control ends
        self._incarnation = incarnation
        self._snapshot = snapshot
        self._found_late = found_late
        self._loaded = False
        self._max_bytes = max_bytes
        self._store: Store | None = None
        self._cells: dict[str, CellView | None] = {}
        self._drains: dict[str, Drain | None] = {}
        self._tuner: str | None = None
        self._tuner_events: deque[TunerEventRow] = deque(maxlen=MAX_TUNER_EVENTS)
        self._writing: Changes | None = None  # taken, and not known to be written
        self._wanted = 0  # changes asked for
        self._done = 0  # of those, written or given up on once
        self._dirty = asyncio.Event()
        self._progress = asyncio.Condition()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="state")

    async def load(self) -> Saved:
        """Read the saved state; when that fails in every way start empty and say so."""
        try:
            return await self._read()
        except StoreError as error:
            self._failed(error)
            saved = await asyncio.get_running_loop().run_in_executor(self._thread, read_copy, self.path)
            if saved is not None:
                self._loaded = True
                return saved
            self.started_empty_because = str(error)
            return EMPTY

    def put_cell(self, cell_id: str, cell: CellView | None) -> None:
        """Save a cell, or with None delete it; the newest call wins."""
        self._cells[cell_id] = cell
        self._want()

    def put_drain(self, cell_id: str, drain: Drain | None) -> None:
        """Save a drain, or with None delete it; the newest call wins."""
        self._drains[cell_id] = drain
        self._want()

    def put_tuner(self, kept: str, events: Sequence[TunerEventRow]) -> None:
        """Save what a tuner keeps, as JSON, and add to its history."""
        self._tuner = kept
        self._tuner_events.extend(events)
        self._want()

    async def settled(self, timeout_s: float) -> bool:
        """Wait until all changes asked for so far have been tried. True if they are on disk now."""
        wanted = self._wanted
        try:
            async with asyncio.timeout(timeout_s), self._progress:
                await self._progress.wait_for(lambda: self._done >= wanted)
        except TimeoutError:
            return False
        return not self.problem

    async def run(self) -> None:
        """Write until cancelled, then write once more what is left."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._dirty.wait()
                self._dirty.clear()
                await self._attempt()
                if self.problem:
                    await asyncio.sleep(RETRY_S)
                    self._dirty.set()
        finally:
            self._finish()

    def _want(self) -> None:
        self._wanted += 1
        self._dirty.set()

    async def _attempt(self) -> None:
        changes, wanted = self._take(), self._wanted
        self._writing = changes
        try:
            late = not self._loaded
            if late:
                self._found_late(await self._read())
            whole = self._snapshot() if late or self.problem or self._store is None else None
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, changes, whole)
        except StoreError as error:
            self._failed(error)
        else:
            self._recovered()
        self._writing = None
        async with self._progress:
            self._done = wanted
            self._progress.notify_all()

    def _take(self) -> Changes:
        """What waits; nothing does afterwards."""
        changes = Changes(
            cells=self._cells, drains=self._drains, tuner=self._tuner, tuner_events=tuple(self._tuner_events)
        )
        self._cells, self._drains, self._tuner = {}, {}, None
        self._tuner_events.clear()
        return changes

    async def _read(self) -> Saved:
        """What the file of an earlier process holds. Raises StoreError."""
        loop = asyncio.get_running_loop()
        self._store, saved, problem = await loop.run_in_executor(self._thread, self._open)
        self._loaded, self.started_empty_because = True, problem
        if problem:
            self.failures += 1
            log_event(log, "state.set_aside", level=logging.ERROR, problem=problem)
        return saved

    def _open(self) -> tuple[Store, Saved, str]:
        store, saved, problem = open_store(self.path, max_bytes=self._max_bytes)
        try:
            store.set_incarnation(self._incarnation)
        except StoreError:
            store.close()
            raise
        return store, saved, problem

    def _write(self, changes: Changes, whole: Saved | None) -> None:
        if whole is None and self._store is not None:
            self._store.apply(changes)
        elif whole is not None:
            # After a failure nothing is taken for granted: open anew and write everything.
            if self._store is not None:
                self._store.close()
                self._store = None
            self._store, _, _ = self._open()
            self._store.replace(whole)

    def _failed(self, error: StoreError) -> None:
        self.failures += 1
        if self.problem != str(error):
            log_event(log, "state.not_saved", level=logging.ERROR, problem=error, retry_s=RETRY_S)
        self.problem = str(error)

    def _recovered(self) -> None:
        if self.problem:
            log_event(log, "state.saved_again", path=self.path)
        self.problem = ""

    def _finish(self) -> None:
        """At the end of the process: a last short write, bounded by SQLite's own lock timeout."""
        for changes in (self._writing, self._take()):
            if changes is None or changes.nothing or self.problem:
                continue
            try:
                self._thread.submit(self._write, changes, None).result(timeout=2.0)
            except (StoreError, TimeoutError) as error:
                log_event(log, "state.not_saved", level=logging.ERROR, problem=error)
        self._thread.shutdown(wait=True)
        if self._store is not None:
            self._store.close()
            self._store = None
