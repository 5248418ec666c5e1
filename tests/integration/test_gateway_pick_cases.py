"""Field cases through the whole chain of `routing: pick`: broken clients, odd bodies, cells that are not there."""

import contextlib
import gzip
import hashlib
import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.engine import CHAT, Reply, SeenRequest, json_reply, sse_reply
from tests.fakes.views import ready_cell
from tests.support.pick_fleet import CELLS, CHAT_PATH, PickFleet, pick_fleet, picked
from tradewind.model.cell import CellState

PART = 8_192
OF_EACH = 20
SMALL = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":4}'


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PickFleet]:
    """For tests that leave the grid as they found it."""
    with pick_fleet(tmp_path_factory.mktemp("cases")) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet: PickFleet) -> Iterator[PickFleet]:
    yield shared_fleet
    shared_fleet.everywhere(json_reply(CHAT))


def newest(fleet: PickFleet, request_id: str) -> SeenRequest:
    """The request with this id, wherever it went."""
    return next(s for cell in fleet.engines for s in fleet.served(cell) if s.headers.get("x-request-id") == request_id)


def alive(fleet: PickFleet) -> None:
    """The picker answers, and no question has ever been a fault of its own."""
    assert picked(fleet.ask())
    assert "pick.fault" not in fleet.rig.log.read_text()


# --- FC-12 -----------------------------------------------------------------------------------------------------------


class Kinds:
    """Requests that end in every way; an engine tells the kind by the request's id."""

    def __init__(self, fleet: PickFleet) -> None:
        self._fleet = fleet
        self._tried: set[str] = set()
        self._lock = threading.Lock()

    def answer(self, request: SeenRequest) -> Reply:
        kind = request.headers.get("x-request-id", "").partition("-")[0]
        with self._lock:
            first = request.headers.get("x-request-id", "") not in self._tried
            self._tried.add(request.headers.get("x-request-id", ""))
        if kind == "early":
            return replace(json_reply(CHAT), delay_s=0.2)
        if kind == "mid":
            return replace(sse_reply(["a"] * 4), cut_after=1, reset=True)
        if kind == "reset" and first:
            return Reply(reset=True)
        if kind == "rejected":
            return Reply(reset=True) if first else json_reply({"error": {"message": "no"}}, status=500)
        return sse_reply(["a"] * 5, gap_s=0.02)

    def send(self, request_id: str) -> None:
        """One request, left by its client in the way of its kind."""
        kind = request_id.partition("-")[0]
        head = (
            f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: {request_id}\r\n"
        )
        with socket.create_connection(("127.0.0.1", self._fleet.rig.port), timeout=20) as connection:
            connection.sendall(f"{head}content-length: {len(SMALL)}\r\nconnection: close\r\n\r\n".encode() + SMALL)
            if kind == "half":
                connection.shutdown(socket.SHUT_WR)
            if kind == "first":
                connection.recv(PART)
            if kind in ("early", "first"):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            while connection.recv(PART):
                pass


def test_fc_12_every_kind_of_end_leaves_nothing_in_flight(tmp_path: Path) -> None:
    """Reset before headers and after the first token, half-closed, upstream reset before headers and in the body, a
    retry that is rejected, and a cell that leaves with requests in flight and comes back at the same address."""
    kinds_of_end = ("early", "first", "half", "reset", "mid", "rejected", "whole")
    with pick_fleet(tmp_path) as fleet:
        kinds = Kinds(fleet)
        fleet.everywhere(kinds.answer)
        seen: list[int] = []
        with ThreadPoolExecutor(24) as pool:
            ids = [f"{kind}-{number}" for number in range(OF_EACH) for kind in kinds_of_end]
            sent = [pool.submit(kinds.send, request_id) for request_id in ids]
            view = ready_cell("a", fleet.engines["a"].address)
            while not all(one.done() for one in sent):
                fleet.control.remove("a")
                fleet.rig.until(lambda: "a" not in fleet.rig.weights() or all(one.done() for one in sent))
                seen.append(fleet.in_flight() or 0)
                fleet.control.show(view)
                fleet.rig.until(lambda: "a" in fleet.rig.weights())
            assert [one.exception() for one in sent if one.exception()] == []
        assert max(seen) > 0
        fleet.rig.serving(*CELLS)
        fleet.settled()
        fleet.everywhere(json_reply(CHAT))
        alive(fleet)
        fleet.settled()


# --- FC-22, 23, 25: bodies -------------------------------------------------------------------------------------------


def image_body(size: int) -> bytes:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
    return json.dumps({"messages": [{"role": "user", "content": [picture]}], "model": "m"}).encode()


