"""The first-token gate on a real Envoy: what becomes of a stream, by what its engine does before its first token.

All rows run at once, each with a pool of its own; engine A is picked first. `bare` rows have no gate.
"""

import http.client
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, Reply, json_reply, sse_reply
from tests.support.edge import Edge, Received, wait_for
from tests.support.picker import picking_edge
from tradewind.core.outcomes import Kind, kind_of_attempt
from tradewind.gateway.envoy import executable
from tradewind.gateway.gate.probe import Prober, library_dir
from tradewind.gateway.pick.late import LateSettings, orders
from tradewind.gateway.pick.server import Question
from tradewind.gateway.pick.server import Reply as PickReply
from tradewind.model.outcome import Outcome
from tradewind.xds import types
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.cluster import build_cluster
from tradewind.xds.gate.filter import wasm_code
from tradewind.xds.settings import GateModule
from tradewind.xds.snapshot import Resource

CHAT = "/v1/chat/completions"
BARE = "bare-"
GAP_S = 0.02
TOKENS = 16

COMMENT = b": keep-alive\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
ERROR = b'data: {"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","code":500}}\n\n'


def stream_of(engine: str) -> Reply:
    """A whole stream whose tokens name their engine."""
    return sse_reply([f"{engine}{number} " for number in range(TOKENS)], gap_s=GAP_S)


def sse(*chunks: bytes, **how: object) -> Reply:
    return Reply(chunks=chunks, content_type="text/event-stream", **how)  # type: ignore[arg-type]


def text_of(reply: Reply) -> bytes:
    return b"".join(reply.chunks or (reply.body,))


A, B = stream_of("a"), stream_of("b")
DIES = sse(cut_after=0, reset=True, linger_s=0.1)
FAILS = sse(ERROR, b"data: [DONE]\n\n")
SILENT = sse(stall=True)


@dataclass(frozen=True)
class Row:
    """What the engines of one pool do, and what the picker orders."""

    a: Reply
    b: Reply = B
    c: Reply | None = None
    timeout_s: float = 0.0
    hedge_s: float = 0.0
    leaves: bool = False  # the client, once A has its request
    patience_s: float = 20.0
    stream: bool = True


ROWS: dict[str, Row] = {
    "healthy": Row(A),
    "reset": Row(DIES),
    "closed": Row(sse(cut_after=0, linger_s=0.1)),
    "clean-end": Row(sse(linger_s=0.1)),
    "no-body": Row(Reply(content_type="text/event-stream")),
    "comment-then-reset": Row(sse(COMMENT, cut_after=0, reset=True, linger_s=0.1)),
    "role-then-reset": Row(sse(ROLE, cut_after=0, reset=True, linger_s=0.1)),
    "error-first": Row(FAILS),
    "role-then-error": Row(sse(ROLE, ERROR, b"data: [DONE]\n\n")),
    "json": Row(Reply(body=b'{"choices":[]}'), stream=False),
    "full": Row(json_reply({"error": {"message": "queue full", "code": 503}}, status=503)),
    "cut-after-tokens": Row(replace(A, chunks=(A.chunks or ())[:5], cut_after=0, reset=True)),
    "all-die": Row(DIES, DIES, DIES),
    "all-fail": Row(FAILS, FAILS, FAILS),
    "client-leaves": Row(SILENT, leaves=True),
    "timeout": Row(SILENT, timeout_s=0.4),
    "timeout-after-comment": Row(sse(COMMENT, stall=True), timeout_s=0.4),
    "all-time-out": Row(SILENT, SILENT, SILENT, timeout_s=0.3),
    "long-stream": Row(replace(A, gap_s=0.1), timeout_s=0.4),
    "hedge": Row(SILENT, hedge_s=0.4),
    "hedge-first-wins": Row(replace(A, first_gap_s=0.6), replace(B, first_gap_s=0.6), hedge_s=0.4),
    "hedge-in-time": Row(A, hedge_s=0.4),
    BARE + "reset": Row(DIES),
    BARE + "error-first": Row(FAILS),
    BARE + "timeout": Row(SILENT, timeout_s=0.4, patience_s=1.5),
}


@dataclass
class Ran:
    """What became of one row."""

    row: Row
    engines: list[FakeEngine]
    answer: Received
    took_s: float
    outcome: Outcome
    counts_one: bool  # the native gate tells the access log of two deaths only

    @property
    def seen(self) -> list[int]:
        """Requests by engine."""
        return [len(engine.requests(CHAT)) for engine in self.engines]


class MatrixBuilder(SnapshotBuilder):
    """Pools named `bare-` get no gate."""

    def _cluster(self, name: str) -> Resource:
        if BARE not in name:
            return super()._cluster(name)
        message = build_cluster(name, replace(self._settings, gate=None))
        return Resource.of(types.CLUSTER, name, message.SerializeToString(deterministic=True))


