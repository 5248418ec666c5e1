"""share.lua's JSON reader against Python's own, and other ways in which a request reaches it."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.engine import FakeEngine, Reply, sse_reply
from tests.support.edge import Edge, running_edge, wait_for
from tradewind.gateway.envoy import EnvoyAdmin

CHAT = "/v1/chat/completions"
NAMES = ("m", "modèle/大", "a:b@c.d-e_f")


@pytest.fixture(scope="module")
def engine() -> Iterator[FakeEngine]:
    with FakeEngine() as engine:
        engine.on(CHAT, Reply(body=b"{}"))
        yield engine


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, engine: FakeEngine) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge"), request_buffer_bytes=2_000_000) as edge:
        edge.route({name: [(engine.address, 1)] for name in NAMES})
        yield edge


texts = st.one_of(st.sampled_from([*NAMES, "model", "", '"', "\\", '\\"', '{"model":"m"}']), st.text(max_size=8))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
members = st.lists(st.tuples(st.one_of(texts, st.just("model")), values), max_size=5)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")])


def document(pairs: list[tuple[str, object]], marks: tuple[str, str], *, ascii_only: bool) -> bytes:
    """A JSON object that may name a key twice."""
    comma, colon = marks
    body = comma.join(
        json.dumps(key, ensure_ascii=ascii_only) + colon + json.dumps(value, ensure_ascii=ascii_only, separators=marks)
        for key, value in pairs
    )
    return ("{" + body + "}").encode("utf-8", "surrogatepass")


def expected_status(body: bytes) -> int:
    """What Python's parser says of the same bytes: the last `model` wins."""
    try:
        model = json.loads(body).get("model")
    except UnicodeDecodeError:
        return 0
    if not isinstance(model, str) or model == "":
        return 400
    if any(0xD800 <= ord(char) < 0xE000 for char in model):
        return 0
    return 200 if model in NAMES else 404


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=members, model=st.sampled_from(NAMES), place=st.integers(0, 5), marks=separators, ascii_only=st.booleans())
def test_the_model_is_the_one_that_the_engine_will_read(
    edge: Edge, pairs: list[tuple[str, object]], model: str, place: int, marks: tuple[str, str], ascii_only: bool
) -> None:
    if place < 5:
        pairs.insert(min(place, len(pairs)), ("model", model))
    body = document(pairs, marks, ascii_only=ascii_only)
    expected = expected_status(body)
    answer = edge.post(body)
    assert answer.status == expected or expected == 0, body


def test_a_body_over_the_limit_is_413_in_openai_shape(edge: Edge, engine: FakeEngine) -> None:
    before = len(engine.requests())
    body = b'{"model":"m","x":"' + b"x" * 3_000_000 + b'"}'
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with closing(socket.create_connection(("127.0.0.1", edge.port), timeout=10)) as connection:
        with contextlib.suppress(ConnectionError):  # the answer may come before all is sent
            connection.sendall(head + body)
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"code":"request_too_large"' in answer
    assert len(engine.requests()) == before


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal_headers(*pairs: tuple[str, str]) -> bytes:
    """HPACK literals without indexing and without Huffman coding."""
    return b"".join(
        b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode() for name, value in pairs
    )


def test_fc_13_an_http2_reset_stops_generation(edge: Edge) -> None:
    """Over HTTP/2 the client resets its stream and keeps the connection: the engine's side is closed."""
    with FakeEngine() as slow:
        slow.on(CHAT, sse_reply(["x"] * 500, gap_s=0.02))
        edge.route({"m": [(slow.address, 1)]})
        headers = literal_headers(
            (":method", "POST"),
            (":scheme", "http"),
            (":path", CHAT),
            (":authority", "x"),
            ("content-type", "application/json"),
        )
        opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers)
        with closing(socket.create_connection(("127.0.0.1", edge.port), timeout=10)) as connection:
            connection.sendall(opening + frame(0, 1, 1, b'{"model":"m","stream":true}'))
            received = b""
            while b"data: " not in received:
                received += connection.recv(65536)
            connection.sendall(frame(3, 0, 1, struct.pack(">I", 8)))
            wait_for(lambda: slow.requests(CHAT)[-1].aborted_s is not None, 1.0)


def test_the_admin_reader(edge: Edge, engine: FakeEngine) -> None:
    edge.route({"m": [(engine.address, 1)]})
    edge.post({"model": "m"})

    async def read() -> tuple[bool, dict[str, int], bool]:
        async with aiohttp.ClientSession() as session:
            admin = EnvoyAdmin(edge.envoy.admin, session)
            stats = await admin.stats(
                ["cluster.pool/m.membership_total", "cluster_manager.warming_clusters", "no.such"]
            )
            return await admin.ready(), stats, await EnvoyAdmin("127.0.0.1:1", session).ready()

    ready, stats, nobody = asyncio.run(read())
    assert (ready, nobody) == (True, False)
    assert stats == {"cluster.pool/m.membership_total": 1, "cluster_manager.warming_clusters": 0}


def test_hundreds_of_cells_in_one_pool(tmp_path: Path, engine: FakeEngine) -> None:
    """Above 512 cells the picks are by the golden ratio; the table is still one string per push."""
    with running_edge(tmp_path) as edge:
        dead = [(f"127.1.{i >> 8}.{i & 255}:9", 1) for i in range(600)]
        edge.route({"m": [(engine.address, 600 * 99), *dead]})
        statuses = [edge.post({"model": "m"}).status for _ in range(100)]
        assert statuses == [200] * 100