def resident_bytes(fleet: PickFleet) -> int:
    assert fleet.rig.process is not None
    status = Path(f"/proc/{fleet.rig.process.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def in_chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 65_536):
        yield body[start : start + 65_536]


@pytest.mark.parametrize("size", [900_000, 1_100_000, 8_400_000, 25_000_000])
def test_fc_22_large_bodies_reach_the_engine_whole_and_the_picker_keeps_none(fleet: PickFleet, size: int) -> None:
    body = image_body(size)
    before = resident_bytes(fleet)
    for framing in ("length", "chunked"):
        connection = http.client.HTTPConnection("127.0.0.1", fleet.rig.port, timeout=60)
        sent = {"content-type": "application/json", "x-request-id": f"{framing}-{size}", "expect": "100-continue"}
        payload = body if framing == "length" else in_chunks(body)
        connection.request("POST", CHAT_PATH, payload, sent, encode_chunked=framing == "chunked")
        assert connection.getresponse().status == 200
        connection.close()
        received = newest(fleet, f"{framing}-{size}").body
        assert hashlib.sha256(received).digest() == hashlib.sha256(body).digest()
    assert resident_bytes(fleet) - before < 3 * len(body) + 32 * 2**20
    alive(fleet)


@pytest.mark.parametrize("size", [34_000_000, 60_000_000])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_fc_22_a_body_over_the_limit_is_413_in_json(fleet: PickFleet, size: int, chunked: bool) -> None:
    body = image_body(size)
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    head = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", fleet.rig.port), timeout=20) as connection:
        with contextlib.suppress(ConnectionError):  # the answer may come before all is sent
            connection.sendall(head.encode())
            for part in in_chunks(body):
                connection.sendall(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
        answer = connection.recv(PART)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"request_too_large"' in answer
    alive(fleet)


def test_fc_23_a_packed_body_is_read_for_the_pick_and_sent_as_it_came(fleet: PickFleet) -> None:
    shared = "packed " * 2_000
    homes = set()
    for number in range(4):
        body = gzip.compress(json.dumps({"model": "m", "messages": [{"role": "user", "content": shared}]}).encode())
        fleet.heard()
        answer = fleet.send(body, headers={"content-encoding": "gzip", "x-request-id": f"packed-{number}"})
        assert answer.status == 200
        homes.add(picked(answer))
        seen = newest(fleet, f"packed-{number}")
        assert (seen.body, seen.headers["content-encoding"]) == (body, "gzip")
    assert len(homes) == 1
    assert "" not in homes


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(SMALL)[:-12]),
        ("br", SMALL),
        ("gzip", SMALL),
    ],
    ids=["cut", "unsupported", "not-packed"],
)
def test_fc_23_what_cannot_be_unpacked_costs_the_picker_nothing(fleet: PickFleet, coding: str, body: bytes) -> None:
    before = resident_bytes(fleet)
    answer = fleet.send(body, headers={"content-encoding": coding})
    assert answer.status in (200, 400, 413, 415)  # the only pool's engine may judge it
    assert resident_bytes(fleet) - before < 64 * 2**20
    alive(fleet)


def test_fc_23_a_bomb_is_413_and_no_engine_sees_it(fleet: PickFleet) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    before = resident_bytes(fleet)
    answers = [fleet.send(bomb, headers={"content-encoding": "gzip", "x-request-id": "bomb"})]
    while answers[-1].status != 413 and len(answers) < 20:  # left to the weights, on a busy machine
        answers.append(fleet.send(bomb, headers={"content-encoding": "gzip", "x-request-id": "bomb"}))
    assert json.loads(answers[-1].body)["error"]["code"] == "request_too_large"
    seen = [s for cell in fleet.engines for s in fleet.served(cell) if s.headers.get("x-request-id") == "bomb"]
    assert len(seen) == len(answers) - 1
    assert resident_bytes(fleet) - before < 64 * 2**20
    alive(fleet)


def test_fc_25_the_engine_receives_the_bytes_that_were_sent(fleet: PickFleet) -> None:
    bodies = [
        b'{ "n" : 3 ,"model":"m","x_unknown":{"a":1.0},"messages":[{"content":"hi","role":"user"}],"z":1e400}',
        (
            b'{"model":"m","messages":[{"role":"user","content":"\\u00e9\\ud83e\\udd80"}],"cache_salt":"s","priority":-3,'
            b'"chat_template_kwargs":{"enable_thinking":false},"return_token_ids":true,"stream_options":null}'
        ),
        (
            b'{"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f"}}],'
            b'"response_format":{"type":"json_object"},"logprobs":true,"top_logprobs":2,"big":123456789012345678901,\n\t'
            b'"float":0.10000000000000000555,"model":"m"}'
        ),
    ]
    strange = b'{"id":"x","object":"chat.completion","choices":[],"vendor_field":{"b":1.50},"usage":null}'
    fleet.everywhere(Reply(body=strange))
    for number, body in enumerate(bodies):
        answer = fleet.send(body, headers={"x-request-id": f"bytes-{number}"})
        assert picked(answer)
        assert answer.body == strange
        assert newest(fleet, f"bytes-{number}").body == body


