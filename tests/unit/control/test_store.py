"""The state file: what it keeps, and that nothing on disk can stop a control."""

import asyncio
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.support.polling import until
from tradewind.control import saver as saver_module
from tradewind.control import store as store_module
from tradewind.control.api import TunerEventRow, WeightsRow
from tradewind.control.saver import Saver
from tradewind.control.store import MAX_TUNER_EVENTS, Changes, Drain, Saved, Store, StoreError, open_store
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.view import CellView


def cell(cell_id: str, *, address: str = "127.0.0.1:8000", state: CellState = CellState.READY) -> CellView:
    return CellView(
        cell=Cell(
            cell_id=cell_id,
            site="east",
            address=address,
            capabilities=Capabilities(models=("a", "b"), max_model_len=1024),
            labels=(("rack", "7"),),
        ),
        state=state,
        incarnation="inc",
        sequence=9,
        silent=True,
    )


def saved_of(*views: CellView, drains: dict[str, Drain] | None = None) -> Saved:
    return Saved(cells={view.cell.cell_id: view for view in views}, drains=drains or {})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store, saved, problem = open_store(path)
    assert (saved, problem) == (saved_of(), "")
    store.apply(Changes(cells={"a": cell("a"), "b": cell("b")}, drains={"a": Drain(since_unix_s=5.0, reason="disk")}))
    store.apply(Changes(cells={"b": None, "a": cell("a", address="127.0.0.1:9")}, drains={}))
    store.set_incarnation("one")
    store.close()
    store, saved, problem = open_store(path)
    store.close()
    assert problem == ""
    assert saved.incarnation == "one"
    assert saved.cells == {"a": cell("a", address="127.0.0.1:9")}
    assert saved.drains == {"a": Drain(since_unix_s=5.0, reason="disk")}


def line(sequence: int) -> TunerEventRow:
    weights = WeightsRow(rtt=1.0, queue=0.5)
    return TunerEventRow(
        sequence=sequence, at_unix_s=5.5, what="accepted", generation=sequence, weights=weights, child=None,
        reason="faster", figures={"z": 2.5},
    )  # fmt: skip


def test_the_tuner_and_a_bounded_history_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    store.apply(Changes(cells={}, drains={}, tuner='{"w": 1}', tuner_events=(line(1), line(2))))
    store.apply(Changes(cells={}, drains={}))
    store.close()
    store, saved, _ = open_store(path)
    assert (saved.tuner, saved.tuner_events) == ('{"w": 1}', (line(1), line(2)))
    many = tuple(line(number) for number in range(3, MAX_TUNER_EVENTS + 11))
    store.apply(Changes(cells={}, drains={}, tuner="{}", tuner_events=many))
    sequences = [event.sequence for event in store.load().tuner_events]
    assert (sequences[0], sequences[-1], len(sequences)) == (11, MAX_TUNER_EVENTS + 10, MAX_TUNER_EVENTS)
    store.replace(Saved(cells={}, drains={}, tuner="{}", tuner_events=(line(7),)))
    assert store.load().tuner_events == (line(7),)
    store.close()


def test_a_file_from_before_there_was_a_tuner_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    store.apply(Changes(cells={"a": cell("a")}, drains={}))
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE tuner_event")
        db.commit()
    store, saved, problem = open_store(path)
    store.close()
    assert (saved, problem) == (saved_of(cell("a")), "")


