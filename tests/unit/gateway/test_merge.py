"""The merged view: who wins, who stays, who leaves."""

from dataclasses import replace

import pytest

from tradewind.gateway.merge import FORGET_AFTER_S, ViewMerger
from tradewind.model.cell import Cell, CellState
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import CellView, GridView, ViewDelta, ViewVersion

READY, FAULTED, DRAINING = CellState.READY, CellState.FAULTED, CellState.DRAINING


def cell(cell_id: str, *, incarnation: str = "b1", sequence: int = 1, state: CellState = READY) -> CellView:
    return CellView(
        cell=Cell(cell_id=cell_id, site="east", address="127.0.0.1:9"),
        state=state,
        incarnation=incarnation,
        sequence=sequence,
    )


def delta(
    control: str, *cells: CellView, full: bool = False, removed: tuple[str, ...] = (), incarnation: str = "c1"
) -> ViewDelta:
    version = ViewVersion(control_id=control, incarnation=incarnation, counter=1)
    return ViewDelta(version=version, full=full, cells=cells, removed=removed)


def by_id(view: GridView) -> dict[str, CellView]:
    return {item.cell.cell_id: item for item in view.cells}


@pytest.fixture
def merger() -> ViewMerger:
    return ViewMerger("gw")


def test_newer_sequence_wins_whatever_the_order_of_arrival(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", sequence=7, state=FAULTED), full=True), now_s=0)
    merger.apply("b", delta("b", cell("x", sequence=5), full=True), now_s=1)
    assert by_id(merger.view(now_s=1))["x"].state is FAULTED
    merger.apply("b", delta("b", cell("x", sequence=8)), now_s=2)
    assert by_id(merger.view(now_s=2))["x"].state is READY


def test_disagreement_at_equal_sequence_is_settled_the_same_way_in_any_order() -> None:
    messages = [
        ("a", delta("a", cell("x", sequence=5), full=True)),
        ("b", delta("b", cell("x", sequence=5, state=FAULTED), full=True)),
    ]
    states = []
    for order in (messages, messages[::-1]):
        merger = ViewMerger("gw")
        for control, message in order:
            merger.apply(control, message, now_s=0)
        states.append(by_id(merger.view(now_s=0))["x"].state)
    assert states == [READY, READY]


def test_a_late_beat_of_an_old_incarnation_is_ignored(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", incarnation="b1", sequence=50), full=True), now_s=0)
    merger.apply("a", delta("a", cell("x", incarnation="b2", sequence=1, state=FAULTED)), now_s=1)
    merger.apply("a", delta("a", cell("x", incarnation="b1", sequence=51)), now_s=2)
    assert by_id(merger.view(now_s=2))["x"].incarnation == "b2"


def test_a_silent_record_of_an_unseen_incarnation_does_not_beat_one_that_speaks(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", incarnation="b2", sequence=3), full=True), now_s=0)
    merger.apply("b", delta("b", replace(cell("x", incarnation="b1", sequence=99), silent=True), full=True), now_s=0)
    assert by_id(merger.view(now_s=0))["x"].incarnation == "b2"


def test_a_restored_fault_never_outranks_a_live_control_that_first_calls_the_new_incarnation_silent(
    merger: ViewMerger,
) -> None:
    merger.restore([replace(cell("x", incarnation="old", sequence=99), state=CellState.FAULTED)], now_s=0)
    merger.apply("a", delta("a", replace(cell("x", incarnation="new"), silent=True), full=True), now_s=1)
    merger.apply("a", delta("a", cell("x", incarnation="new", sequence=2)), now_s=2)
    (seen,) = merger.view(now_s=2).cells
    assert (seen.incarnation, seen.state) == ("new", CellState.READY)


def test_a_control_s_own_older_word_does_not_keep_out_a_silent_start(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", incarnation="old", sequence=99), full=True), now_s=0)
    merger.apply("a", delta("a", replace(cell("x", incarnation="new"), silent=True)), now_s=1)
    merger.apply("a", delta("a", cell("x", incarnation="new", sequence=2)), now_s=2)
    (seen,) = merger.view(now_s=2).cells
    assert seen.incarnation == "new"


def test_a_raised_flag_is_looked_at_at_once_and_readings_are_not(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", sequence=1), full=True), now_s=0)
    assert not merger.apply("a", delta("a", cell("x", sequence=2)), now_s=0.5)
    flagged = replace(cell("x", sequence=3), telemetry=Telemetry(flags=("dcgm_fallback",)))
    assert merger.apply("a", delta("a", flagged), now_s=1)


def test_an_incarnation_that_speaks_again_beats_the_silent_one(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", incarnation="b1", sequence=9), full=True), now_s=0)
    merger.apply("b", delta("b", replace(cell("x", incarnation="b2"), silent=True), full=True), now_s=0)
    merger.apply("a", delta("a", replace(cell("x", incarnation="b1", sequence=9), silent=True)), now_s=1)
    merger.apply("b", delta("b", cell("x", incarnation="b2", sequence=2)), now_s=1)
    assert by_id(merger.view(now_s=1))["x"].incarnation == "b2"


def test_fc_40_a_control_that_comes_back_empty_removes_nothing(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x"), cell("y"), full=True), now_s=0)
    merger.disconnected("a")
    changed = merger.apply("a", delta("a", full=True, incarnation="c2"), now_s=10)
    assert not changed
    assert sorted(by_id(merger.view(now_s=10))) == ["x", "y"]


def test_a_full_view_of_the_same_control_process_removes_what_it_no_longer_lists(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x"), cell("y"), full=True), now_s=0)
    merger.disconnected("a")
    assert merger.apply("a", delta("a", cell("x"), full=True), now_s=1)
    assert sorted(by_id(merger.view(now_s=1))) == ["x"]


def test_removal_needs_every_connected_control(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x"), full=True), now_s=0)
    merger.apply("b", delta("b", cell("x"), full=True), now_s=0)
    merger.apply("a", delta("a", removed=("x",)), now_s=1)
    assert "x" in by_id(merger.view(now_s=1))
    merger.apply("b", delta("b", removed=("x",)), now_s=2)
    assert not merger.view(now_s=2).cells


def test_removal_by_the_only_connected_control_is_enough(merger: ViewMerger) -> None:
    merger.restore([cell("x")], now_s=0)
    merger.apply("a", delta("a", cell("x"), full=True), now_s=0)
    merger.apply("b", delta("b", cell("x"), full=True), now_s=0)
    merger.disconnected("b")
    merger.apply("a", delta("a", removed=("x",)), now_s=1)
    assert not merger.view(now_s=1).cells


def test_ages_grow_by_the_time_held_and_unknown_ages_stay_unknown(merger: ViewMerger) -> None:
    telemetry = Telemetry(engine=EngineReading(queue_requests=3.0), engine_age_s=0.4)
    merger.apply("a", delta("a", replace(cell("x"), telemetry=telemetry), full=True), now_s=10)
    merger.disconnected("a")
    (held,) = merger.cells_now(now_s=15)
    assert held.telemetry.engine_age_s == pytest.approx(5.4)
    assert held.telemetry.gpu_age_s is None


def test_a_cell_without_news_is_the_same_object_and_one_with_news_has_its_age_of_now(merger: ViewMerger) -> None:
    telemetry = Telemetry(engine=EngineReading(queue_requests=3.0), engine_age_s=0.4)
    merger.apply("a", delta("a", replace(cell("x"), telemetry=telemetry), cell("y"), full=True), now_s=10)
    first = by_id(merger.view(now_s=11))
    assert first["x"].telemetry.engine_age_s == pytest.approx(1.4)
    merger.apply("a", delta("a", cell("y", sequence=2)), now_s=12)
    second = by_id(merger.view(now_s=12))
    assert second["x"] is first["x"]
    assert second["y"] is not first["y"]


def test_a_drain_known_to_one_connected_control_holds(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", replace(cell("x", sequence=1), draining=True, state=DRAINING), full=True), now_s=0)
    merger.apply("b", delta("b", cell("x", sequence=2), full=True), now_s=0)
    assert by_id(merger.view(now_s=0))["x"].state is DRAINING
    merger.disconnected("a")
    assert by_id(merger.view(now_s=0))["x"].state is READY


def test_a_drain_ends_when_every_control_that_holds_it_has_let_go(merger: ViewMerger) -> None:
    drained = replace(cell("x", sequence=1), draining=True, state=DRAINING)
    merger.apply("a", delta("a", drained, full=True), now_s=0)
    merger.apply("b", delta("b", drained, full=True), now_s=0)
    assert merger.apply("a", delta("a", cell("x", sequence=2)), now_s=1)
    assert by_id(merger.view(now_s=1))["x"].state is DRAINING
    assert merger.apply("b", delta("b", cell("x", sequence=2)), now_s=1)
    assert by_id(merger.view(now_s=1))["x"].state is READY


def test_apply_reports_changes_of_the_life_cycle_and_not_of_telemetry(merger: ViewMerger) -> None:
    assert merger.apply("a", delta("a", cell("x", sequence=1), full=True), now_s=0)
    fresh = replace(cell("x", sequence=2), telemetry=Telemetry(engine_age_s=0.1))
    assert not merger.apply("a", delta("a", fresh), now_s=1)
    assert merger.apply("a", delta("a", cell("x", sequence=3, state=FAULTED)), now_s=2)


def test_restored_cells_yield_to_any_live_word(merger: ViewMerger) -> None:
    merger.restore([cell("x", incarnation="b1", sequence=900)], now_s=0)
    before = merger.ready
    merger.apply("a", delta("a", cell("x", incarnation="b1", sequence=901, state=FAULTED), full=True), now_s=1)
    assert (before, merger.ready) == (False, True)
    assert by_id(merger.view(now_s=1))["x"].state is FAULTED


def test_a_forgotten_unreachable_cell_leaves_after_ten_minutes_only(merger: ViewMerger) -> None:
    merger.restore([cell("x"), cell("y")], now_s=0)
    assert merger.forget(frozenset({"x"}), now_s=FORGET_AFTER_S - 1) == ()
    assert merger.forget(frozenset({"x"}), now_s=FORGET_AFTER_S + 1) == ("x",)
    assert sorted(by_id(merger.view(now_s=0))) == ["y"]


def test_a_cell_nobody_has_heard_of_yet_does_not_replace_what_is_known(merger: ViewMerger) -> None:
    merger.apply("a", delta("a", cell("x", sequence=3), full=True), now_s=0)
    placeholder = cell("x", incarnation="", sequence=0, state=CellState.LOADING)
    merger.apply("a", delta("a", placeholder, full=True, incarnation="c2"), now_s=1)
    assert by_id(merger.view(now_s=1))["x"].state is READY
