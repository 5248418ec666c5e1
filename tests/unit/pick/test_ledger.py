"""What is in flight: booked at once, released once, never negative, nothing left when it is quiet (FC-12, FC-47)."""

from random import Random

import pytest

from tests.unit.pick.fakes import FakeIndex, blocks, cell_view, grid, outcome, picked, picker, request
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.pick.settings import PickSettings
from tradewind.model.decision import Decision
from tradewind.model.outcome import Outcome
from tradewind.model.telemetry import EngineReading

CELLS = ("a", "b", "c")


def nothing_in_flight(made: Picker) -> None:
    assert made.outstanding() == {}
    assert len(made.ledger) == 0
    for cell in made.fleet.cells():
        work = cell.work
        counts = (work.requests, work.waiting, work.decoding, work.kv_tokens, work.need_tokens)
        assert (*counts, work.prompt_tokens, work.waiting_tokens) == (0,) * 7
        assert work.waiting_s == 0.0
        assert work.backlog_s(1e9) == 0.0


def test_a_request_is_in_one_place_at_a_time() -> None:
    made = picker(cell_view("a"))
    decision = picked(made, request(500))
    assert made.outstanding() == {"a": OthersLoad(1, 500, 0)}
    made.first_token(decision.decision_id, 1.3)
    assert made.outstanding() == {"a": OthersLoad(1, 0, 1)}
    made.finished(decision.decision_id, outcome(decision), 2.0)
    nothing_in_flight(made)


def test_a_second_first_token_or_outcome_changes_nothing_but_a_count() -> None:
    made = picker(cell_view("a"))
    decision = picked(made, request())
    other = picked(made, request(), now_s=1.1)
    made.first_token(decision.decision_id, 1.3)
    made.first_token(decision.decision_id, 1.4)
    assert made.ledger.unknown == 0
    made.finished(decision.decision_id, outcome(decision), 2.0)
    made.finished(decision.decision_id, outcome(decision), 2.1)
    made.first_token(decision.decision_id, 2.2)
    assert (made.ledger.released, made.ledger.unknown) == (1, 2)
    assert made.outstanding()["a"].requests == 1
    made.finished(other.decision_id, outcome(other), 3.0)
    nothing_in_flight(made)


def test_a_request_whose_first_token_was_never_told_is_released_at_its_end() -> None:
    made = picker(cell_view("a"))
    for turn, status in enumerate((200, 400, 429, 502)):
        decision = picked(made, request(), now_s=10.0 * turn)
        made.finished(decision.decision_id, outcome(decision, status=status), 10.0 * turn + 0.5)
    nothing_in_flight(made)


def test_work_follows_the_cell_that_really_served() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0}, index=index)
    prompt = blocks(1, 2, 3)
    decision = picked(made, request(384, blocks=prompt, block_tokens=128.0))
    made.served_by(decision.decision_id, "b", 1.1)
    assert set(made.outstanding()) == {"b"}
    made.first_token(decision.decision_id, 1.5)
    assert made.outstanding()["b"].decoding == 1
    made.finished(decision.decision_id, outcome(decision, cell_id="b"), 2.0)
    nothing_in_flight(made)
    assert index.matches(prompt)["b"] == 3
    assert made.counters.moved == 1


def test_an_outcome_from_elsewhere_moves_the_prefix_too() -> None:
    index = FakeIndex()
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0}, index=index)
    prompt = blocks(1, 2, 3)
    decision = picked(made, request(384, blocks=prompt, block_tokens=128.0))
    made.finished(decision.decision_id, outcome(decision, cell_id="b", ttft_s=0.3), 2.0)
    nothing_in_flight(made)
    assert index.matches(prompt)["b"] == 3
    assert made.fleet.cells()[1].work.slowness.factor == 1.0, "the wrong prediction teaches nothing"


def test_a_lease_releases_what_has_no_outcome() -> None:
    made = picker(cell_view("a"), settings=PickSettings(lease_s=10.0))
    old = picked(made, request(), now_s=1.0)
    picked(made, request(), now_s=6.0)
    assert made.expire(10.9) == 0
    assert made.expire(11.0) == 1
    assert made.outstanding()["a"].requests == 1
    made.finished(old.decision_id, outcome(old), 12.0)
    assert made.outstanding()["a"].requests == 1
    assert (made.ledger.expired, made.ledger.unknown) == (1, 1)
    made.expire(100.0)
    nothing_in_flight(made)