def test_replace_leaves_nothing_old(tmp_path: Path) -> None:
    store, _, _ = open_store(tmp_path / "state.sqlite")
    store.apply(Changes(cells={"a": cell("a")}, drains={"a": Drain(since_unix_s=1.0)}))
    store.replace(saved_of(cell("b")))
    assert store.load() == saved_of(cell("b"))
    store.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_fc_40_a_corrupt_file_is_kept_aside_and_the_state_starts_empty(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(content)
    store, saved, problem = open_store(path)
    assert saved == saved_of()
    assert "kept as" in problem
    assert (tmp_path / "state.sqlite.bad").read_bytes() == content
    store.apply(Changes(cells={"a": cell("a")}, drains={}))
    assert store.load().cells == {"a": cell("a")}
    store.close()


def test_fc_40_a_file_with_unreadable_rows_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    store.apply(Changes(cells={"a": cell("a")}, drains={}))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE cell SET capabilities = '{'")
    db.close()
    store, saved, problem = open_store(path)
    store.close()
    assert saved == saved_of()
    assert "kept as" in problem


def test_fc_40_the_drains_in_a_bad_file_are_kept_as_far_as_it_tells_them(tmp_path: Path) -> None:
    """A cell that was taken out for a reason must not take requests again since a disk had a bad day."""
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    drains = {"a": Drain(since_unix_s=5.0, reason="fan")}
    store.apply(Changes(cells={f"c{n}": cell(f"c{n}") for n in range(300)}, drains=dict(drains)))
    store.close()
    content = bytearray(path.read_bytes())
    content[-6000:] = b"\xff" * 6000  # pages of cells, the largest table
    path.write_bytes(content)
    store, saved, problem = open_store(path)
    assert saved == saved_of(drains=drains)
    assert store.load() == saved
    assert problem.endswith("started empty but for the drains of a")
    store.close()


def test_fc_40_a_file_whose_tables_have_garbled_names_is_kept_aside(tmp_path: Path) -> None:
    """SQLite quotes the garbage, and Python cannot read the quote."""
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    store.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE cell", b"CREATE TABL\xff cell"))
    store, saved, problem = open_store(path)
    store.close()
    assert saved == saved_of()
    assert "kept as" in problem


@pytest.mark.parametrize("left", [0, 1, 99])
def test_fc_40_a_file_that_was_cut_off_is_told(tmp_path: Path, left: int) -> None:
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    store.close()
    path.write_bytes(path.read_bytes()[:left])
    store, saved, problem = open_store(path)
    store.close()
    assert saved == saved_of()
    assert "started empty" in problem


def test_fc_40_a_line_of_history_that_cannot_be_read_costs_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    drains = {"a": Drain(since_unix_s=5.0)}
    lines = (line(1), msgspec.structs.replace(line(2), figures={"z": math.nan}), line(3))  # JSON has no NaN
    store.apply(Changes(cells={"a": cell("a")}, drains=dict(drains), tuner="{}", tuner_events=lines))
    store.close()
    store, saved, problem = open_store(path)
    store.close()
    assert (saved.cells, saved.drains, saved.tuner, problem) == ({"a": cell("a")}, drains, "{}", "")
    assert saved.tuner_events == (line(1), line(3))


@pytest.mark.parametrize("gone", ["file", "folder", "another file in its place"])
def test_fc_40_a_file_that_is_deleted_under_control_is_noticed_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """SQLite goes on to write into a file that nobody will ever open again, and calls it saved."""
    monkeypatch.setattr(saver_module, "RETRY_S", 0.02)
    monkeypatch.setattr(saver_module, "LOOK_S", 0.02)
    path = tmp_path / "dir" / "state.sqlite"
    memory = saved_of(cell("a"), drains={"a": Drain(since_unix_s=2.0)})

    async def scenario() -> None:
        saver = Saver(path, incarnation="one", snapshot=lambda: memory)
        await saver.load()
        task = asyncio.create_task(saver.run())
        saver.put_cell("a", cell("a"))
        assert await saver.settled(5.0)
        shutil.rmtree(path.parent)
        if gone == "another file in its place":
            path.parent.mkdir()
            path.write_bytes(b"no state of ours" * 100)
        elif gone == "file":
            path.parent.mkdir()
        await until(lambda: saver.failures >= 1 and not saver.problem)  # with no change to write
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    store, saved, _ = open_store(path)
    store.close()
    assert (saved.cells, saved.drains) == (memory.cells, memory.drains)


def test_fc_40_a_file_that_is_locked_at_the_start_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locked by a backup, on a full disk, on one that has become read-only: what it holds is still in force."""
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT_S", 0.01)
    path = tmp_path / "state.sqlite"
    store, _, _ = open_store(path)
    kept = saved_of(cell("a"), drains={"a": Drain(since_unix_s=2.0)})
    store.replace(kept)  # and left in the write-ahead log

    async def scenario() -> None:
        saver = Saver(path, incarnation="two", snapshot=lambda: kept)
        assert await saver.load() == kept
        assert (saver.failures, saver.started_empty_because) == (1, "")
        assert "locked" in saver.problem
        saver._finish()

    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        asyncio.run(scenario())
    store.close()


def test_fc_40_a_file_that_nobody_could_read_at_the_start_is_not_overwritten_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "RETRY_S", 0.02)
    folder, away = tmp_path / "dir", tmp_path / "away"
    store, _, _ = open_store(folder / "state.sqlite")
    kept = saved_of(cell("a"), drains={"a": Drain(since_unix_s=2.0)})
    store.replace(kept)
    store.close()
    folder.rename(away)
    folder.write_text("in the way, e.g. of a mount")
    memory = [saved_of(cell("b"))]

    def found_late(found: Saved) -> None:
        memory[0] = Saved(cells=found.cells | memory[0].cells, drains=found.drains)

    async def scenario() -> None:
        saver = Saver(folder / "state.sqlite", incarnation="two", snapshot=lambda: memory[0], found_late=found_late)
        assert await saver.load() == saved_of()
        assert saver.started_empty_because
        task = asyncio.create_task(saver.run())
        saver.put_cell("b", cell("b"))
        assert not await saver.settled(5.0)
        folder.unlink()
        away.rename(folder)
        await until(lambda: not saver.problem)
        assert saver.started_empty_because == ""
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    store, saved, _ = open_store(folder / "state.sqlite")
    store.close()
    assert saved.drains == kept.drains
    assert sorted(saved.cells) == ["a", "b"]


def test_a_file_of_a_newer_program_is_kept_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    store, _, problem = open_store(path)
    store.close()
    assert "schema version 99" in problem


def test_fc_40_disk_full_is_an_error_that_leaves_the_file_in_place(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    store = Store(path, max_bytes=64 * 1024)
    many = {f"cell-{number}": cell(f"cell-{number}") for number in range(2_000)}
    with pytest.raises(StoreError, match="full") as caught:
        store.apply(Changes(cells=dict(many), drains={}))
    assert not caught.value.corrupt
    assert store.load() == saved_of()  # all or none
    store.close()


def test_no_directory_to_write_in_is_not_corruption(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError) as caught:
        open_store(tmp_path / "file" / "state.sqlite")
    assert not caught.value.corrupt


def test_saver_writes_behind_and_answers_when_it_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"

    async def scenario() -> None:
        saver = Saver(path, incarnation="one", snapshot=saved_of)
        assert await saver.load() == saved_of()
        task = asyncio.create_task(saver.run())
        saver.put_cell("a", cell("a"))
        saver.put_drain("a", Drain(since_unix_s=1.0))
        assert await saver.settled(5.0)
        saver.put_cell("b", cell("b"))  # still waiting when the process ends
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    store, saved, _ = open_store(path)
    store.close()
    assert sorted(saved.cells) == ["a", "b"]
    assert saved.incarnation == "one"
    assert saved.drains == {"a": Drain(since_unix_s=1.0)}


def test_fc_40_saver_runs_on_without_a_disk_and_recovers_with_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "RETRY_S", 0.02)
    blocked = tmp_path / "dir"
    blocked.write_text("a file where the directory should be")
    memory = saved_of(cell("a"), cell("b"), drains={"b": Drain(since_unix_s=2.0)})

    async def scenario() -> None:
        saver = Saver(blocked / "state.sqlite", incarnation="one", snapshot=lambda: memory)
        assert await saver.load() == saved_of()
        assert saver.problem
        assert saver.started_empty_because
        task = asyncio.create_task(saver.run())
        saver.put_cell("a", cell("a"))
        assert not await saver.settled(5.0)
        failures = saver.failures
        blocked.unlink()
        await until(lambda: not saver.problem)
        assert failures >= 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    store, saved, _ = open_store(blocked / "state.sqlite")
    store.close()
    assert (saved.cells, saved.drains) == (memory.cells, memory.drains)


def test_saver_asks_for_no_more_than_one_row_per_cell(tmp_path: Path) -> None:
    async def scenario() -> int:
        saver = Saver(tmp_path / "state.sqlite", incarnation="one", snapshot=saved_of)
        await saver.load()
        for number in range(10_000):
            saver.put_cell("a", cell("a", address=f"127.0.0.1:{number}"))
        waiting = len(saver._cells)
        task = asyncio.create_task(saver.run())
        assert await saver.settled(5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return waiting

    assert asyncio.run(scenario()) == 1
