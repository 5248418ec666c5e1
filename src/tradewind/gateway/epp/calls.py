"""gRPC over one HTTP/2 stream: messages in and out, the calls that are served, and their bounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Protocol
from urllib.parse import quote

from hpack import NeverIndexedHeaderTuple

from tradewind.gateway.epp.exchange import BadExchange, EppCounters, Exchange
from tradewind.gateway.epp.service import PickService
from tradewind.gateway.epp.stream import Handler, Headers, Stream

PROCESS_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
_PREFIX = Struct(">BL")  # compressed or not, length
_JOINED = 4  # messages that go out as one piece
_MAX_SMALL_BYTES = 4096  # of a health request
_START: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"  # HealthCheckResponse{status}


class Status(IntEnum):
    """gRPC status codes in use."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class _Timer(Protocol):
    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], None]], _Timer]  # after so many seconds, on the connection's loop


@dataclass(frozen=True, slots=True, kw_only=True)
class EppLimits:
    """The bounds of the server."""

    max_body_bytes: int = 8 * 2**20  # of a request, that the decision may see; more is decided by its beginning
    max_message_bytes: int = 64 * 2**20  # of one message, so of a buffered body; beyond: 413
    max_held_bytes: int = 512 * 2**20  # of all bodies and messages held at once; who crosses it is turned away
    max_streams: int = 1024  # of one connection
    max_connections: int = 64
    deadline_s: float = 0.2  # FULL_DUPLEX_STREAMED: decide by what has come so long after the headers
    keepalive_s: float = 20.0  # a peer that is silent for so long is asked; silent for as long again, it is dropped


@dataclass(slots=True)
class Desk:
    """What the calls of all connections share."""

    service: PickService
    limits: EppLimits
    ready: Callable[[], bool]
    counters: EppCounters = field(default_factory=EppCounters)
    held_bytes: int = 0
    watchers: set["WatchCall"] = field(default_factory=set)

    def accept(self, stream: Stream, headers: Mapping[bytes, bytes], later: Later) -> Handler:
        """The call that a stream's headers ask for."""
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            stream.finish([(b":status", b"415")])
            return _Nothing()
        match headers.get(b":path", b"").decode("latin-1"):
            case "/envoy.service.ext_proc.v3.ExternalProcessor/Process":
                return ProcessCall(self, stream, later)
            case "/grpc.health.v1.Health/Check":
                return CheckCall(self, stream)
            case "/grpc.health.v1.Health/Watch":
                return WatchCall(self, stream)
            case path:
                stream.finish(_START + _status(Status.UNIMPLEMENTED, f"no such method: {path[:100]}"))
                return _Nothing()

    def health(self, service: str) -> bytes | None:
        """A HealthCheckResponse; None for a service that is not served here."""
        if service == "liveness":
            return _SERVING
        if service in {"", "readiness", PROCESS_SERVICE}:
            return _SERVING if self.ready() else _NOT_SERVING
        return None


class _Nothing:
    """A stream that was answered with its headers."""

    def data(self, data: bytes) -> None:
        """Dropped."""

    def end(self) -> None:
        """Known already."""

    def lost(self) -> None:
        """Nothing to free."""


class _Call:
    """Cuts a stream's bytes into messages."""

    def __init__(self, desk: Desk, stream: Stream, *, max_bytes: int) -> None:
        self._desk = desk
        self._stream = stream
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # of a message that is not whole
        self._have = 0
        self._need: int | None = None  # bytes of the message that has begun; None = its prefix comes next
        self._started = False
        self._done = False

    def data(self, data: bytes) -> None:
        """More from the peer."""
        while data and not self._done:
            if self._need is None:
                data = self._read_prefix(data)
            if self._need is None or self._done:
                return
            missing = self._need - self._have
            self._parts.append(data if len(data) <= missing else data[:missing])
            self._have += len(self._parts[-1])
            if self._have < self._need:
                return
            data = data[missing:]
            self._message(self._whole())

    def _read_prefix(self, data: bytes) -> bytes:
        """Learn the next message's length; what comes after it is given back. Short of a prefix, all is kept."""
        data = self._whole() + data if self._have else data
        if len(data) < _PREFIX.size:
            self._parts, self._have = [data], len(data)
            return b""
        compressed, length = _PREFIX.unpack_from(data)
        if compressed:
            self._fail(Status.UNIMPLEMENTED, "compressed messages are not read")
        elif length > self._max_bytes:
            self._too_large()
        self._need = length
        return data[_PREFIX.size :]

    def _whole(self) -> bytes:
        """What is held, as one piece, held no longer."""
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._drop()
        return whole

    def _drop(self) -> None:
        self._parts, self._have, self._need = [], 0, None

    def end(self) -> None:
        """The peer has said all."""
        if self._have or self._need is not None:
            self._fail(Status.INVALID_ARGUMENT, "a message is cut")

    def lost(self) -> None:
        """The stream is gone."""
        self._done = True
        self._drop()

    def _message(self, message: bytes) -> None:
        raise NotImplementedError

    def _too_large(self) -> None:
        self._fail(Status.RESOURCE_EXHAUSTED, f"a message may have {self._max_bytes} bytes")

    def _send(self, messages: list[bytes]) -> None:
        if not self._started:
            self._started = True
            self._stream.start(_START)
        if len(messages) <= _JOINED:
            self._stream.send(b"".join(_PREFIX.pack(0, len(message)) + message for message in messages))
            return
        for number, message in enumerate(messages):
            messages[number] = b""  # a body given back is held once, not once per step
            self._stream.send(_PREFIX.pack(0, len(message)) + message)

    def _fail(self, status: Status, reason: str) -> None:
        self._finish(status, reason)

    def _finish(self, status: Status = Status.OK, reason: str = "") -> None:
        if not self._done:
            self._done = True
            self._stream.finish(([] if self._started else _START) + _status(status, reason))