@contextmanager
def engines_of(row: Row) -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        replies = [reply for reply in (row.a, row.b, row.c) if reply is not None]
        engines = [stack.enter_context(FakeEngine()) for _ in replies]
        for engine, reply in zip(engines, replies, strict=True):
            engine.on(CHAT, reply)
        yield engines


def answer(question: Question, first: Mapping[str, str]) -> PickReply:
    """Engine A of the row, with the row's limits, as the gateway's own desk words them."""
    body = json.loads(question.body)
    name = body["model"]
    row = ROWS[name]
    late = LateSettings(
        timeout_factor=1.0 if row.timeout_s else 0.0,
        timeout_min_s=row.timeout_s,
        hedge_header="x-class" if row.hedge_s else "",
        hedge_value="live",
        hedge_after_s=row.hedge_s,
    )
    told = orders(late, stream=body["stream"], expected_s=0.0, asked={"x-class": "live"})
    return PickReply(200, (("x-tw-cell", first[name]), ("x-tw-pool", name), ("x-tw-decision", name), *told))


def run(edge: Edge, name: str, engines: list[FakeEngine]) -> Ran:
    row, started_s = ROWS[name], time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", edge.port, timeout=row.patience_s)
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "stream": row.stream}
    received = Received(0)
    try:
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json", "x-request-id": name})
        if row.leaves:
            wait_for(lambda: bool(engines[0].requests(CHAT)))
        else:
            response = connection.getresponse()
            received.status = response.status
            while part := response.read1(65536):
                received.parts.append((time.monotonic() - started_s, part))
            received.complete = response.isclosed() or not response.chunked
    except (http.client.HTTPException, OSError):
        pass
    finally:
        connection.close()
    took_s = time.monotonic() - started_s
    counts_one = bool(edge.settings.gate and edge.settings.gate.code)
    return Ran(row, engines, received, took_s, edge.outcome(name), counts_one)


def gate_named(kind: str, folder: Path) -> GateModule:
    """The gate in one of its two forms."""
    if kind == "wasm":
        return GateModule(code=wasm_code())
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    finding, library = Prober(executable(), folder).native()
    assert finding.accepted, finding.why
    return GateModule(library=library)


