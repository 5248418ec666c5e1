"""The pure parts of the benchmarks: messages on raw sockets, and figures from turns."""

import socket

import pytest

from benchmarks import gate
from tradewind.lab.instant.closedloop import request
from tradewind.lab.instant.engines import (
    ANSWER,
    GAP_S,
    IDLE_S,
    STREAM_HEAD,
    Streams,
    chunks_wanted,
    missing_bytes,
    page,
)
from tradewind.telemetry.engine_metrics import EngineReader


@pytest.mark.parametrize("chunks", [None, 0, 16, 116])
def test_a_request_says_how_it_wants_its_answer(chunks: int | None) -> None:
    message = request(2_048, chunks=chunks)
    assert chunks_wanted(message) == chunks
    assert missing_bytes(message) == 0
    assert missing_bytes(message[:-3]) == 3
    assert len(message.partition(b"\r\n\r\n")[2]) == 2_048


@pytest.mark.parametrize(
    ("body", "chunks"),
    [
        (b'{"max_tokens": 3, "stream": true}', 3),
        (b'{"stream":true,"max_tokens":3}', 3),
        (b'{"stream":true}', 16),
        (b'{"max_tokens":3}', None),
    ],
)
def test_a_body_that_a_router_wrote_anew_is_understood(body: bytes, chunks: int | None) -> None:
    assert chunks_wanted(b"POST /v1/chat/completions HTTP/1.1\r\n\r\n" + body) == chunks


def test_an_instant_engine_has_the_pages_that_routers_and_agents_read() -> None:
    assert page(request(2_048)) == ANSWER
    assert b'"id": "demo-70b"' in page(b"GET /v1/models HTTP/1.1\r\n\r\n")
    shown = page(b"GET /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")[2]
    assert EngineReader().read(shown).reading.finished_total == 1


def read_all(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    data = b""
    try:
        while part := connection.recv(65_536):
            data += part
    except BlockingIOError:
        pass
    return data


def test_a_streamed_answer_is_a_chunk_at_every_tick_and_whole_only_at_its_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        streams = Streams()
        assert streams.tick(0.0) == IDLE_S
        streams.begin(theirs, 3)
        data = read_all(ours)
        assert data == STREAM_HEAD
        for number in range(1, 4):
            now_s = number * GAP_S
            assert missing_bytes(data) > 0
            assert streams.tick(now_s) == (IDLE_S if number == 3 else GAP_S)
            streams.tick(now_s + GAP_S / 2)  # nothing is due
            data += read_all(ours)
            assert data.count(b'"delta"') == number
        assert missing_bytes(data) == 0
        assert data.count(b"[DONE]") == 1


def test_a_stream_of_no_chunks_waits_and_a_reader_that_left_is_forgotten() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        streams = Streams()
        streams.begin(theirs, 0)
        assert streams.tick(0.0) == IDLE_S
        assert read_all(ours) == STREAM_HEAD
        streams.begin(theirs, 3)
        ours.close()
        assert streams.tick(1.0) == IDLE_S


def test_costs_of_the_gate_compare_neighbours_and_share_out_the_chunks() -> None:
    """The machine is twice as slow in the second round; one chunk more costs 0.5 us with the gate."""
    costs = {(kind, arm): [0.0, 0.0] for kind in gate.KINDS for arm in (gate.BARE, gate.GATED)}
    for number, speed in enumerate((1.0, 2.0)):
        costs["JSON answer", gate.BARE][number] = 60.0 * speed
        costs["JSON answer", gate.GATED][number] = 75.0 * speed
        for chunks in (gate.SHORT, gate.LONG):
            costs[f"{chunks} chunks", gate.BARE][number] = (100.0 + 10.0 * chunks) * speed
            costs[f"{chunks} chunks", gate.GATED][number] = (116.0 + 10.5 * chunks) * speed
    rows = {row.name: row for row in gate.cost_rows(costs, mode="wasm")}
    assert all(row.holds is None and not row.bound for row in rows.values())
    assert rows["gate, JSON answer: Envoy CPU per request over that without"].value == pytest.approx(1.25)
    assert rows["gate, 16 chunks: Envoy CPU added per request"].value == pytest.approx(24.0 * 1.5)
    assert rows["gate: Envoy CPU added per chunk after the first ones"].value == pytest.approx(0.5 * 1.5)


def test_memory_of_a_waiting_stream_stands_beside_that_without_the_gate() -> None:
    each, ratio = gate.memory_rows({gate.BARE: 100_000.0, gate.GATED: 110_000.0})
    assert (each.value, ratio.value) == pytest.approx((110.0, 1.1))
    assert "100.0 KB without" in each.note
