"""The HTTP/2 server against peers that are slow, greedy, confused or hostile."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.epp.fakes import RoundRobin
from tests.epp.said import CHECK, GREETING, PROCESS, WATCH, headers, message, pick
from tradewind.gateway.epp import frames
from tradewind.gateway.epp.calls import Desk, EppLimits
from tradewind.gateway.epp.frames import Code
from tradewind.gateway.epp.hpack import Decoder, Headers
from tradewind.gateway.epp.http2 import CONTROL_FRAMES_PER_S, MAX_BLOCK_BYTES, RECEIVE_FRAME, Http2Connection
from tradewind.gateway.epp.stream import RECEIVE_WINDOW, Handler, Stream
from tradewind.lab.epp.script import BUFFERED, Script, request_messages

HALF_HEADERS = frames.frame(frames.HEADERS, 0, 1, b"")


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
        self.decoder = Decoder()
        self.say(greet)

    def _accept(self, stream: Stream, headers: Headers) -> Handler:
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
        data, at, heard = b"".join(self.http2.take()), 0, []
        while at < len(data):
            length, kind, flags, stream = frames.read_header(data, at)
            at += frames.HEADER_BYTES + length
            heard.append((kind, flags, stream, data[at - length : at]))
        return heard

    def open(self, stream: int, path: str = PROCESS, *, flags: int = 0) -> bytes:
        return frames.frame(frames.HEADERS, frames.END_HEADERS | flags, stream, headers(path))

    @property
    def goodbye(self) -> Code | None:
        """Why the connection was ended."""
        return Code(int.from_bytes(self.last[3][4:8], "big")) if self.last and self.last[0] == frames.GOAWAY else None

    last: tuple[int, int, int, bytes] | None = None

    def breaks(self, *data: bytes) -> Code | None:
        heard = self.say(*data)
        self.last = heard[-1] if heard else None
        return self.goodbye if self.http2.closed else None


def kinds(heard: list[tuple[int, int, int, bytes]]) -> list[int]:
    return [kind for kind, *_ in heard]


def trailers(peer: Peer, heard: list[tuple[int, int, int, bytes]]) -> Headers:
    last = [item for item in heard if item[0] == frames.HEADERS and item[1] & frames.END_STREAM]
    return peer.decoder.decode(last[-1][3])


def test_a_request_byte_by_byte_is_answered_as_one_at_once() -> None:
    at_once, slowly = Peer(), Peer(greet=b"")
    said = peer_request(at_once)
    heard = at_once.say(said)
    whole = GREETING + said
    pieces = [item for at in range(len(whole)) for item in slowly.say(whole[at : at + 1])]
    payload = b"".join(data for kind, _, _, data in heard if kind == frames.DATA)
    assert payload == b"".join(data for kind, _, _, data in pieces if kind == frames.DATA)
    assert trailers(at_once, heard)["grpc-status"] == "0"
    assert at_once.picker.open == slowly.picker.open == []


def peer_request(peer: Peer) -> bytes:
    return peer.open(1) + pick(1, last=True)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", Code.PROTOCOL_ERROR),
        (frames.PREFACE + frames.frame(frames.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.DATA, 0, 1, b"x"), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.HEADERS, frames.END_HEADERS, 2, headers()), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
        (GREETING + HALF_HEADERS + frames.frame(frames.PING, 0, 0, bytes(8)), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(4)), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xbf"), Code.COMPRESSION_ERROR),
        (GREETING + frames.frame(frames.PING, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
        (GREETING + frames.frame(frames.SETTINGS, 0, 0, b"short"), Code.FRAME_SIZE_ERROR),
        (GREETING + frames.frame(frames.DATA, 0, 1, bytes(RECEIVE_FRAME + 1)), Code.FRAME_SIZE_ERROR),
        (GREETING + frames.window_update(0, 0), Code.FLOW_CONTROL_ERROR),
        (GREETING + frames.window_update(0, 2**31 - 1), Code.FLOW_CONTROL_ERROR),
        (GREETING + frames.settings({frames.SET_WINDOW: 2**31}), Code.FLOW_CONTROL_ERROR),
        (GREETING + frames.settings({frames.SET_FRAME_SIZE: 1}), Code.PROTOCOL_ERROR),
        (GREETING + frames.frame(frames.HEADERS, 4 | frames.PADDED, 1, b"\x09abc"), Code.PROTOCOL_ERROR),
    ],
)  # fmt: skip
def test_who_breaks_the_protocol_is_told_why_and_cut(said: bytes, code: Code) -> None:
    assert Peer(greet=b"").breaks(said) is code


def test_floods_are_cut() -> None:
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    assert Peer().breaks(*[ping] * (CONTROL_FRAMES_PER_S + 1)) is Code.ENHANCE_YOUR_CALM
    block = frames.frame(frames.CONTINUATION, 0, 1, b"\x00" * 16_000)
    many = [block] * (MAX_BLOCK_BYTES // 16_000 + 1)
    assert Peer().breaks(frames.frame(frames.HEADERS, 0, 1, b""), *many) is Code.ENHANCE_YOUR_CALM


def test_a_steady_rate_of_pings_is_no_flood() -> None:
    peer = Peer()
    ping = frames.frame(frames.PING, 0, 0, bytes(8))
    for second in range(3):
        peer.now_s = float(second)
        peer.say(*[ping] * (CONTROL_FRAMES_PER_S // 2))
    assert not peer.http2.closed


def test_opened_and_reset_streams_leave_nothing() -> None:
    peer = Peer(limits=EppLimits(max_streams=2))
    for number in range(500):
        stream = 2 * number + 1
        peer.say(peer.open(stream), pick(stream), frames.reset(stream, Code.CANCEL))
    assert peer.http2.streams == 0
    assert peer.desk.held_bytes == 0
    assert peer.picker.open == []
    assert peer.desk.counters.picked == 500


def test_one_stream_too_many_is_refused_alone() -> None:
    peer = Peer(limits=EppLimits(max_streams=1))
    peer.say(peer.open(1))
    assert peer.say(peer.open(3)) == [(frames.RST_STREAM, 0, 3, Code.REFUSED_STREAM.to_bytes(4, "big"))]
    assert trailers(peer, peer.say(pick(1, last=True)))["grpc-status"] == "0"


def test_answers_wait_for_the_window_of_a_slow_reader() -> None:
    peer = Peer(greet=frames.PREFACE + frames.settings({frames.SET_WINDOW: 0}))
    heard = peer.say(peer.open(1), pick(1, last=True))
    assert frames.DATA not in kinds(heard)
    assert peer.picker.open == ["0"]
    some = peer.say(frames.window_update(1, 10))
    assert sum(len(data) for kind, _, _, data in some if kind == frames.DATA) == 10
    rest = peer.say(frames.settings({frames.SET_WINDOW: 65_535}))
    assert trailers(peer, rest)["grpc-status"] == "0"
    assert peer.picker.open == []


def test_a_window_is_given_back_and_not_exceeded() -> None:
    peer = Peer(limits=EppLimits(max_message_bytes=8 * RECEIVE_WINDOW))
    peer.say(peer.open(1), frames.frame(frames.DATA, 0, 1, b"\x00" + (4 * RECEIVE_WINDOW).to_bytes(4, "big")))
    piece = frames.frame(frames.DATA, 0, 1, bytes(RECEIVE_FRAME))
    heard = [item for _ in range(3 * RECEIVE_WINDOW // RECEIVE_FRAME) for item in peer.say(piece)]
    given_back = sum(int.from_bytes(data, "big") for kind, _, stream, data in heard if (kind, stream) == (8, 1))
    assert 2 * RECEIVE_WINDOW <= given_back <= 3 * RECEIVE_WINDOW
    assert peer.desk.held_bytes == 3 * RECEIVE_WINDOW


def test_a_message_over_the_limit_is_413_before_it_is_read() -> None:
    peer = Peer(limits=EppLimits(max_message_bytes=1_000))
    first = message(next(request_messages(Script(mode=BUFFERED, chunks=(b"x",)))).SerializeToString())
    heard = peer.say(peer.open(1), frames.frame(frames.DATA, 0, 1, first + b"\x00\x7f\xff\xff\xff"))
    assert b"request_too_large" in b"".join(data for kind, _, _, data in heard if kind == frames.DATA)
    assert trailers(peer, heard)["grpc-status"] == "0"
    assert peer.http2.streams == 0


def test_who_crosses_the_bound_of_all_bodies_is_turned_away_alone() -> None:
    peer = Peer(limits=EppLimits(max_held_bytes=50_000))
    half = frames.frame(frames.DATA, 0, 1, b"\x00" + (60_000).to_bytes(4, "big") + bytes(30_000))
    peer.say(peer.open(1), half)
    other = frames.frame(frames.DATA, 0, 3, b"\x00" + (60_000).to_bytes(4, "big") + bytes(30_000))
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
    heard = peer.say(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, block))
    assert status.items() <= trailers(peer, heard).items()
    assert peer.http2.streams == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"\x01\x00\x00\x00\x01x", "12"), (b"\x00\x00\x00\x00\x02\xff\xff", "3"), (b"\x00\x00\x00\x00\x09x", "3")],
)
def test_bad_messages_end_their_stream(data: bytes, status: str) -> None:
    peer = Peer()
    heard = peer.say(peer.open(1), frames.frame(frames.DATA, frames.END_STREAM, 1, data))
    assert trailers(peer, heard)["grpc-status"] == status
    assert not peer.http2.closed


def test_health_is_checked_and_watched() -> None:
    peer = Peer()
    ask = frames.frame(frames.DATA, frames.END_STREAM, 1, message(b""))
    assert message(b"\x08\x01") in [data for _, _, _, data in peer.say(peer.open(1, CHECK), ask)]
    heard = peer.say(peer.open(3, WATCH), frames.frame(frames.DATA, 0, 3, message(b"\x0a\x09readiness")))
    assert (frames.DATA, 0, 3, message(b"\x08\x01")) in heard
    peer.ready = False
    for watcher in peer.desk.watchers:
        watcher.refresh()
        watcher.refresh()
    assert peer.hear() == [(frames.DATA, 0, 3, message(b"\x08\x02"))]
    alive = frames.frame(frames.DATA, frames.END_STREAM, 5, message(b"\x0a\x08liveness"))
    assert message(b"\x08\x01") in [data for _, _, _, data in peer.say(peer.open(5, CHECK), alive)]
    peer.http2.lost()
    assert not peer.desk.watchers


def test_leaving_lets_open_streams_end() -> None:
    peer = Peer()
    peer.say(peer.open(1))
    peer.http2.leave()
    assert kinds(peer.hear()) == [frames.GOAWAY]
    assert peer.say(peer.open(3)) == [(frames.RST_STREAM, 0, 3, Code.REFUSED_STREAM.to_bytes(4, "big"))]
    assert trailers(peer, peer.say(pick(1, last=True)))["grpc-status"] == "0"
    assert peer.http2.closed


def frame_bytes() -> st.SearchStrategy[bytes]:
    """Good and bad frames, on few streams."""
    payload = st.one_of(
        st.binary(max_size=40),
        st.just(headers()),
        st.just(headers(CHECK)),
        st.just(pick(1)[frames.HEADER_BYTES :]),
        st.integers(0, 2**31).map(lambda value: value.to_bytes(4, "big")),
    )
    made = st.builds(frames.frame, st.integers(0, 10), st.integers(0, 63), st.integers(0, 6), payload)
    return st.one_of(made, st.binary(max_size=30), st.just(frames.frame(1, 4, 1, headers()) + pick(1)))


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
