"""Explanations: why a request went where it went and what became of it, or how far the memory reaches."""

import pytest

from tests.unit.gateway.test_desk import CHAT, ask, desk, told
from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.explain import Explanation, explain
from tradewind.model.outcome import Outcome


def about(at: PickDesk | None, request_id: str = "r") -> Explanation:
    return explain(at, request_id, gateway_id="gw", now_s=110.0)


def test_a_request_in_flight_is_explained_and_then_its_end() -> None:
    at = desk()
    name = told(ask(at, CHAT), "x-tw-decision")
    found = about(at)
    assert (found.how, found.phase, found.asked_ago_s, found.outcome) == ("pick", "waiting", 10.0, None)
    assert found.decision is not None
    assert found.decision.decision_id == name
    assert len(found.decision.candidates) == 3
    for candidate in found.decision.candidates:
        assert sum(candidate.terms.values()) == pytest.approx(candidate.cost)
    ended = Outcome(request_id="r", cell_id="b", status=200, decision_id=name, ttft_s=0.5, cached_tokens=7)
    at.on_outcome(ended, 109.0)
    found = about(at)
    assert found.outcome is not None
    assert (found.phase, found.outcome.cell_id, found.outcome.cached_tokens) == ("ended", "b", 7)
    assert found.outcome.ended_ago_s == 1.0


def test_what_was_left_to_the_weights_says_why() -> None:
    at = desk()
    ask(at, b"[]")
    assert about(at).how == "weights"
    assert about(at).reason.startswith("the picker left it to the weights: ")
    ask(at, {"model": "unknown", "messages": []})
    assert about(at).reason == "the picker left it to the weights: no cell serves this model"
    at.on_outcome(Outcome(request_id="alone", cell_id="a", status=200), 100.0)
    assert about(at, "alone").reason == "the picker was not asked, or not able to answer in time"


def test_an_answer_that_came_too_late_is_released_and_told() -> None:
    at = desk()
    ask(at, CHAT)
    at.on_outcome(Outcome(request_id="r", cell_id="a", status=200), 101.0)
    assert at.picker.outstanding() == {}
    assert at.counters.late == 1
    found = about(at)
    assert found.how == "weights"
    assert found.reason.endswith("but its answer came too late")


def test_a_connection_that_was_closed_on_an_answer_releases_it_once() -> None:
    at = desk()
    reply = ask(at, CHAT)
    at.unheard(reply, 100.1)
    at.on_outcome(Outcome(request_id="r", cell_id="a", status=200), 101.0)
    assert at.picker.outstanding() == {}
    assert (at.counters.late, at.picker.ledger.released, at.picker.ledger.unknown) == (1, 1, 0)


def test_a_refusal_tells_what_the_client_was_told_and_which_cells_were_out() -> None:
    at = desk()
    while ask(at, CHAT).status == 200:
        picked = about(at).decision
        assert picked is not None
        busy = Outcome(request_id="r", cell_id=picked.cell_id, status=429, decision_id=picked.decision_id)
        at.on_outcome(busy._replace(retry_after_s=9.0), 100.0)
    found = about(at)
    assert (found.how, found.reason) == ("refused", "all cells are busy")
    assert found.excluded == [(cell, "cooling down") for cell in ("a", "b", "c")]


def test_a_decision_of_an_earlier_process_is_told_apart() -> None:
    at = desk()
    at.on_outcome(Outcome(request_id="r", cell_id="a", status=200, decision_id="other-d1"), 101.0)
    assert about(at).how == "earlier"
    assert at.counters.foreign == 1


def test_an_unknown_id_says_how_far_the_memory_reaches() -> None:
    at = desk()
    assert about(at).reason == "no request with this id; none has come since this process started"
    ask(at, CHAT)
    found = about(at, "stranger")
    assert (found.how, found.remembered, found.reach_s) == ("unknown", 1, 10.0)
    assert "in the last 10 s, since the start of this process (1 of at most 4096 kept)" in found.reason
    assert about(None).reason.startswith("this gateway routes by weights")