# --- FC-24: hostile JSON ---------------------------------------------------------------------------------------------

HOSTILE: dict[str, bytes] = {
    "lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud83d"}]}',
    "lone surrogate in the model": b'{"model":"\\ud83d","messages":[]}',
    "deep": b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep and open": b"[" * 100_000,
    "long integer": b'{"model":"m","max_tokens":' + b"9" * 5_000 + b',"messages":[]}',
    "nan": b'{"model":"m","temperature":NaN,"messages":[]}',
    "two models": b'{"model":"other","messages":[],"model":"m"}',
    "bom": b"\xef\xbb\xbf" + SMALL,
    "utf-16": SMALL.decode().encode("utf-16"),
    "null": b"null",
    "list": b"[]",
    "text": b'"x"',
    "empty": b"",
    "number for a model": b'{"model":5}',
    "no messages": b'{"model":"m","messages":null}',
    "a null message": b'{"model":"m","messages":[null]}',
    "tool calls": b'{"model":"m","messages":[{"content":null,"role":"assistant","tool_calls":[{"id":"a"}]}]}',
    "token ids": b'{"model":"m","prompt":[1,2,3]}',
    "lists of token ids": b'{"model":"m","prompt":[[1],[2]]}',
    "nul in the model": b'{"model":"m\\u0000","messages":[]}',
    "raw nul": b'{"model":"m\x00","messages":[]}',
    "a megabyte of model": b'{"model":"' + b"m" * 1_000_000 + b'","messages":[]}',
    "line breaks in the model": b'{"model":"m\\r\\nx-tw-cell: 1.2.3.4:5","messages":[]}',
    "not utf-8": b'{"model":"m","messages":[{"role":"user","content":"\xff\xfe"}]}',
    "many members": b'{"model":"m",' + b",".join(b'"k%d":%d' % (n, n) for n in range(50_000)) + b"}",
}
PASSED_ON = {"two models", "bom", "tool calls", "token ids", "lists of token ids", "lone surrogate", "no messages"}


@pytest.mark.parametrize("name", HOSTILE)
def test_fc_24_hostile_json_is_the_clients_fault_or_the_engines_to_judge(fleet: PickFleet, name: str) -> None:
    answer = fleet.send(HOSTILE[name], headers={"x-request-id": f"hostile-{name.replace(' ', '-')}"})
    assert answer.status in ((200,) if name in PASSED_ON else (200, 400, 404, 413))
    alive(fleet)


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", ""])
def test_fc_24_the_content_type_does_not_matter(fleet: PickFleet, kind: str) -> None:
    assert picked(fleet.send(SMALL, headers={"content-type": kind}))


# --- FC-47: cells that are not there ---------------------------------------------------------------------------------


def test_fc_47_a_cell_that_envoy_does_not_know_is_not_picked(tmp_path: Path) -> None:
    """A cell whose address Envoy would refuse looks idle for ever."""
    with pick_fleet(tmp_path) as fleet:
        known = fleet.control.reports
        ghost = ready_cell("ghost", "not an address")
        capabilities = replace(ghost.cell.capabilities, hardware="rtx-pro-6000", kv_capacity_tokens=140_000)
        fleet.control.show(replace(ghost, cell=replace(ghost.cell, capabilities=capabilities)))
        fleet.rig.until(lambda: ("snapshot.refused", "ghost") in fleet.rig.events())
        answers = fleet.ask_many([f"{number} hi" for number in range(60)], at_once=6)
        assert {answer.status for answer in answers} == {200}
        fleet.settled()
        assert "ghost" not in {picked(answer) for answer in answers}
        assert {path.cell_id: path.in_flight for path in known[-1].paths}["ghost"] == 0
        assert all(count > 5 for count in fleet.counts().values())


def test_fc_47_a_drained_cell_gets_no_pick(tmp_path: Path) -> None:
    with pick_fleet(tmp_path) as fleet:
        fleet.control.change("a", draining=True, state=CellState.DRAINING)
        fleet.rig.serving("b", "c")
        seen = fleet.counts()["a"]
        assert {picked(fleet.ask(f"{number} hi")) for number in range(12)} <= {"b", "c", ""}
        assert fleet.counts()["a"] == seen
