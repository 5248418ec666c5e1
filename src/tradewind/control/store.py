"""SQLite on disk for what must outlive control: cells, the operator's drains, the tuner's state and history."""

import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tradewind.config.check import ID
from tradewind.control.api import TunerEventRow
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.view import CellView
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
MAX_BYTES = 256 * 1024 * 1024  # at the bound SQLite says "full"; control then runs on without saving, and says so
LOCK_TIMEOUT_S = 1.0
LEAST_BYTES = 512  # SQLite's smallest page
MAX_NAMED_CHARS = 300
MEMORY = "/dev/shm"
MAX_TUNER_EVENTS = 2_000  # of history; the oldest go

# The file is fine and its surroundings are not: keep it where it is and try again later.
_SURROUNDINGS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cell (
    cell_id TEXT PRIMARY KEY, site TEXT NOT NULL, address TEXT NOT NULL,
    capabilities TEXT NOT NULL, labels TEXT NOT NULL,
    state TEXT NOT NULL, incarnation TEXT NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS drain (
    cell_id TEXT PRIMARY KEY, since_unix_s REAL NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS control (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tuner_event (sequence INTEGER PRIMARY KEY, row TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """An operator's drain: when it was asked for (wall clock, for people) and why."""

    since_unix_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """All that is kept: cells by id without telemetry, drains by cell id, the incarnation of the last writer, what the
    tuner kept as JSON ("" = nothing), and its history, oldest first."""

    cells: dict[str, CellView]
    drains: dict[str, Drain]
    incarnation: str = ""
    tuner: str = ""
    tuner_events: tuple[TunerEventRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to write: a value to set, None to delete. Applying twice is the same as once."""

    cells: dict[str, CellView | None]
    drains: dict[str, Drain | None]
    tuner: str | None = None  # None = as it is
    tuner_events: tuple[TunerEventRow, ...] = ()  # to add

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.cells or self.drains or self.tuner_events) and self.tuner is None


class StoreError(Exception):
    """State could not be read or written. `corrupt`: the file itself is bad, so setting it aside helps."""

    def __init__(self, message: str, *, corrupt: bool) -> None:
        super().__init__(message)
        self.corrupt = corrupt


class Store:
    """One connection to one state file. Blocking; use it from one thread at a time. Raises StoreError only."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        with _store_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            with _store_errors(path):
                self._prepare(max_bytes)
                self._file = _file_at(path)
        except StoreError:
            self._db.close()
            raise

    def load(self) -> Saved:
        """Read everything."""
        with _store_errors(self.path):
            cells = {row[0]: _cell_from_row(row) for row in self._rows("SELECT * FROM cell ORDER BY cell_id")}
            drains = {
                str(cell_id): Drain(since_unix_s=float(since), reason=str(reason))
                for cell_id, since, reason in self._rows("SELECT * FROM drain ORDER BY cell_id")
            }
            rows = self._rows("SELECT row FROM tuner_event ORDER BY sequence")
            return Saved(
                cells=cells,
                drains=drains,
                incarnation=self._named("incarnation"),
                tuner=self._named("tuner"),
                tuner_events=tuple(_readable(row for (row,) in rows)),
            )

    def apply(self, changes: Changes) -> None:
        """Write changes in one transaction; all or none. Finds out, also with nothing to write, if the file is gone."""
        with _store_errors(self.path):
            if _file_at(self.path) != self._file:  # SQLite would go on to write into what nobody can open any more
                raise StoreError(f"{self.path}: was deleted or replaced", corrupt=False)
            if not changes.nothing:
                with _transaction(self._db):
                    self._write(changes)

    def replace(self, saved: Saved) -> None:
        """Make the file hold exactly this, and the incarnation that it holds."""
        with _store_errors(self.path), _transaction(self._db):
            for table in ("cell", "drain", "tuner_event"):
                self._db.execute(f"DELETE FROM {table}")
            self._write(
                Changes(
                    cells=dict(saved.cells),
                    drains=dict(saved.drains),
                    tuner=saved.tuner,
                    tuner_events=saved.tuner_events,
                )
            )

    def set_incarnation(self, incarnation: str) -> None:
        with _store_errors(self.path), _transaction(self._db):
            self._put("incarnation", incarnation)

    def close(self) -> None:
        self._db.close()

    def _prepare(self, max_bytes: int) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # an order that is told as saved outlives the host, too
        page_bytes = int(self._rows("PRAGMA page_size")[0][0])
        self._db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page_bytes)}")
        if self._rows("PRAGMA quick_check")[0][0] != "ok":
            raise StoreError(f"{self.path}: fails SQLite's own check", corrupt=True)
        version = int(self._rows("PRAGMA user_version")[0][0])
        if version not in (0, SCHEMA_VERSION):
            raise StoreError(
                f"{self.path}: schema version {version}, this program reads {SCHEMA_VERSION}", corrupt=True
            )
        self._db.executescript(_SCHEMA)
        if version != SCHEMA_VERSION:  # to read what is there must ask for no room on the disk
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _named(self, name: str) -> str:
        with closing(self._db.execute("SELECT value FROM control WHERE name = ?", (name,))) as cursor:
            found = cursor.fetchone()
        return str(found[0]) if found else ""

    def _put(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO control VALUES (?, ?)", (name, value))

    def _rows(self, sql: str) -> list[tuple[str, ...]]:
        with closing(self._db.execute(sql)) as cursor:
            return cursor.fetchall()

    def _write(self, changes: Changes) -> None:
        for cell_id, cell in changes.cells.items():
            if cell is None:
                self._db.execute("DELETE FROM cell WHERE cell_id = ?", (cell_id,))
            else:
                self._db.execute("INSERT OR REPLACE INTO cell VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _cell_to_row(cell))
        for cell_id, drain in changes.drains.items():
            if drain is None:
                self._db.execute("DELETE FROM drain WHERE cell_id = ?", (cell_id,))
            else:
                row = (cell_id, drain.since_unix_s, drain.reason)
                self._db.execute("INSERT OR REPLACE INTO drain VALUES (?, ?, ?)", row)
        if changes.tuner is not None:
            self._put("tuner", changes.tuner)
        if changes.tuner_events:
            rows = [(event.sequence, msgspec.json.encode(event).decode()) for event in changes.tuner_events]
            self._db.executemany("INSERT OR REPLACE INTO tuner_event VALUES (?, ?)", rows)
            bound = rows[-1][0] - MAX_TUNER_EVENTS
            self._db.execute("DELETE FROM tuner_event WHERE sequence <= ?", (bound,))


def open_store(path: Path, *, max_bytes: int = MAX_BYTES) -> tuple[Store, Saved, str]:
    """Open and read path; a corrupt file is set aside and a new one started with the drains that it still tells.

    Returns the store, what it holds, and what was wrong with an earlier file ("" when nothing was).
    Raises StoreError when no store can be had here at all (disk full, no such directory, locked).
    """
    try:
        problem = f"{path}: was cut off, nothing is left of it; started empty" if _is_cut_off(path) else ""
        return *_open_and_load(path, max_bytes), problem
    except StoreError as error:
        if not error.corrupt:
            raise
        aside = _set_aside(path)
        store, saved = _open_and_load(path, max_bytes)
        drains = _drains_in(aside)
        store.apply(Changes(cells={}, drains=dict(drains)))
        but = f" but for the drains of {', '.join(sorted(drains))}"[:MAX_NAMED_CHARS] if drains else ""
        return store, replace(saved, drains=drains), f"{error}; kept as {aside}; started empty{but}"


def read_copy(path: Path) -> Saved | None:
    """What a file holds that cannot be opened where it lies, since the disk is full or read-only or somebody locks it.

    None where no copy can be had either.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="tradewind-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as to:
            copy = Path(to) / path.name
            shutil.copyfile(path, copy)
            with suppress(FileNotFoundError):  # what was written last
                shutil.copyfile(path.with_name(path.name + "-wal"), copy.with_name(copy.name + "-wal"))
            with closing(Store(copy)) as store:
                return store.load()
    except (OSError, StoreError):
        return None


def _open_and_load(path: Path, max_bytes: int) -> tuple[Store, Saved]:
    store = Store(path, max_bytes=max_bytes)
    try:
        return store, store.load()
    except StoreError:
        store.close()
        raise


def _set_aside(path: Path) -> Path:
    """Rename a bad state file (and SQLite's companions) out of the way; only the newest bad file is kept."""
    aside = path.with_name(path.name + ".bad")
    with _store_errors(path):
        os.replace(path, aside)
        for suffix in ("-wal", "-shm"):
            companion = path.with_name(path.name + suffix)
            if companion.exists():
                os.replace(companion, aside.with_name(aside.name + suffix))
    return aside


def _drains_in(path: Path) -> dict[str, Drain]:
    """The drains in a bad file, as far as they can be read: without them, cells that were taken out for a reason would
    take requests again."""
    drains: dict[str, Drain] = {}
    # ValueError: SQLite may quote garbage, and Python then fails to read the message.
    with suppress(sqlite3.Error, ValueError), closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT_S)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for cell_id, since_unix_s, reason in db.execute("SELECT cell_id, since_unix_s, reason FROM drain"):
            if isinstance(cell_id, str) and ID.fullmatch(cell_id) and isinstance(since_unix_s, float):
                drains[cell_id] = Drain(since_unix_s=since_unix_s, reason=str(reason))
    return drains


def _readable(rows: Iterable[str]) -> Iterator[TunerEventRow]:
    """History is for people: a line that cannot be read costs no other, and no cell and no drain."""
    for row in rows:
        try:
            yield msgspec.json.decode(row, type=TunerEventRow)
        except (msgspec.MsgspecError, TypeError) as error:
            log_event(log, "state.line_unreadable", level=logging.WARNING, error=error)


def _is_cut_off(path: Path) -> bool:
    """Whether so little is there that SQLite takes it for a new file."""
    with _store_errors(path):
        return path.exists() and path.stat().st_size < LEAST_BYTES


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file lies there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        # Extended codes carry the primary one in their low byte.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        raise StoreError(f"{path}: {error}", corrupt=code not in _SURROUNDINGS) from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}", corrupt=False) from error
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise StoreError(f"{path}: {error}", corrupt=True) from error


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _cell_to_row(view: CellView) -> tuple[str | int, ...]:
    cell, encode = view.cell, msgspec.json.encode
    return (
        cell.cell_id,
        cell.site,
        cell.address,
        encode(cell.capabilities).decode(),
        encode(cell.labels).decode(),
        view.state.value,
        view.incarnation,
        view.sequence,
    )


def _cell_from_row(row: tuple[str, ...]) -> CellView:
    cell_id, site, address, capabilities, labels, state, incarnation, sequence = row
    cell = Cell(
        cell_id=cell_id,
        site=site,
        address=address,
        capabilities=msgspec.json.decode(capabilities, type=Capabilities),
        labels=msgspec.json.decode(labels, type=tuple[tuple[str, str], ...]),
    )
    return CellView(cell=cell, state=CellState(state), incarnation=incarnation, sequence=int(sequence), silent=True)
