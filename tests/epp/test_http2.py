"""The HTTP/2 server against peers that are slow, greedy, confused or hostile."""

from collections.abc import Callable, Mapping

import hpack
import pytest
from h2.errors import ErrorCodes as Code
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.epp import wire
from tests.epp.fakes import MODEL, RoundRobin
from tests.epp.said import CHECK, GREETING, PROCESS, WATCH, headers, message, pick
from tradewind.gateway.epp.calls import Desk, EppLimits
from tradewind.gateway.epp.http2 import (
    CONTROL_FRAMES_PER_S,
    MAX_LIST_BYTES,
    MAX_SETTINGS,
    RECEIVE_FRAME,
    RECEIVE_WINDOW,
    SILENT_BYTES,
    SLOW_READER_BYTES,
    Http2Connection,
)
from tradewind.gateway.epp.stream import Handler, Stream
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.script import BUFFERED, DUPLEX, Script, request_messages

HALF_HEADERS = wire.frame(wire.HEADERS, 0, 1, b"")


class NoTimer:
    def cancel(self) -> None:
        """Timers do not fire here."""


class Peer:
    """A client that can say anything."""

    def __init__(self, *, limits: EppLimits | None = None, greet: bytes = GREETING) -> None:
        self.picker = RoundRobin(("10.0.0.1:1", "10.0.0.2:1"))
        self.ready = True
        self.desk = Desk(service=self.picker, limits=limits or EppLimits(), ready=lambda: self.ready)
        self.timers: list[Callable[[], None]] = []
        self.http2 = Http2Connection(self._accept, max_streams=self.desk.limits.max_streams)
        self.now_s = 0.0
        self.decoder = hpack.Decoder()
        self.read: dict[int, dict[str, str]] = {}  # a stream's last headers
        self.say(greet)

    def _accept(self, stream: Stream, headers: Mapping[bytes, bytes]) -> Handler:
        return self.desk.accept(stream, headers, self._later)

    def _later(self, _delay_s: float, call: Callable[[], None]) -> NoTimer:
        self.timers.append(call)
        return NoTimer()

    def say(self, *data: bytes) -> list[tuple[int, int, int, bytes]]:
        """Send bytes; the frames that come back as (type, flags, stream, payload)."""
        for part in data:
            self.http2.receive(part, self.now_s)
        return self.hear()

    def hear(self) -> list[tuple[int, int, int, bytes]]:
        heard = wire.heard(self.http2.take())
        for kind, _, stream, payload in heard:
            if kind == wire.HEADERS:
                self.read[stream] = {str(name): str(value) for name, value in self.decoder.decode(payload)}
        return heard

    def open(self, stream: int, path: str = PROCESS, *, flags: int = 0) -> bytes:
        return wire.frame(wire.HEADERS, wire.END_HEADERS | flags, stream, headers(path))

    @property
    def goodbye(self) -> Code | None:
        """Why the connection was ended."""
        return Code(int.from_bytes(self.last[3][4:8], "big")) if self.last and self.last[0] == wire.GOAWAY else None

    last: tuple[int, int, int, bytes] | None = None

    def breaks(self, *data: bytes) -> Code | None:
        heard = self.say(*data)
        self.last = heard[-1] if heard else None
        return self.goodbye if self.http2.closed else None


def kinds(heard: list[tuple[int, int, int, bytes]]) -> list[int]:
    return [kind for kind, *_ in heard]


def trailers(peer: Peer, heard: list[tuple[int, int, int, bytes]]) -> dict[str, str]:
    last = [item for item in heard if item[0] == wire.HEADERS and item[1] & wire.END_STREAM]
    return peer.read[last[-1][2]]


def test_a_request_byte_by_byte_is_answered_as_one_at_once() -> None:
    at_once, slowly = Peer(), Peer(greet=b"")
    said = peer_request(at_once)
    heard = at_once.say(said)
    whole = GREETING + said
    pieces = [item for at in range(len(whole)) for item in slowly.say(whole[at : at + 1])]
    payload = b"".join(data for kind, _, _, data in heard if kind == wire.DATA)
    assert payload == b"".join(data for kind, _, _, data in pieces if kind == wire.DATA)
    assert trailers(at_once, heard)["grpc-status"] == "0"
    assert at_once.picker.open == slowly.picker.open == []