@pytest.fixture(scope="module", params=["wasm", "native"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    folder = tmp_path_factory.mktemp(request.param)
    gate = gate_named(request.param, folder)
    with ExitStack() as stack:
        edge, picker = stack.enter_context(picking_edge(folder, timeout_s=5.0, gate=gate, modules=library_dir(folder)))
        edge.builder = MatrixBuilder(edge.settings)
        engines = {name: stack.enter_context(engines_of(row)) for name, row in ROWS.items()}
        first = {name: pool[0].address for name, pool in engines.items()}
        picker.answer = partial(answer, first=first)
        edge.route({name: [(engine.address, 1) for engine in pool] for name, pool in engines.items()})
        with ThreadPoolExecutor(len(ROWS)) as pool:
            futures = {name: pool.submit(run, edge, name, engines[name]) for name in ROWS}
            results = {name: future.result() for name, future in futures.items()}
        yield results


# Served by B as if A had never been asked; how the attempt on A counts, as evidence about A.
MADE_GOOD = {
    "reset": Kind.UNREACHED,
    "closed": Kind.UNREACHED,
    "clean-end": Kind.FAILURE,
    "no-body": Kind.FAILURE,
    "comment-then-reset": Kind.UNREACHED,
    "role-then-reset": Kind.UNREACHED,
    "error-first": Kind.FAILURE,
    "role-then-error": Kind.FAILURE,
    "full": Kind.BACKPRESSURE,
    "timeout": Kind.IGNORED,
    "timeout-after-comment": Kind.IGNORED,
    "hedge": Kind.IGNORED,
}


@pytest.mark.parametrize("name", MADE_GOOD)
def test_a_stream_that_loses_its_engine_before_the_first_token_is_served_by_another(
    ran: dict[str, Ran], name: str
) -> None:
    one = ran[name]
    assert (one.answer.status, one.answer.text, one.answer.complete) == (200, text_of(B), True)
    assert one.seen == [1, 1]
    outcome = one.outcome
    assert (outcome.status, outcome.attempts, outcome.stream_error_code) == (200, 2, None)
    assert outcome.attempted_cells == (one.engines[0].address, one.engines[1].address)
    assert [kind_of_attempt(reason) for reason in outcome.attempt_failures] == [MADE_GOOD[name]]
    died = MADE_GOOD[name] in (Kind.UNREACHED, Kind.FAILURE)
    assert outcome.deaths == (died and one.counts_one)
    assert outcome.ttft_s is not None
    assert one.answer.parts[0][0] == pytest.approx(outcome.ttft_s, abs=0.5), "counted from the request's arrival"


@pytest.mark.parametrize("name", ["healthy", "long-stream", "hedge-in-time"])
def test_a_healthy_stream_passes_as_it_is(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    assert (one.answer.status, one.answer.text, one.answer.complete) == (200, text_of(one.row.a), True)
    assert one.seen == [1, 0]
    times = [at_s for at_s, _ in one.answer.parts]
    assert len(times) > TOKENS // 2, "tokens come one by one"
    assert times[-1] - times[0] > one.row.a.gap_s * (TOKENS - 2)
    assert one.outcome.attempts == 1


def test_answers_that_are_no_streams_are_untouched(ran: dict[str, Ran]) -> None:
    one = ran["json"]
    assert (one.answer.status, one.answer.text, one.seen) == (200, one.row.a.body, [1, 0])


def test_a_cut_after_tokens_is_a_cut(ran: dict[str, Ran]) -> None:
    one = ran["cut-after-tokens"]
    assert (one.answer.status, one.answer.text, one.answer.complete) == (200, text_of(one.row.a), False)
    assert one.seen == [1, 0]


@pytest.mark.parametrize("name", ["all-die", "all-fail"])
def test_no_third_engine_is_given_a_request_that_ended_two(ran: dict[str, Ran], name: str) -> None:
    """The client has a status and a body that say so."""
    one = ran[name]
    assert one.answer.status == 422
    assert json.loads(one.answer.text)["error"]["code"] == "request_ends_engines"
    assert sum(one.seen) == one.outcome.deaths == 2


@pytest.mark.parametrize("kind", ["wasm", "native"])
def test_how_many_engines_may_end_under_a_request_is_configured(kind: str, tmp_path: Path) -> None:
    gate = replace(gate_named(kind, tmp_path), deaths=3)
    with ExitStack() as stack:
        edge, picker = stack.enter_context(
            picking_edge(tmp_path, timeout_s=5.0, gate=gate, modules=library_dir(tmp_path))
        )
        edge.builder = MatrixBuilder(edge.settings)
        engines = stack.enter_context(engines_of(ROWS["all-die"]))
        picker.answer = partial(answer, first={"all-die": engines[0].address})
        edge.route({"all-die": [(engine.address, 1) for engine in engines]})
        one = run(edge, "all-die", engines)
    assert one.seen == [1, 1, 1]
    assert one.answer.status == 422


def test_a_client_that_leaves_while_the_headers_are_held_is_not_retried(ran: dict[str, Ran]) -> None:
    one = ran["client-leaves"]
    wait_for(lambda: one.engines[0].requests(CHAT)[0].aborted_s is not None)
    assert one.seen == [1, 0]
    assert one.outcome.client_cancelled


@pytest.mark.parametrize("name", ["timeout", "timeout-after-comment", "hedge"])
def test_a_late_attempt_is_dropped_by_its_engine(ran: dict[str, Ran], name: str) -> None:
    """A time limit ends it when it strikes, a hedge when the other has won; neither is a death."""
    one = ran[name]
    late, other = (engine.requests(CHAT)[0] for engine in one.engines)
    wait_for(lambda: late.aborted_s is not None)
    assert late.aborted_s is not None
    limit_s = one.row.timeout_s or one.row.hedge_s
    assert limit_s * 0.9 < other.at_s - late.at_s < limit_s + 1.0
    assert (late.aborted_s >= other.at_s + GAP_S * 0.9) is (name == "hedge")


def test_a_hedge_that_comes_too_late_gives_way(ran: dict[str, Ran]) -> None:
    one = ran["hedge-first-wins"]
    assert (one.answer.text, one.answer.complete, one.seen) == (text_of(A), True, [1, 1])
    hedge = one.engines[1].requests(CHAT)[0]
    wait_for(lambda: hedge.aborted_s is not None)
    assert [kind_of_attempt(reason) for reason in one.outcome.attempt_failures] == [Kind.IGNORED]
    assert one.outcome.deaths == 0
    assert one.outcome.cell_id == one.engines[0].address


def test_late_engines_are_not_dead_ones(ran: dict[str, Ran]) -> None:
    """Every attempt that limits.retries allows is made, and the client hears of silence, not of deaths."""
    one = ran["all-time-out"]
    assert one.answer.status == 504
    assert json.loads(one.answer.text)["error"]["code"] == "idle_timeout"
    assert sum(one.seen) == one.outcome.attempts == 4
    assert one.outcome.deaths == 0


def test_without_the_gate_all_this_is_lost(ran: dict[str, Ran]) -> None:
    reset, failed, silent = (ran[BARE + name] for name in ("reset", "error-first", "timeout"))
    assert (reset.answer.status, reset.answer.text, reset.answer.complete, reset.seen) == (200, b"", False, [1, 0])
    assert (failed.answer.status, failed.answer.text, failed.seen) == (200, text_of(FAILS), [1, 0])
    assert (silent.answer.status, silent.answer.text, silent.seen) == (200, b"", [1, 0])
    assert silent.took_s > silent.row.patience_s * 0.9
