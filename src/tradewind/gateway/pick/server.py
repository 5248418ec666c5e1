"""HTTP/1.1 on a Unix socket for Envoy's ext_authz: a parser in C, one synchronous answer per question, no framework.

Bounds: one question per connection at a time, `max_body_bytes` of each body, `MAX_CONNECTIONS` connections, headers as
Envoy limits them. A connection that breaks a bound, or HTTP, is closed and counted; Envoy then goes on by the weights.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools

MAX_CONNECTIONS = 1024
MAX_HEADERS = 256
UNHEARD_S = 1.0  # Envoy closes a connection whose answer came too late, or whose client left; else it keeps them
_REASONS = {status.value: status.phrase for status in HTTPStatus}


class Reply(NamedTuple):
    """An answer to Envoy: 200 lets the request go on, 4xx is for the client, 5xx leaves it to the weights."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()  # no line breaks: the caller's own or cleaned values
    body: bytes = b""


LEFT_TO_SHARES = Reply(503)


class Question(NamedTuple):
    """What Envoy shows of a request: the path, some headers (names in lower case), the beginning of its body."""

    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Question], Reply]


class PickServer:
    """Owns the socket; `answer` decides and never raises."""

    def __init__(
        self,
        path: str,
        answer: Answer,
        *,
        max_body_bytes: int,
        on_unheard: Callable[[Reply], None] = lambda _reply: None,
    ) -> None:
        """`on_unheard` is given an answer that Envoy did not wait for: the request went another way, or its end."""
        self._path = path
        self.answer = answer
        self.on_unheard = on_unheard
        self.max_body_bytes = max_body_bytes
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()
        self.broken = 0  # connections closed for breaking a bound or HTTP

    async def start(self) -> None:
        """Listen; a socket file left by a killed process is replaced."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), self._path, backlog=MAX_CONNECTIONS)
        os.chmod(self._path, 0o600)

    async def start_again(self) -> None:
        """Listen anew, the socket file having gone; connections that are open go on."""
        if self._server is not None:
            self._server.close()
        await self.start()

    async def stop(self) -> None:
        """Close the socket and every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()
        with contextlib.suppress(OSError):  # gone already, or on a disk that has become read-only
            os.unlink(self._path)


class _Connection(asyncio.Protocol):
    """One connection of Envoy. httptools calls the on_ methods."""

    def __init__(self, server: PickServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: Reply | None = None
        self._answered_s = 0.0
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0

    # --- asyncio ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Envoy connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        if len(self._server.connections) >= MAX_CONNECTIONS:
            self._break()
            return
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """More of a question."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, _BrokenBound):
            self._break()

    def connection_lost(self, error: Exception | None) -> None:
        """Envoy went away, perhaps in the middle of a question."""
        self._server.connections.discard(self)
        self._clear()
        answered, self._answered = self._answered, None
        if answered is not None and time.monotonic() - self._answered_s < UNHEARD_S:
            self._server.on_unheard(answered)

    def close(self) -> None:
        """Close from our side."""
        if self._transport is not None:
            self._transport.close()

    def _break(self) -> None:
        self._server.broken += 1
        self.close()

    # --- httptools --------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        """Part of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; the last of several wins."""
        if len(self._headers) >= MAX_HEADERS:
            raise _BrokenBound
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._size += len(body)
        if self._size > self._server.max_body_bytes:
            raise _BrokenBound
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """The question is whole: answer it."""
        parts = self._parts
        question = Question(
            self._url.decode("latin-1"), self._headers, parts[0] if len(parts) == 1 else b"".join(parts)
        )
        self._clear()
        if self._transport is not None and not self._transport.is_closing():
            self._answered = reply = self._server.answer(question)
            self._answered_s = time.monotonic()
            self._transport.write(encode(reply))


class _BrokenBound(Exception):
    """More headers or body than agreed."""


def encode(reply: Reply) -> bytes:
    """A reply as HTTP/1.1 with keep-alive."""
    lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, '')}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    lines.append(f"content-length: {len(reply.body)}\r\n\r\n")
    return "\r\n".join(lines).encode() + reply.body
