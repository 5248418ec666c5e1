"""The desk: a question becomes a cell, an outcome comes back to its decision, and no fault of ours loses a request."""

import gzip
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fakes.views import ready_cell
from tradewind.config.schema import GatewayConfig, GridConfig, PickConfig, ResidencyConfig
from tradewind.gateway.pick.build import make_desk
from tradewind.gateway.pick.desk import PickDesk
from tradewind.gateway.pick.explain import explain
from tradewind.gateway.pick.server import Question, Reply
from tradewind.gateway.requests.result import ParsedRequest
from tradewind.model.decision import RefusalKind
from tradewind.model.outcome import Outcome
from tradewind.model.view import GridView, ViewVersion

ADDRESSES = {"a": "10.0.0.1:80", "b": "10.0.0.2:80", "c": "10.0.0.3:80"}
VIEW = GridView(
    version=ViewVersion(control_id="c0", incarnation="i", counter=1),
    cells=tuple(ready_cell(cell, address, site=f"site-{cell}") for cell, address in ADDRESSES.items()),
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def desk(*, seed: int = 1, clock: Clock | None = None, view: GridView = VIEW, **gateway: object) -> PickDesk:
    section = GatewayConfig(id="gw", routing="pick", **gateway)  # type: ignore[arg-type]
    made = make_desk(GridConfig(gateways=[section]), section, clock=clock or Clock(), rng=random.Random(seed))
    assert made is not None
    made.observe_view(view, 100.0)
    return made


def ask(at: PickDesk, body: object, path: str = "/v1/chat/completions", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return at.answer(Question(path, {"x-request-id": "r", **named}, data))


def told(reply: Reply, name: str) -> str:
    return dict(reply.headers)[name]


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_a_question_is_answered_with_a_cell_of_the_pool() -> None:
    reply = ask(desk(), CHAT)
    assert reply.status == 200
    assert told(reply, "x-tw-cell") in ADDRESSES.values()
    assert told(reply, "x-tw-pool") == "m"


def test_what_is_not_certain_is_left_to_the_shares() -> None:
    at = desk()
    bodies: tuple[object, ...] = (
        b"",
        b"[]",
        b"null",
        {"messages": []},
        {"model": 5},
        {"model": "unknown"},
        b'{"model":"m\xff',
    )
    for body in bodies:
        assert ask(at, body).status == 503
    assert at.counters.faults == 0
    assert at.counters.left == 7


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_fc_23_a_bomb_is_the_clients_fault_even_with_a_single_pool(coding: str) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    if coding == "zstd":
        packers["zstd"] = pytest.importorskip("zstandard").ZstdCompressor().compress
    at = desk()
    for named in ({}, {"tradewind_model": "m"}):
        reply = ask(at, packers[coding](bytes(64 << 20)), content_encoding=coding, **named)
        assert reply.status == 413
        assert json.loads(reply.body)["error"]["code"] == "request_too_large"
    assert (at.counters.refused, at.counters.left) == (2, 0)
    assert at.picker.counters.refusals == {RefusalKind.TOO_LARGE: 2}
    assert explain(at, "r", gateway_id="gw", now_s=110.0).how == "refused"


def test_the_outcome_releases_once_and_only_of_this_process() -> None:
    clock = Clock()
    at = desk(clock=clock)
    name = told(ask(at, CHAT), "x-tw-decision")
    assert sum(load.requests for load in at.picker.outstanding().values()) == 1
    ended = Outcome(request_id="r", cell_id="a", status=200, prompt_tokens=9, decision_id=name)
    at.on_outcome(ended._replace(decision_id=told(ask(desk(seed=2), CHAT), "x-tw-decision")), 101.0)
    assert sum(load.requests for load in at.picker.outstanding().values()) == 1
    at.on_outcome(ended, 101.0)
    at.on_outcome(ended, 101.0)
    assert at.picker.outstanding() == {}
    assert (at.counters.foreign, at.picker.ledger.released, at.picker.ledger.unknown) == (1, 1, 1)


def test_first_tokens_ride_on_the_next_question_whatever_else_stands_there() -> None:
    at = desk()
    name = told(ask(at, CHAT), "x-tw-decision")
    ask(at, CHAT, x_tw_first=f"{name}:40,,x,{name}:-1,other-d1:5,{name}:9999999999999")
    assert at.counters.first_tokens == 1
    assert [load.decoding for load in at.picker.outstanding().values() if load.decoding] == [1]


def test_fc_29_a_follow_up_goes_to_the_cell_that_holds_the_response() -> None:
    at = desk()
    first = {"model": "m", "input": "hello", "store": True}
    name = told(ask(at, first, "/v1/responses"), "x-tw-decision")
    at.on_outcome(Outcome(request_id="r", cell_id="b", status=200, decision_id=name, stored_id="resp_1"), 101.0)
    follow = {"model": "m", "input": "and?", "previous_response_id": "resp_1"}
    assert {told(ask(at, follow, "/v1/responses"), "x-tw-cell") for _ in range(20)} == {ADDRESSES["b"]}
    stranger = {**follow, "previous_response_id": "resp_2"}
    assert len({told(ask(at, stranger, "/v1/responses"), "x-tw-cell") for _ in range(60)}) > 1
    left = replace(VIEW, cells=tuple(cell for cell in VIEW.cells if cell.cell.cell_id != "b"))
    at.observe_view(left, 102.0)
    assert ask(at, follow, "/v1/responses").status == 200  # any engine will say that it does not know the id


def test_a_cell_that_left_is_nobodys_home_when_it_comes_back() -> None:
    """Whether or not its engine states a KV capacity; these do not."""
    at = desk()
    name = told(ask(at, {"model": "m", "input": "hello"}, "/v1/responses"), "x-tw-decision")
    at.on_outcome(Outcome(request_id="r", cell_id="b", status=200, decision_id=name, stored_id="resp_1"), 101.0)
    at.observe_view(replace(VIEW, cells=tuple(cell for cell in VIEW.cells if cell.cell.cell_id != "b")), 102.0)
    at.observe_view(VIEW, 103.0)
    follow = {"model": "m", "input": "and?", "previous_response_id": "resp_1"}
    assert len({told(ask(at, follow, "/v1/responses"), "x-tw-cell") for _ in range(60)}) > 1


def test_an_alias_shares_its_prefixes_with_the_base_and_an_adapter_does_not() -> None:
    cells = [ready_cell(cell, address, models=("lora", "m", "z")) for cell, address in ADDRESSES.items()]
    known = [replace(item.cell.capabilities, lora_models=("lora",)) for item in cells]
    cells = [replace(item, cell=replace(item.cell, capabilities=caps)) for item, caps in zip(cells, known, strict=True)]
    at = desk(view=replace(VIEW, cells=tuple(cells)))

    def blocks(model: str) -> tuple[int, ...]:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hello " * 500}]}).encode()
        parsed = at.read(body, path="/v1/chat/completions", headers={}, partial=False)
        assert isinstance(parsed, ParsedRequest)
        assert parsed.request.model == model
        return parsed.request.blocks

    assert blocks("m") == blocks("z") != ()
    assert not set(blocks("lora")) & set(blocks("m"))
    at.observe_view(replace(VIEW, cells=(ready_cell("a", ADDRESSES["a"], models=("m",)),)), 101.0)
    assert blocks("m") != blocks("z"), "nobody says so any more"


def test_fc_60_residency_narrows_the_choice() -> None:
    rule = ResidencyConfig(name="r", header="x-region", value="c", sites=["site-c"])
    at = desk(residency=[rule])
    assert {told(ask(at, CHAT, x_region="c"), "x-tw-cell") for _ in range(20)} == {ADDRESSES["c"]}
    at.observe_view(replace(VIEW, cells=VIEW.cells[:2]), 101.0)
    assert ask(at, CHAT, x_region="c").status == 503  # the shares of the rule's own part say so


def test_reasons_are_for_those_who_know_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TW_TEST_EXPLAIN", "secret")
    at = desk(pick=PickConfig(explain_key_env="TW_TEST_EXPLAIN"))
    assert "tradewind-cell" not in dict(ask(at, CHAT).headers)
    assert "tradewind-cell" not in dict(ask(at, CHAT, tradewind_explain="guess").headers)
    reply = ask(at, CHAT, tradewind_explain="secret")
    assert told(reply, "tradewind-cell") in ADDRESSES
    assert told(reply, "tradewind-reason")


def test_a_fault_of_ours_costs_the_pick_and_not_the_request() -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    at = desk()
    at.picker.pick = broken  # type: ignore[method-assign, assignment]
    assert ask(at, CHAT).status == 503
    assert at.counters.faults == 1


def test_429_of_every_cell_is_told_with_the_true_wait() -> None:
    clock = Clock()
    at = desk(clock=clock)
    for cell, wait_s in (("a", 9.0), ("b", 5.0), ("c", 7.0)):
        replies = (ask(at, CHAT) for _ in range(1_000))
        name = next(told(reply, "x-tw-decision") for reply in replies if told(reply, "x-tw-cell") == ADDRESSES[cell])
        busy = Outcome(request_id="r", cell_id=cell, status=429, decision_id=name, retry_after_s=wait_s)
        at.on_outcome(busy, clock.now_s)
    reply = ask(at, CHAT)
    assert (reply.status, told(reply, "retry-after")) == (429, "5")


def ended(at: PickDesk, reply: Reply, *, deaths: int, now_s: float) -> None:
    outcome = Outcome("r", None, status=422, deaths=deaths, attempted_cells=("a", "b"))
    at.on_outcome(outcome._replace(decision_id=told(reply, "x-tw-decision")), now_s)


def test_a_request_that_ends_engines_is_kept_from_them_for_a_while() -> None:
    clock = Clock()
    at = desk(clock=clock)
    ended(at, ask(at, CHAT), deaths=1, now_s=clock.now_s)
    ended(at, ask(at, CHAT), deaths=2, now_s=clock.now_s)
    clock.now_s += 59.0
    reply = ask(at, CHAT)
    assert reply.status == 422  # which no client library sends again
    assert json.loads(reply.body)["error"]["code"] == "request_ends_engines"
    assert explain(at, "r", gateway_id="gw", now_s=clock.now_s).how == "refused"
    assert ask(at, {**CHAT, "user": "another"}).status == 200
    clock.now_s += 1.0
    assert ask(at, CHAT).status == 200


def test_a_quarantine_that_is_switched_off_refuses_nobody() -> None:
    at = desk()
    at.configure(replace(at.settings, quarantine=replace(at.settings.quarantine, first_s=0.0)))
    ended(at, ask(at, CHAT), deaths=2, now_s=100.0)
    assert ask(at, CHAT).status == 200
