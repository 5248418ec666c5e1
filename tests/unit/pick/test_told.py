"""What an engine's KV events, by way of the view, do to what the picker believes of its cache."""

from dataclasses import replace
from random import Random

from tests.unit.pick.fakes import FakeIndex, cell_view, grid, picker, request
from tradewind.core.pick.picker import Picker
from tradewind.model.decision import Decision
from tradewind.model.outcome import Outcome
from tradewind.model.telemetry import CacheReading
from tradewind.model.view import CellView

BLOCKS = (1, 2, 3)


def told(view: CellView, **said: float | None) -> CellView:
    """The cell with what its KV events said."""
    return replace(view, telemetry=replace(view.telemetry, cache=CacheReading(**said)))  # type: ignore[arg-type]


def served(made: Picker, *, status: int = 200) -> None:
    """One request, from its pick at 1 s to its end at 9 s."""
    found = made.pick(replace(request(), blocks=BLOCKS), now_s=1.0, rng=Random(1))
    assert isinstance(found, Decision)
    made.finished(found.decision_id, Outcome(request_id="r", cell_id=found.cell_id, status=status, ttft_s=1.0), 9.0)


def test_what_was_used_last_before_the_horizon_is_dropped() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), cell_view("b"), index=index)
    made.observe_view(grid(told(cell_view("a"), untouched_s=30.0), told(cell_view("b"))), 100.0)
    assert index.trimmed == [("a", 70.0)], "of b nothing is known to have gone"


def test_a_cache_that_was_emptied_is_believed_empty_once() -> None:
    index = FakeIndex()
    made = picker(told(cell_view("a"), clearings=2), index=index)
    index.record("a", BLOCKS, 0.0)
    made.observe_view(grid(told(cell_view("a"), clearings=2, untouched_s=5.0)), 1.0)
    assert index.matches(BLOCKS) == {"a": 3}, "clearings before this gateway began are none of its business"
    made.observe_view(grid(told(cell_view("a"), clearings=3)), 2.0)
    assert index.matches(BLOCKS) == {}
    index.record("a", BLOCKS, 3.0)
    made.observe_view(grid(told(cell_view("a"), clearings=3)), 4.0)
    assert index.matches(BLOCKS) == {"a": 3}


def test_another_agent_process_counts_from_zero() -> None:
    index = FakeIndex()
    view = told(cell_view("a"), clearings=2)
    view = replace(view, telemetry=replace(view.telemetry, engine=None))
    made = picker(view, index=index)
    made.observe_view(grid(view), 0.5)
    index.record("a", BLOCKS, 1.0)
    made.observe_view(grid(cell_view("a")), 2.0)
    made.observe_view(grid(told(cell_view("a"), clearings=0)), 3.0)
    assert index.matches(BLOCKS) == {"a": 3}, "listening ended and began again: nothing says that it was emptied"


def test_a_cache_that_was_emptied_while_nothing_was_told_is_believed_empty_when_it_is() -> None:
    index = FakeIndex()
    made = picker(told(cell_view("a"), clearings=0), index=index)
    index.record("a", BLOCKS, 0.0)
    made.observe_view(grid(cell_view("a")), 1.0)
    assert index.matches(BLOCKS) == {"a": 3}
    made.observe_view(grid(told(cell_view("a"), clearings=1)), 2.0)
    assert index.matches(BLOCKS) == {}


def test_a_request_holds_its_prefix_until_it_ends() -> None:
    index = FakeIndex()
    made = picker(told(cell_view("a")), index=index)
    served(made)
    assert index.touched == [("a", BLOCKS, 9.0)]


def test_nothing_is_believed_of_a_request_that_failed_or_of_a_cell_that_does_not_tell() -> None:
    index = FakeIndex()
    served(picker(told(cell_view("a")), index=index), status=503)
    served(picker(cell_view("a"), index=index))
    assert index.touched == []
