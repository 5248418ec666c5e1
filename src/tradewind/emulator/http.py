"""A raw HTTP/1.1 server on httptools: one protocol object per connection, no framework between a token and the socket.

Behaves like uvicorn where a peer can tell: header order, keep-alive closed after 5 s of idleness, 400 for garbage.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from tradewind.emulator.wan import DelayLine, Path, reset

KEEP_ALIVE_S = 5.0
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_UNREAD_BYTES = 16 * 1024 * 1024  # written but not taken by a client that does not read: then the connection is cut
MAX_PIPELINED = 64
MAX_HEAD_BYTES = 64 * 1024

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
Header = tuple[str, str]


@dataclass(slots=True)
class HttpRequest:
    """One whole request. Header names are lower case."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]
    body: bytes
    received_s: float  # time.monotonic() when its last byte arrived


class App(Protocol):
    """What answers requests. `handle` must answer through the exchange, now or later, and must not raise."""

    def handle(self, exchange: "Exchange") -> None:
        """Answers one request."""


@dataclass(slots=True)
class Exchange:
    """One request and its response on a connection."""

    request: HttpRequest
    connection: "Connection"
    on_gone: Callable[[], None] | None = None  # called once if the client leaves before the response is complete
    streaming: bool = False
    done: bool = False
    started: bool = field(default=False)

    def respond(self, status: int, body: bytes, headers: Iterable[Header] = ()) -> None:
        """Sends a whole response."""
        if self.done:
            return
        head = self.connection.head(status, headers)
        self.connection.send(head + (b"" if self.request.method == "HEAD" else body))
        self.connection.finish(self)

    def start_stream(self, headers: Iterable[Header]) -> None:
        """Sends the head of a chunked response."""
        self.streaming = True
        self.connection.send(self.connection.head(200, (*headers, ("transfer-encoding", "chunked"))))

    def write_frames(self, frames: bytes) -> None:
        """Sends ready-made HTTP chunks (see `frame`)."""
        if not self.done:
            self.connection.send(frames)

    def end_stream(self, frames: bytes = b"") -> None:
        """Sends `frames` and the end of a chunked response."""
        if self.done:
            return
        self.connection.send(frames + b"0\r\n\r\n")
        self.connection.finish(self)

    def send_raw(self, data: bytes) -> None:
        """Sends bytes as they are: for faults that break HTTP."""
        self.connection.send(data)

    def cut(self) -> None:
        """Closes the connection in the middle of the response."""
        self.connection.cut()