def test_bookings_are_bounded() -> None:
    made = picker(cell_view("a"), settings=PickSettings(max_bookings=3))
    for _ in range(10):
        picked(made, request())
    assert made.outstanding()["a"].requests == 3
    assert made.ledger.expired == 7
    made.expire(1e6)
    nothing_in_flight(made)


def test_without_a_visible_first_token_the_prediction_stands_for_it() -> None:
    made = picker(cell_view("a"))
    decision = picked(made, request(500, stream=False), now_s=1.0)
    later = picked(made, request(500), now_s=9.0)
    assert dict(later.candidates[0].terms)["stall"] == 0, "a long answer is not a stalled prefill"
    assert made.outstanding()["a"] == OthersLoad(2, 500, 1)
    for found in (decision, later):
        made.finished(found.decision_id, outcome(found), 20.0)
    nothing_in_flight(made)


def test_a_cell_removed_and_added_again_inherits_no_phantom() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    decision = picked(made, request())
    made.observe_view(grid(cell_view("b")), 2.0)
    made.observe_view(grid(cell_view("a", incarnation="i2"), cell_view("b")), 3.0)
    assert made.outstanding() == {}
    made.finished(decision.decision_id, outcome(decision), 4.0)
    nothing_in_flight(made)


def test_a_cell_that_only_flickered_in_the_view_keeps_its_work() -> None:
    made = picker(cell_view("a"), cell_view("b"), rtts_s={"b": 2.0})
    decision = picked(made, request())
    made.observe_view(grid(cell_view("b")), 2.0)
    made.observe_view(grid(cell_view("a"), cell_view("b")), 2.1)
    assert made.outstanding()["a"].requests == 1
    made.finished(decision.decision_id, outcome(decision), 4.0)
    nothing_in_flight(made)


def ended(made: Picker, decision: Decision, kind: int, now_s: float) -> Outcome:
    """Seven ends: reset before headers, after a token, half-close, upstream reset early, mid-body, retry, gone."""
    if kind in (1, 4):
        made.first_token(decision.decision_id, now_s)
    if kind == 5:
        others = (decision.cell_id, "b")
        return outcome(decision, cell_id="b", attempts=2, attempted_cells=others, attempt_failures=("503",))
    if kind == 6:
        made.observe_view(grid(*(cell_view(cell) for cell in CELLS if cell != decision.cell_id)), now_s)
        made.observe_view(grid(*(cell_view(cell, incarnation=f"i{now_s}") for cell in CELLS)), now_s)
        return outcome(decision, status=0, flags="UC")
    status, flags = ((0, "DC"), (200, "DC"), (200, ""), (503, "UC"), (200, "UC"))[kind]
    return outcome(decision, status=status, flags=flags, client_cancelled=kind < 2)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_end_mixed(seed: int) -> None:
    """FC-12: 200 each of seven ends, three rounds."""
    rng = Random(seed)
    made = picker(*(cell_view(cell_id) for cell_id in CELLS))
    now_s = 1.0
    for _ in range(3):
        now_s += 10.0
        kinds = rng.sample(list(range(7)) * 200, 1_400)
        asked = [request(rng.randint(1, 9_000), stream=rng.random() < 0.7) for _ in kinds]
        running = [(kind, picked(made, ask, now_s=now_s, rng=rng)) for kind, ask in zip(kinds, asked, strict=True)]
        rng.shuffle(running)
        for kind, decision in running:
            now_s += 0.001
            end = ended(made, decision, kind, now_s)
            made.finished(decision.decision_id, end, now_s)
            if kind == 0:
                made.finished(decision.decision_id, end, now_s)
        nothing_in_flight(made)
    assert made.ledger.released == 3 * 1_400
    assert made.ledger.unknown == 3 * 200


def test_an_engine_restart_empties_what_is_believed_of_its_cache() -> None:
    index = FakeIndex()
    made = picker(cell_view("a", engine=EngineReading(start_time_s=5.0)), index=index)
    index.record("a", blocks(1, 2), 0.0)
    made.observe_view(grid(cell_view("a", incarnation="i2", engine=EngineReading(start_time_s=5.0))), 1.0)
    assert index.matches(blocks(1, 2)) == {"a": 2}, "a new agent is not a new engine"
    made.observe_view(grid(cell_view("a", incarnation="i2", engine=EngineReading(start_time_s=9.0))), 2.0)
    assert index.matches(blocks(1, 2)) == {}
    index.record("a", blocks(1, 2), 3.0)
    made.observe_view(grid(cell_view("a", incarnation="i3")), 4.0)
    assert index.matches(blocks(1, 2)) == {"a": 2}
