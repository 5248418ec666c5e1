"""What is remembered of requests: bounded, joined with their outcome, newest under an id."""

from tradewind.gateway.pick.memory import MAX_ID_CHARS, Memory
from tradewind.model.decision import Decision
from tradewind.model.outcome import Outcome


def decision(number: int, request_id: str = "r") -> Decision:
    return Decision(decision_id=f"d{number}", request_id=request_id, policy="cost", cell_id="a", address="x:1")


def outcome(name: str = "", request_id: str = "r") -> Outcome:
    return Outcome(request_id=request_id, cell_id="a", status=200, decision_id=name, duration_s=2.0)


def test_the_oldest_goes_at_the_bound_and_the_reach_says_so() -> None:
    memory = Memory(most=3)
    for number in range(5):
        memory.asked(f"r{number}", decision(number), float(number), name=f"b-d{number}")
    assert len(memory) == 3
    assert memory.story("r1") is None
    assert memory.story("r2") is not None
    assert memory.reach_s(10.0) == 8.0
    assert Memory().reach_s(10.0) is None


def test_an_id_that_is_used_again_stands_for_its_newest_request() -> None:
    memory = Memory()
    memory.asked("r", decision(1), 1.0, name="b-d1")
    memory.asked("r", decision(2), 2.0, name="b-d2")
    assert memory.ended(outcome("b-d1"), 3.0) is None
    story = memory.ended(outcome("b-d2"), 4.0)
    assert story is not None
    assert (story.name, story.ended_s) == ("b-d2", 4.0)
    unasked = memory.ended(outcome(), 5.0)
    assert unasked is not story
    assert unasked is memory.story("r")
    assert unasked is not None
    assert unasked.started_s == 3.0  # it took two seconds


def test_ids_that_are_too_long_or_empty_are_not_kept() -> None:
    memory = Memory()
    for request_id in ("", "r" * (MAX_ID_CHARS + 1)):
        memory.asked(request_id, "unreadable", 1.0)
        memory.ended(outcome(request_id=request_id), 2.0)
    assert len(memory) == 0