def peer_request(peer: Peer) -> bytes:
    return peer.open(1) + pick(1, last=True)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (GREETING + wire.frame(wire.DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.HEADERS, wire.END_HEADERS, 2, headers()), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.CONTINUATION, wire.END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
        (GREETING + HALF_HEADERS + wire.frame(wire.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.PUSH_PROMISE, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.HEADERS, wire.END_HEADERS, 1, b"\xbf"), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.PING, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
        (GREETING + wire.frame(wire.SETTINGS, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
        (GREETING + wire.frame(wire.DATA, 0, 1, bytes(RECEIVE_FRAME + 1)), Code.FRAME_SIZE_ERROR),
        (GREETING + wire.window_update(0, 0), Code.PROTOCOL_ERROR),
        (GREETING + wire.window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (GREETING + wire.settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31}), Code.FLOW_CONTROL_ERROR),
        (GREETING + wire.settings({SettingCodes.MAX_FRAME_SIZE: 1}), Code.PROTOCOL_ERROR),
        (GREETING + wire.frame(wire.HEADERS, 4 | wire.PADDED, 1, b"\x09abc"), Code.PROTOCOL_ERROR),
    ],
)  # fmt: skip
def test_who_breaks_the_protocol_is_told_why_and_cut(said: bytes, code: Code) -> None:
    assert Peer(greet=b"").breaks(said) is code


def test_who_speaks_no_http2_is_cut_without_a_word() -> None:
    peer = Peer(greet=b"")
    assert wire.GOAWAY not in kinds(peer.say(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))
    assert peer.http2.closed


def test_floods_are_cut() -> None:
    for nothing in (wire.PING, wire.SETTINGS, wire.DATA, 0x50):
        peer = Peer()
        peer.say(peer.open(1))
        payload = bytes(8) if nothing == wire.PING else b""
        flood = wire.frame(nothing, 0, int(nothing == wire.DATA), payload) * (CONTROL_FRAMES_PER_S + 1)
        assert peer.breaks(flood) is Code.ENHANCE_YOUR_CALM
        assert peer.http2.streams == 0


def test_a_flood_is_seen_before_it_was_worked_through() -> None:
    peer = Peer()
    heard = peer.say(wire.frame(wire.PING, 0, 0, bytes(8)) * 10 * CONTROL_FRAMES_PER_S)
    assert kinds(heard).count(wire.PING) < 2 * CONTROL_FRAMES_PER_S
    assert heard[-1][0] == wire.GOAWAY


def test_what_does_not_end_is_cut_before_it_is_held() -> None:
    continued = wire.frame(wire.CONTINUATION, 0, 1, b"\x00" * 16_000)
    many = [continued] * (SILENT_BYTES // 16_000 + 1)
    assert Peer().breaks(wire.frame(wire.HEADERS, 0, 1, b""), *many) is Code.ENHANCE_YOUR_CALM
    largest = (2**24 - 1).to_bytes(3, "big") + wire.frame(wire.DATA, 0, 1, b"")[3:]
    piece = bytes(1_000)
    assert Peer().breaks(largest, *[piece] * (SILENT_BYTES // len(piece) - 1)) is None
    assert Peer().breaks(largest, *[piece] * (SILENT_BYTES // len(piece) + 1)) is Code.ENHANCE_YOUR_CALM


def test_headers_are_bounded_as_they_unfold() -> None:
    table = wire.frame(wire.HEADERS, 5, 1, b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4_000)
    assert not Peer().breaks(table)
    entries = b"\xbe" * (MAX_LIST_BYTES // 4_000 + 1)  # each is what the first block has put into the table
    assert Peer().breaks(table, wire.frame(wire.HEADERS, 5, 3, entries)) is Code.ENHANCE_YOUR_CALM


def test_settings_without_number_are_cut() -> None:
    few = wire.settings({0x100 + number: 1 for number in range(MAX_SETTINGS // 2)})
    many = wire.settings({0x200 + number: 1 for number in range(MAX_SETTINGS)})
    assert Peer().breaks(few) is None
    assert Peer().breaks(few, many) is Code.ENHANCE_YOUR_CALM


def test_a_steady_rate_of_pings_is_no_flood() -> None:
    peer = Peer()
    ping = wire.frame(wire.PING, 0, 0, bytes(8))
    for second in range(3):
        peer.now_s = float(second)
        peer.say(*[ping] * (CONTROL_FRAMES_PER_S // 2))
    assert not peer.http2.closed


def test_opened_and_reset_streams_leave_nothing() -> None:
    peer = Peer(limits=EppLimits(max_streams=2))
    for number in range(500):
        stream = 2 * number + 1
        peer.say(peer.open(stream), pick(stream), wire.reset(stream, Code.CANCEL))
    assert peer.http2.streams == 0
    assert peer.desk.held_bytes == 0
    assert peer.picker.open == []
    assert peer.desk.counters.picked == 500


def test_a_stream_opened_and_reset_in_one_piece_leaves_nothing() -> None:
    peer = Peer()
    peer.say(peer.open(1) + pick(1) + wire.reset(1, Code.CANCEL) + peer.open(3) + pick(3, last=True))
    assert (peer.http2.streams, peer.picker.open, peer.http2.broken) == (0, [], "")
    assert peer.desk.counters.picked == 1  # nobody waits for the other


def test_ended_streams_are_forgotten_while_others_stay() -> None:
    peer = Peer()
    peer.say(wire.window_update(0, 2**30))
    for stream in range(1, 200, 2):
        peer.say(peer.open(stream), pick(stream))
    for stream in range(201, 2_001, 2):
        peer.say(peer.open(stream), pick(stream, last=True))
    assert peer.http2.streams == 100
    assert len(peer.http2._h2.streams) < 400


def test_what_comes_late_on_an_ended_stream_does_not_hurt_the_others() -> None:
    peer = Peer()
    peer.say(peer.open(1))
    heard = peer.say(peer.open(3), wire.frame(wire.DATA, 0, 3, b"\x01\x00\x00\x00\x01x"))
    assert heard[-1] == (wire.RST_STREAM, 0, 3, bytes(4))  # all was answered, the rest need not be sent
    late = wire.frame(wire.DATA, 0, 3, b"x") + wire.window_update(3, 1) + wire.reset(3, Code.CANCEL)
    peer.say(late, peer.open(5), pick(5, last=True), late, wire.frame(wire.HEADERS, 5, 3, headers()))
    assert trailers(peer, peer.say(pick(1, last=True)))["grpc-status"] == "0"
    assert not peer.http2.closed


def test_told_reasons_do_not_fill_the_compression_table() -> None:
    peer = Peer()
    peer.say(wire.settings({SettingCodes.HEADER_TABLE_SIZE: 2**31}))
    peer.decoder.max_allowed_table_size = 2**31
    said = [wire.frame(wire.HEADERS, 5, stream, headers(path="/no.such/Method")) for stream in (1, 3, 5)]
    blocks = [peer.say(frame)[-1][3] for frame in said]
    assert len(blocks[1]) == len(blocks[2]) > len("no such method")  # the text is told again, not its number


def test_one_stream_too_many_is_refused_alone() -> None:
    peer = Peer(limits=EppLimits(max_streams=100))
    peer.say(*[peer.open(stream) for stream in range(1, 201, 2)])
    for stream in (201, 203):
        refused = (wire.RST_STREAM, 0, stream, Code.REFUSED_STREAM.to_bytes(4, "big"))
        assert peer.say(peer.open(stream)) == [refused]
    assert trailers(peer, peer.say(pick(1, last=True)))["grpc-status"] == "0"
    assert wire.RST_STREAM not in kinds(peer.say(peer.open(205)))


def test_answers_wait_for_the_window_of_a_slow_reader() -> None:
    peer = Peer(greet=wire.PREFACE + wire.settings({SettingCodes.INITIAL_WINDOW_SIZE: 0}))
    heard = peer.say(peer.open(1), pick(1, last=True))
    assert wire.DATA not in kinds(heard)
    assert peer.picker.open == ["0"]
    some = peer.say(wire.window_update(1, 10))
    assert sum(len(data) for kind, _, _, data in some if kind == wire.DATA) == 10
    rest = peer.say(wire.settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535}))
    assert trailers(peer, rest)["grpc-status"] == "0"
    assert peer.picker.open == []


def test_who_does_not_read_what_is_given_back_gets_no_more_window() -> None:
    peer = Peer(limits=EppLimits(max_body_bytes=1_000))
    script = Script(mode=DUPLEX, chunks=(chat(MODEL), *(bytes(16_000),) * 60), unfinished=True)
    said = b"".join(message(item.SerializeToString()) for item in request_messages(script))
    frames = [wire.frame(wire.DATA, 0, 1, said[at : at + 16_000]) for at in range(0, len(said), 16_000)]
    heard = peer.say(peer.open(1), *frames)
    assert SLOW_READER_BYTES < sum(map(len, frames)) < RECEIVE_WINDOW
    assert (wire.WINDOW_UPDATE, 1) not in [(kind, stream) for kind, _, stream, _ in heard]
    heard = peer.say(wire.window_update(0, RECEIVE_WINDOW), wire.window_update(1, RECEIVE_WINDOW))
    assert sum(len(data) for kind, _, _, data in heard if kind == wire.DATA) > len(said) // 2
    assert (wire.WINDOW_UPDATE, 1) in [(kind, stream) for kind, _, stream, _ in heard]


def test_a_window_is_given_back_and_not_exceeded() -> None:
    peer = Peer(limits=EppLimits(max_message_bytes=8 * RECEIVE_WINDOW))
    peer.say(peer.open(1), wire.frame(wire.DATA, 0, 1, b"\x00" + (4 * RECEIVE_WINDOW).to_bytes(4, "big")))
    piece = wire.frame(wire.DATA, 0, 1, bytes(RECEIVE_FRAME))
    heard = [item for _ in range(3 * RECEIVE_WINDOW // RECEIVE_FRAME) for item in peer.say(piece)]
    given_back = sum(int.from_bytes(data, "big") for kind, _, stream, data in heard if (kind, stream) == (8, 1))
    assert 2 * RECEIVE_WINDOW <= given_back <= 3 * RECEIVE_WINDOW
    assert peer.desk.held_bytes == 3 * RECEIVE_WINDOW


def test_a_message_over_the_limit_is_413_before_it_is_read() -> None:
    peer = Peer(limits=EppLimits(max_message_bytes=1_000))
    first = message(next(request_messages(Script(mode=BUFFERED, chunks=(b"x",)))).SerializeToString())
    heard = peer.say(peer.open(1), wire.frame(wire.DATA, 0, 1, first + b"\x00\x7f\xff\xff\xff"))
    assert b"request_too_large" in b"".join(data for kind, _, _, data in heard if kind == wire.DATA)
    assert trailers(peer, heard)["grpc-status"] == "0"
    assert peer.http2.streams == 0


def test_who_crosses_the_bound_of_all_bodies_is_turned_away_alone() -> None:
    peer = Peer(limits=EppLimits(max_held_bytes=50_000))
    half = wire.frame(wire.DATA, 0, 1, b"\x00" + (60_000).to_bytes(4, "big") + bytes(30_000))
    peer.say(peer.open(1), half)
    other = wire.frame(wire.DATA, 0, 3, b"\x00" + (60_000).to_bytes(4, "big") + bytes(30_000))
    heard = peer.say(peer.open(3), other)
    assert trailers(peer, heard)["grpc-status"] == "8"
    assert (peer.http2.streams, peer.desk.held_bytes) == (1, 30_000)


@pytest.mark.parametrize(
    ("block", "status"),
    [
        (headers(path="/no.such/Method"), {":status": "200", "grpc-status": "12"}),
        (headers(method="GET"), {":status": "415"}),
        (headers(content="text/html"), {":status": "415"}),
        (b"", {":status": "415"}),
    ],
)
def test_what_is_not_served(block: bytes, status: dict[str, str]) -> None:
    peer = Peer()
    heard = peer.say(wire.frame(wire.HEADERS, wire.END_HEADERS | wire.END_STREAM, 1, block))
    assert status.items() <= trailers(peer, heard).items()
    assert peer.http2.streams == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"\x01\x00\x00\x00\x01x", "12"), (b"\x00\x00\x00\x00\x02\xff\xff", "3"), (b"\x00\x00\x00\x00\x09x", "3")],
)
def test_bad_messages_end_their_stream(data: bytes, status: str) -> None:
    peer = Peer()
    heard = peer.say(peer.open(1), wire.frame(wire.DATA, wire.END_STREAM, 1, data))
    assert trailers(peer, heard)["grpc-status"] == status
    assert not peer.http2.closed


def test_health_is_checked_and_watched() -> None:
    peer = Peer()
    ask = wire.frame(wire.DATA, wire.END_STREAM, 1, message(b""))
    assert message(b"\x08\x01") in [data for _, _, _, data in peer.say(peer.open(1, CHECK), ask)]
    heard = peer.say(peer.open(3, WATCH), wire.frame(wire.DATA, 0, 3, message(b"\x0a\x09readiness")))
    assert (wire.DATA, 0, 3, message(b"\x08\x01")) in heard
    peer.ready = False
    for watcher in peer.desk.watchers:
        watcher.refresh()
        watcher.refresh()
    assert peer.hear() == [(wire.DATA, 0, 3, message(b"\x08\x02"))]
    alive = wire.frame(wire.DATA, wire.END_STREAM, 5, message(b"\x0a\x08liveness"))
    assert message(b"\x08\x01") in [data for _, _, _, data in peer.say(peer.open(5, CHECK), alive)]
    peer.http2.lost()
    assert not peer.desk.watchers


def test_a_closed_connection_is_asked_nothing() -> None:
    """Its transport may take a while to close, and the server asks the silent now and then."""
    peer = Peer()
    assert peer.breaks(wire.frame(wire.PING, 0, 0, b"short")) is Code.FRAME_SIZE_ERROR
    peer.http2.ping()
    peer.http2.leave()
    assert peer.hear() == []


def test_leaving_lets_open_streams_end() -> None:
    peer = Peer()
    peer.say(peer.open(1))
    peer.http2.leave()
    assert kinds(peer.hear()) == [wire.GOAWAY]
    assert peer.say(peer.open(3)) == [(wire.RST_STREAM, 0, 3, Code.REFUSED_STREAM.to_bytes(4, "big"))]
    assert trailers(peer, peer.say(pick(1, last=True)))["grpc-status"] == "0"
    assert peer.http2.closed


def test_a_peer_that_says_goodbye_is_let_go() -> None:
    peer = Peer()
    peer.say(peer.open(1), pick(1))
    goodbye = wire.frame(wire.GOAWAY, 0, 0, bytes(8))
    peer.say(peer.open(3) + pick(3) + goodbye)
    assert (peer.http2.closed, peer.http2.broken, peer.picker.open) == (True, "", [])


def frame_bytes() -> st.SearchStrategy[bytes]:
    """Good and bad frames, on few streams."""
    payload = st.one_of(
        st.binary(max_size=40),
        st.just(headers()),
        st.just(headers(CHECK)),
        st.just(pick(1)[wire.HEADER_BYTES :]),
        st.integers(0, 2**31).map(lambda value: value.to_bytes(4, "big")),
    )
    made = st.builds(wire.frame, st.integers(0, 10), st.integers(0, 63), st.integers(0, 6), payload)
    return st.one_of(made, st.binary(max_size=30), st.just(wire.frame(1, 4, 1, headers()) + pick(1)))


@settings(max_examples=300, deadline=None)
@given(st.lists(frame_bytes(), max_size=20), st.booleans())
def test_no_bytes_break_the_server_and_nothing_is_left(parts: list[bytes], greeted: bool) -> None:
    peer = Peer(greet=GREETING if greeted else b"")
    for part in parts:
        peer.http2.receive(part, 0.0)
        peer.http2.take()
    for timer in peer.timers:
        timer()
    peer.http2.lost()
    assert peer.http2.streams == 0
    assert peer.desk.held_bytes == 0
    assert peer.picker.open == []
    assert not peer.desk.watchers