def frame(payload: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class HttpServer:
    """The connections of one process and what they share."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop) -> None:
        self.app = app
        self.loop = loop
        self.connections: set[Connection] = set()
        self.closing = False
        self._date_second = 0
        self._date = ""

    def date(self) -> str:
        """The Date header, made once a second."""
        second = int(time.time())
        if second != self._date_second:
            self._date_second = second
            self._date = formatdate(second, usegmt=True)
        return self._date

    def factory(self, path: Path | None = None) -> Callable[[], "Connection"]:
        """Returns a protocol factory for one listener, behind a WAN path or not."""
        return lambda: Connection(self, path)

    def close_idle(self) -> None:
        """Closes connections without a request under way, and the others after it; for shutdown."""
        self.closing = True
        for connection in list(self.connections):
            connection.close_if_idle()


class Connection(asyncio.Protocol):
    """One client connection; requests are answered one after the other."""

    def __init__(self, server: HttpServer, path: Path | None) -> None:
        self._server = server
        self._path = path
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._inbound: DelayLine | None = None
        self._outbound: DelayLine | None = None
        self._exchange: Exchange | None = None
        self._pending: list[HttpRequest] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._keep_alive = True
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._head_bytes = 0
        self._refused = False  # what still arrives is not looked at

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from asyncio's
        self._server.connections.add(self)
        if self._path is not None:
            # A real handshake takes a round trip before the first byte can leave; loopback's took none.
            first_s = 1.5 * self._path.wan.rtt_s
            self._inbound = DelayLine(self._path, self._feed, direction=0, opens_after_s=first_s)
            self._inbound.given_up = lambda: reset(self._transport)
            self._outbound = DelayLine(self._path, self._write, direction=1, opens_after_s=0.0)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client; they count as arrived when the path has carried them."""
        if self._inbound is not None:
            self._inbound.send(data)
            if self._inbound.queued_bytes > MAX_BODY_BYTES:
                self.cut()
        else:
            self._feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone; the engine learns it when the path has carried the news."""
        self._cancel_idle()
        self._transport = None
        if self._outbound is not None:
            self._outbound.drop()
        if self._inbound is not None:
            self._inbound.then(self._gone)
        else:
            self._gone()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._cancel_idle()
        self._url = b""
        self._headers = {}
        self._body = []
        self._body_bytes = 0
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        """The request target, possibly in pieces."""
        if self._head_fits(len(url)):
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if self._head_fits(len(name) + len(value)):
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._refused:
            return
        if self._body_bytes > MAX_BODY_BYTES:
            self._refuse(413, "Request body too large.")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._refused:
            return
        try:
            target = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            self._refuse(400, "Invalid HTTP request received.")
            return
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=(target.path or b"/").decode("latin-1"),
            query=(target.query or b"").decode("latin-1"),
            headers=self._headers,
            body=b"".join(self._body),
            received_s=time.monotonic(),
        )
        self._body = []
        self._keep_alive = bool(self._parser.should_keep_alive())
        if self._exchange is None:
            self._begin(request)
        elif len(self._pending) < MAX_PIPELINED:
            self._pending.append(request)
        else:
            self.cut()

    # -- for exchanges ------------------------------------------------------------------------------------------------

    def head(self, status: int, headers: Iterable[Header]) -> bytes:
        """The head of a response, in uvicorn's order."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        date = self._server.date()
        return f"{_STATUS_LINES[status]}date: {date}\r\nserver: uvicorn\r\n{lines}\r\n".encode("latin-1")

    def send(self, data: bytes) -> None:
        """Sends bytes to the client, over the path if there is one."""
        if self._outbound is not None:
            self._outbound.send(data)
        else:
            self._write(data)

    def finish(self, exchange: Exchange) -> None:
        """The response is complete: next request, or idle, or close."""
        exchange.done = True
        self._exchange = None
        if not self._keep_alive or self._server.closing:
            self._close()
        elif self._pending:
            self._server.loop.call_soon(self._next)
        else:
            self._arm_idle()

    def call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Calls `action` later on the server's loop."""
        self._server.loop.call_later(delay_s, action)

    def cut(self) -> None:
        """Closes at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_idle(self) -> None:
        """Closes a connection that has nothing to answer."""
        if self._exchange is None:
            self._close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        if self._refused:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # h2c and websocket offers are ignored, as uvicorn does without the extra packages
        except httptools.HttpParserCallbackError:
            self.cut()  # a bug of ours, not the peer's: the loop logs it
            raise
        except httptools.HttpParserError:
            self._refuse(400, "Invalid HTTP request received.")

    def _head_fits(self, more_bytes: int) -> bool:
        self._head_bytes += more_bytes
        if self._head_bytes > MAX_HEAD_BYTES and not self._refused:
            self._refuse(431, "Request header fields too large.")
        return not self._refused

    def _refuse(self, status: int, text: str) -> None:
        self._refused = True
        body = text.encode()
        head = _STATUS_LINES[status] + f"content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        self.send(head.encode() + b"connection: close\r\n\r\n" + body)
        self._close()

    def _begin(self, request: HttpRequest) -> None:
        exchange = Exchange(request, self)
        self._exchange = exchange
        self._server.app.handle(exchange)

    def _next(self) -> None:
        if self._pending and self._exchange is None:
            self._begin(self._pending.pop(0))

    def _write(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._transport.abort()

    def _close(self) -> None:
        if self._outbound is not None:
            self._outbound.then(self._close_now)
        else:
            self._close_now()

    def _close_now(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _gone(self) -> None:
        self._server.connections.discard(self)
        if self._inbound is not None:
            self._inbound.drop()
        exchange, self._exchange = self._exchange, None
        self._pending = []
        if exchange is not None and not exchange.done:
            exchange.done = True
            if exchange.on_gone is not None:
                exchange.on_gone()

    def _arm_idle(self) -> None:
        self._cancel_idle()
        self._idle_timer = self._server.loop.call_later(KEEP_ALIVE_S, self._close)

    def _cancel_idle(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
