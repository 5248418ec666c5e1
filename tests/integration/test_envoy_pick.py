"""The chain of `routing: pick` on a real Envoy: the picker's answer is obeyed, and its absence costs no request."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, Reply
from tests.support.edge import Edge
from tests.support.picker import Picker, picking_edge
from tradewind.gateway.pick.server import Question
from tradewind.gateway.pick.server import Reply as PickReply
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds.settings import ResidencyRule

PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
EU = ResidencyRule(name="eu-only", header="x-region", value="eu", sites=("eu",))


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        started = [stack.enter_context(FakeEngine()) for _ in range(3)]
        for i, engine in enumerate(started):
            engine.on(PATH, Reply(headers=(("x-engine", str(i)),), body=b"{}"))
        yield started


@pytest.fixture
def edge(tmp_path: Path, engines: list[FakeEngine]) -> Iterator[tuple[Edge, Picker]]:
    with picking_edge(tmp_path) as (edge, picker):
        edge.route({"m": [(e.address, 1) for e in engines]})
        yield edge, picker


def cell(engine: FakeEngine, decision: str = "d1", model: str = "m") -> PickReply:
    headers = (("x-tw-cell", engine.address), ("x-tw-pool", model), ("x-tw-decision", decision))
    return PickReply(200, headers)


def served(edge: Edge, count: int) -> Counter[str]:
    return Counter(edge.post(BODY).headers["x-engine"] for _ in range(count))


def test_the_answer_is_obeyed_and_joined_with_the_outcome(edge: tuple[Edge, Picker], engines: list[FakeEngine]) -> None:
    front, picker = edge
    picker.answer = lambda question: cell(engines[2], "d-7")
    answer = front.post(BODY, headers={"x-request-id": "one", "x-tw-cell": engines[0].address, "authorization": "key"})
    assert answer.headers["x-engine"] == "2"
    assert not [name for name in answer.headers if name.startswith("x-tw-")]
    outcome = front.outcome("one")
    assert outcome.decision_id == "d-7"
    assert outcome.cell_id == engines[2].address
    question = picker.questions[-1]
    assert json.loads(question.body) == BODY
    assert question.path == PATH
    assert question.headers["x-request-id"] == "one"
    assert "authorization" not in question.headers  # a key never leaves Envoy


def test_a_refusal_reaches_the_client_unchanged(edge: tuple[Edge, Picker]) -> None:
    front, picker = edge
    body = b'{"error":{"message":"busy"}}'
    picker.answer = lambda question: PickReply(429, (("retry-after", "7"), ("content-type", "application/json")), body)
    answer = front.post(BODY)
    assert (answer.status, answer.headers["retry-after"], answer.body) == (429, "7", body)


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "not an address", "127.0.0.1:99999"])
def test_a_cell_that_is_not_in_the_pool_is_replaced_by_the_weights(edge: tuple[Edge, Picker], wrong: str) -> None:
    """FC-47."""
    front, picker = edge
    picker.answer = lambda question: PickReply(200, (("x-tw-cell", wrong), ("x-tw-pool", "m"), ("x-tw-decision", "d")))
    assert {front.post(BODY).status for _ in range(6)} == {200}


def test_5xx_and_a_dead_picker_leave_the_request_to_the_shares(edge: tuple[Edge, Picker]) -> None:
    """FC-46: killed, answering 500, and back."""
    front, picker = edge
    picker.answer = lambda question: PickReply(500)
    assert all(abs(count - 10) <= 1 for count in served(front, 30).values())
    picker.stop()
    assert all(abs(count - 10) <= 1 for count in served(front, 30).values())
    picker.start()
    asked = len(picker.questions)
    served(front, 1)
    assert len(picker.questions) == asked + 1


def test_a_slow_picker_costs_its_timeout_and_no_request(edge: tuple[Edge, Picker], engines: list[FakeEngine]) -> None:
    """FC-46: frozen for 0.3 s."""
    front, picker = edge

    def slow(question: Question) -> PickReply:
        time.sleep(0.3)
        return cell(engines[0])

    picker.answer = slow
    started_s = time.monotonic()
    assert front.post(BODY).status == 200
    assert time.monotonic() - started_s < 0.25


def test_other_paths_do_not_ask(edge: tuple[Edge, Picker]) -> None:
    front, picker = edge
    assert front.get("/v1/models").status == 200
    assert front.get("/nowhere").status == 404
    assert not picker.questions


def test_a_long_body_is_shown_in_part_and_sent_in_full(edge: tuple[Edge, Picker], engines: list[FakeEngine]) -> None:
    """FC-22."""
    front, picker = edge
    picker.answer = lambda question: cell(engines[1])
    long = {"messages": [{"role": "user", "content": "x" * 3_000_000}], "model": "m"}
    answer = front.post(long)
    assert answer.headers["x-engine"] == "1"
    assert len(picker.questions[-1].body) == 2**16
    assert picker.questions[-1].headers["x-envoy-auth-partial-body"] == "true"
    assert json.loads(engines[1].requests(PATH)[-1].body) == long


def test_first_tokens_of_streams_come_with_the_next_question(
    edge: tuple[Edge, Picker], engines: list[FakeEngine]
) -> None:
    front, picker = edge
    picker.answer = lambda question: cell(engines[0], f"d-{len(picker.questions)}")
    events = tuple(f"data: {i}\n\n".encode() for i in range(3))
    engines[0].on(PATH, Reply(content_type="text/event-stream", chunks=events, gap_s=0.05))
    try:
        assert front.stream(BODY).complete
        front.stream(BODY)
    finally:
        engines[0].on(PATH, Reply(headers=(("x-engine", "0"),), body=b"{}"))
    told = picker.questions[-1].headers["x-tw-first"]
    decision, _, age_ms = told.partition(":")
    assert decision == "d-1"
    assert 90 <= int(age_ms) < 5_000  # two gaps of 50 ms after the first token


def test_residency_holds_on_every_path(tmp_path: Path, engines: list[FakeEngine]) -> None:
    """FC-60: picker obeyed, dead, lying; the allowed cell dead; a value without a rule."""
    sites = {engines[0].address: "us", engines[1].address: "us", engines[2].address: "eu"}

    def routing(*, eu: bool) -> Routing:
        endpoints = tuple(
            Endpoint(cell_id=address, site=site, address=address, weight=1)
            for address, site in sorted(sites.items())
            if eu or site != "eu"
        )
        return Routing(pools=(PoolRouting(model="m", endpoints=endpoints),))

    with picking_edge(tmp_path, residency=(EU,)) as (front, picker):
        front.publish(routing(eu=True))

        def ask(value: str = "eu") -> tuple[int, str]:
            answer = front.post(BODY, headers={"x-region": value})
            return answer.status, answer.headers.get("x-engine", "")

        assert {ask() for _ in range(6)} == {(200, "2")}  # 503: the shares of the rule's own part
        picker.answer = lambda question: cell(engines[0])
        assert {ask() for _ in range(6)} == {(200, "2")}  # a wrong answer
        assert front.post(BODY).headers["x-engine"] == "0"  # nobody else is narrowed
        assert ask("us")[0] == 403
        assert ask("eu, us")[0] == 403
        picker.stop()
        assert {ask() for _ in range(6)} == {(200, "2")}
        front.publish(routing(eu=False))
        answer = front.post(BODY, headers={"x-region": "eu"})
        assert answer.status == 503
        assert "eu-only" in answer.json()["error"]["message"]  # type: ignore[index]
        picker.start()