class ProcessCall(_Call):
    """One ext_proc stream: an exchange with its deadline and its share of the memory."""

    def __init__(self, desk: Desk, stream: Stream, later: Later) -> None:
        super().__init__(desk, stream, max_bytes=desk.limits.max_message_bytes)
        desk.counters.streams += 1
        self._exchange = Exchange(desk.service, desk.counters, max_body_bytes=desk.limits.max_body_bytes)
        self._later = later
        self._timer: _Timer | None = None
        self._held = 0

    def data(self, data: bytes) -> None:
        """More from the proxy."""
        super().data(data)
        self._account()
        if self._desk.held_bytes > self._desk.limits.max_held_bytes and self._held and not self._done:
            self._fail(Status.RESOURCE_EXHAUSTED, "too many bodies are held")
            self._account()

    def end(self) -> None:
        """The proxy has said all: so have we."""
        super().end()
        self._finish()

    def lost(self) -> None:
        """The stream is gone: what was picked is released."""
        super().lost()
        self._cancel()
        self._exchange.close()
        self._account()

    def _message(self, message: bytes) -> None:
        try:
            answers = self._exchange.receive(message)
        except BadExchange as error:
            self._fail(Status.INVALID_ARGUMENT, str(error))
            return
        self._answer(answers)
        if self._timer is None and self._exchange.waits_for_body:
            self._timer = self._later(self._desk.limits.deadline_s, self._time_is_up)
        elif self._timer is not None and not self._exchange.waits_for_body:
            self._cancel()

    def _time_is_up(self) -> None:
        if not self._done:
            self._answer(self._exchange.time_is_up())
            self._account()

    def _too_large(self) -> None:
        answers = self._exchange.too_large()
        if answers:
            self._answer(answers)
        else:
            super()._too_large()

    def _answer(self, answers: list[bytes]) -> None:
        if answers:
            self._send(answers)
        if self._exchange.finished:
            self._finish()

    def _fail(self, status: Status, reason: str) -> None:
        self._desk.counters.bad += not self._done
        super()._fail(status, reason)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _account(self) -> None:
        held = 0 if self._done else self._have + self._exchange.held_bytes
        self._desk.held_bytes += held - self._held
        self._held = held


class CheckCall(_Call):
    """grpc.health.v1.Health/Check."""

    def __init__(self, desk: Desk, stream: Stream) -> None:
        super().__init__(desk, stream, max_bytes=_MAX_SMALL_BYTES)

    def end(self) -> None:
        """Nothing was asked, or it was answered."""
        super().end()
        self._finish(Status.INVALID_ARGUMENT, "no request")

    def _message(self, message: bytes) -> None:
        answer = self._desk.health(_service_of(message))
        if answer is None:
            self._finish(Status.NOT_FOUND, "no such service")
        else:
            self._send([answer])
            self._finish()


class WatchCall(_Call):
    """grpc.health.v1.Health/Watch: the state now, and again when `refresh` finds another."""

    def __init__(self, desk: Desk, stream: Stream) -> None:
        super().__init__(desk, stream, max_bytes=_MAX_SMALL_BYTES)
        self._service: str | None = None
        self._told = b""

    def refresh(self) -> None:
        """Tell a change."""
        if self._service is None or self._done:
            return
        state = self._desk.health(self._service) or _SERVICE_UNKNOWN
        if state != self._told:
            self._told = state
            self._send([state])

    def lost(self) -> None:
        """Nobody watches."""
        super().lost()
        self._desk.watchers.discard(self)

    def _message(self, message: bytes) -> None:
        self._service = _service_of(message)
        self._desk.watchers.add(self)
        self.refresh()


def _service_of(message: bytes) -> str:
    """The one field of HealthCheckRequest; "" where it is absent or not what it should be."""
    if len(message) >= 2 and message[0] == 0x0A and message[1] < 0x80:
        return message[2 : 2 + message[1]].decode("utf-8", "replace")
    return ""


def _status(status: Status, reason: str) -> Headers:
    headers: Headers = [(b"grpc-status", b"%d" % status)]
    if reason:  # never in the compression table, where a peer's many paths would stay
        headers.append(NeverIndexedHeaderTuple(b"grpc-message", quote(reason, safe=" :,.")[:120].encode()))
    return headers
