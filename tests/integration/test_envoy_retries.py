"""What Envoy retries, where, and what it never retries."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine, Reply, json_reply
from tests.support.edge import Edge, running_edge, wait_for
from tests.support.envoy import free_port

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge")) as edge:
        yield edge


@pytest.fixture
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FakeEngine()) for _ in range(3)]


def route(edge: Edge, engines: list[FakeEngine], weights: tuple[int, ...] = (1, 1, 1)) -> None:
    edge.route({"m": [(e.address, w) for e, w in zip(engines, weights, strict=True)]})


@pytest.mark.parametrize("weight", [1, 134])
def test_a_dead_picked_cell_is_retried_on_another(edge: Edge, engines: list[FakeEngine], weight: int) -> None:
    """Also where the dead cell holds nearly the whole fallback table."""
    engines[0].kill()
    route(edge, engines, (weight, 1, 1))
    for i in range(20):
        answer = edge.post(BODY, headers={"x-request-id": f"dead-{weight}-{i}"})
        assert answer.status == 200
    outcomes = [edge.outcome(f"dead-{weight}-{i}") for i in range(20)]
    retried = [o for o in outcomes if o.attempts > 1]
    assert len(retried) >= 5
    assert all(o.cell_id != engines[0].address for o in outcomes)
    assert all(o.attempted_cells == (engines[0].address, o.cell_id) for o in retried)
    assert all(o.attempt_failures == ("UF",) for o in retried)


def test_large_prompts_are_retried_too(edge: Edge, engines: list[FakeEngine]) -> None:
    engines[0].kill()
    route(edge, engines, (134, 1, 1))
    body = {"messages": [{"role": "user", "content": "x" * 3_000_000}], "model": "m"}
    assert [edge.post(body).status for _ in range(4)] == [200] * 4
    assert all(seen.body == json.dumps(body).encode() for e in engines[1:] for seen in e.requests(CHAT))


def test_a_cell_that_is_full_is_left_for_another(edge: Edge, engines: list[FakeEngine]) -> None:
    engines[0].on(CHAT, json_reply({"error": {"message": "queue full", "code": 503}}, status=503))
    route(edge, engines)
    for i in range(9):
        assert edge.post(BODY, headers={"x-request-id": f"full-{i}"}).status == 200
    assert sum(edge.outcome(f"full-{i}").attempts - 1 for i in range(9)) == len(engines[0].requests(CHAT)) > 0


def test_503_of_every_cell_reaches_the_client_as_the_engine_wrote_it(edge: Edge, engines: list[FakeEngine]) -> None:
    body = {"error": {"message": "queue full", "code": 503}}
    for engine in engines:
        engine.on(CHAT, Reply(status=503, body=json.dumps(body).encode(), headers=(("retry-after", "7"),)))
    route(edge, engines)
    answer = edge.post(BODY, headers={"x-request-id": "all-full"})
    assert (answer.status, answer.json(), answer.headers["retry-after"]) == (503, body, "7")
    outcome = edge.outcome("all-full")
    assert len(set(outcome.attempted_cells)) == 3
    assert outcome.attempt_failures == ("503",) * (outcome.attempts - 1)
    assert outcome.retry_after_s == 7.0


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 504])
def test_other_errors_pass_unchanged_and_once(edge: Edge, engines: list[FakeEngine], status: int) -> None:
    body = {"error": {"message": "max_tokens must be positive", "type": "BadRequestError", "code": status}}
    for engine in engines:
        engine.on(CHAT, json_reply(body, status=status))
    route(edge, engines)
    answer = edge.post({**BODY, "stream": True})
    assert (answer.status, answer.json()) == (status, body)
    assert answer.headers["content-type"] == "application/json"
    assert sum(len(engine.requests(CHAT)) for engine in engines) == 1


def test_fc_14_no_retry_after_bytes_were_delivered(edge: Edge, engines: list[FakeEngine]) -> None:
    events = tuple(f'data: {{"choices":[{{"delta":{{"content":"{i}"}}}}]}}\n\n'.encode() for i in range(2))
    cut = Reply(chunks=events, content_type="text/event-stream", cut_after=0, reset=True)
    for engine in engines:
        engine.on(CHAT, cut)
    route(edge, engines)
    received = edge.stream({**BODY, "stream": True})
    assert received.text.count(b'"content":"0"') <= 1
    assert not received.complete
    assert b"[DONE]" not in received.text
    assert sum(len(engine.requests(CHAT)) for engine in engines) == 1


@pytest.mark.parametrize(
    "extra", [{}, {"n": 3}, {"tools": [{"type": "function"}]}, {"response_format": {"type": "json_object"}}]
)
def test_fc_14_reset_before_headers_is_retried_on_another_host(
    edge: Edge, engines: list[FakeEngine], extra: dict[str, object]
) -> None:
    """The stated policy: the client has seen nothing, so another cell may serve it, whatever the request asks for.

    The first engine may have generated for nobody; it never counts as a second answer to the client.
    """
    engines[0].on(CHAT, Reply(reset=True))
    route(edge, engines, (134, 1, 1))
    answer = edge.post({**BODY, **extra})
    assert answer.status == 200
    assert len(engines[0].requests(CHAT)) == 1
    assert sum(len(engine.requests(CHAT)) for engine in engines[1:]) == 1


def test_nobody_ready_is_503_with_retry_after(edge: Edge) -> None:
    edge.route({"m": []})
    answer = edge.post(BODY, headers={"x-request-id": "nobody"})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == "no_ready_cell"  # type: ignore[index]
    outcome = edge.outcome("nobody")
    assert (outcome.model, outcome.cell_id, outcome.status) == ("m", None, 503)
    assert "UH" in outcome.flags.split(",")


def test_every_cell_dead_is_503_in_openai_shape(edge: Edge) -> None:
    edge.route({"m": [(f"127.0.0.1:{free_port()}", 1)]})
    answer = edge.post(BODY, headers={"x-request-id": "all-dead"})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["type"] == "server_error"  # type: ignore[index]
    assert edge.outcome("all-dead").cell_id is not None


def test_fc_19_idle_keep_alive_race(edge: Edge) -> None:
    """The engine closes idle connections after 0.2 s and requests come just then: no client sees an error."""
    with FakeEngine(idle_close_s=0.2) as first, FakeEngine(idle_close_s=0.2) as second:
        edge.route({"m": [(first.address, 1), (second.address, 1)]})
        statuses = []
        for i in range(24):
            statuses.append(edge.post(BODY).status)
            time.sleep(0.2 + (i % 5 - 2) * 0.0005)
        assert set(statuses) == {200}


def test_fc_19_the_pool_lets_go_before_the_engine_does(tmp_path: Path) -> None:
    with FakeEngine() as engine, running_edge(tmp_path, upstream_idle_timeout_s=0.3) as edge:
        edge.route({"m": [(engine.address, 1)]})
        edge.post(BODY)
        wait_for(
            lambda: edge.envoy.stats("upstream_cx_idle_timeout$").get("cluster.pool/m.upstream_cx_idle_timeout") == 1
        )


def test_fc_20_more_than_1024_streams(tmp_path: Path) -> None:
    """1,100 requests are open at once; the engine answers when it has seen them all."""
    count = 1100

    async def run(edge: Edge) -> list[int]:
        arrived: list[asyncio.StreamWriter] = []
        everyone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            arrived.append(writer)
            if len(arrived) == count:
                everyone.set()
            await everyone.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=2048)
        port = server.sockets[0].getsockname()[1]
        await asyncio.to_thread(edge.route, {"m": [(f"127.0.0.1:{port}", 1)]})
        try:
            return await edge.post_many([BODY] * count, timeout_s=60)
        finally:
            server.close()

    with running_edge(tmp_path, connect_timeout_s=30.0) as edge:
        assert asyncio.run(run(edge)) == [200] * count
        assert edge.envoy.stats("pool.*pending_overflow")["cluster.pool/m.upstream_rq_pending_overflow"] == 0


def test_fc_20_overflow_is_ours_not_the_engines(tmp_path: Path) -> None:
    with FakeEngine() as engine, running_edge(tmp_path, max_concurrent_requests=1) as edge:
        engine.freeze()
        edge.route({"m": [(engine.address, 1)]})
        # One is served and one may wait for its connection; the rest is refused at once.
        busy = [threading.Thread(target=edge.post, args=(BODY,)) for _ in range(2)]
        busy[0].start()
        wait_for(lambda: len(engine.requests(CHAT)) == 1)
        busy[1].start()
        wait_for(
            lambda: edge.envoy.stats("pool.*rq_pending_active").get("cluster.pool/m.upstream_rq_pending_active") == 1
        )
        overflow = [edge.post(BODY, headers={"x-request-id": f"over-{i}"}) for i in range(3)]
        engine.thaw()
        for thread in busy:
            thread.join()
        assert [a.status for a in overflow] == [503] * 3
        assert all(a.headers["retry-after"] == "1" for a in overflow)
        assert all(a.json()["error"]["code"] == "overloaded" for a in overflow)  # type: ignore[index]
        outcomes = [edge.outcome(f"over-{i}") for i in range(3)]
        assert all("UO" in o.flags.split(",") and o.cell_id is None for o in outcomes)
        assert len(engine.requests(CHAT)) == 2
