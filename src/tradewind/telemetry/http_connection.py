"""One HTTP/1.1 keep-alive connection with hard bounds on time and bytes; its loss is noticed at once."""

import asyncio
import errno
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast
from urllib.parse import urlsplit

import httptools

CONNECT_TIMEOUT_S = 1.0


class Fault(StrEnum):
    """Why there is no usable answer. The values are label values of metrics, so their number is bounded."""

    REFUSED = "refused"
    UNREACHABLE = "unreachable"  # connect timed out, no route, no such host
    RESET = "reset"  # the connection ended before the answer was complete
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    STATUS = "status"
    REDIRECT = "redirect"


class FetchFailed(Exception):
    """A peer gave no usable answer. The text never holds a peer's body, a header or a key."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a URL points."""

    host: str
    port: int
    path: str = ""  # as it is written
    tls: bool = False

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A complete answer. first_byte_s is counted from the moment the request was written."""

    status: int
    headers: dict[str, str]  # names in lower case; of repeated ones the last
    body: bytes
    first_byte_s: float
    whole: bool = True  # False: the body had no length and was ended by the close of the connection
    reusable: bool = True


def parse_target(url: str) -> Target:
    """Split an http(s) URL. Raises ValueError with what to write; a key in the URL is refused, as URLs get logged."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// URL, e.g. http://127.0.0.1:8000")
    if parts.username or parts.password or parts.query:
        raise ValueError("a URL of an engine or exporter holds neither a password nor a query")
    tls = parts.scheme == "https"
    port = parts.port if parts.port is not None else (443 if tls else 80)
    return Target(host=parts.hostname, port=port, path=parts.path, tls=tls)


def request_bytes(
    target: Target, method: str, path: str, *, headers: tuple[tuple[str, str], ...] = (), body: bytes | None = None
) -> bytes:
    """The bytes of a request; `path` is taken below the target's own path, and "" is that path as it is written."""
    place = target.path.rstrip("/") + path if path else target.path or "/"
    lines = [f"{method} {place} HTTP/1.1", f"host: {target.authority}", "user-agent: tradewind"]
    lines += ["accept-encoding: identity", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    head = "\r\n".join(lines).encode("latin-1")
    assert head.count(b"\r\n") == len(lines) - 1, "a header value holds a line break"
    return head + b"\r\n\r\n" + (body or b"")


async def open_connection(
    target: Target,
    *,
    timeout_s: float = CONNECT_TIMEOUT_S,
    on_lost: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> "HttpConnection":
    """Connect. Raises FetchFailed (refused, unreachable, reset). `on_lost` is called when the peer ends an idle or busy
    connection without having said so ("connection: close"), not when this side closes it."""
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context() if target.tls else None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: HttpConnection(on_lost=on_lost, clock=clock), target.host, target.port, ssl=context
            )
    except TimeoutError:
        raise FetchFailed(Fault.UNREACHABLE, f"connect timed out after {timeout_s:.3g} s") from None
    except ConnectionRefusedError:
        raise FetchFailed(Fault.REFUSED, "connection refused") from None
    except ssl.SSLError as error:
        raise FetchFailed(Fault.MALFORMED, f"TLS: {error.reason}") from None
    except ConnectionError as error:
        raise FetchFailed(Fault.RESET, f"connect: {error.strerror or 'connection lost'}") from None
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one, e.g. "a..b"
        if _is_refusal_by_all(str(error)):
            raise FetchFailed(Fault.REFUSED, "connection refused") from None
        raise FetchFailed(Fault.UNREACHABLE, f"connect: {error}") from None
    return connection


def _is_refusal_by_all(text: str) -> bool:
    """A name with several addresses, as localhost has: asyncio gives their errors as one text."""
    refusals = text.count(f"[Errno {errno.ECONNREFUSED}]")
    return refusals > 0 and refusals == text.count("[Errno ")


@dataclass(slots=True)
class _Exchange:
    """One request that waits for its answer."""

    future: "asyncio.Future[Response]"
    parser: httptools.HttpResponseParser
    max_bytes: int
    started_s: float
    first_byte_s: float | None = None
    wire_bytes: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)
    headers_done: bool = False
    complete: bool = False


class HttpConnection(asyncio.Protocol):
    """Made by open_connection; one request at a time."""

    def __init__(self, *, on_lost: Callable[[], None] | None, clock: Callable[[], float]) -> None:
        self._on_lost = on_lost
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._exchange: _Exchange | None = None
        self._closed_here = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def request(self, request: bytes, *, timeout_s: float, max_bytes: int) -> Response:
        """Send one request and return its answer, whatever its status. Raises FetchFailed; then, and on
        cancellation, the connection is closed. max_bytes bounds head and body on the wire together."""
        assert self._exchange is None, "one request at a time"
        transport = self._transport
        if transport is None or transport.is_closing():
            raise FetchFailed(Fault.RESET, "the connection is closed")
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        exchange = _Exchange(future, httptools.HttpResponseParser(self), max_bytes, self._clock())
        self._exchange = exchange
        transport.write(request)
        try:
            async with asyncio.timeout(timeout_s):
                response = await future
        except TimeoutError:
            self.close()
            what = "no answer" if exchange.first_byte_s is None else "no complete answer"
            raise FetchFailed(Fault.TIMEOUT, f"{what} within {timeout_s:.3g} s") from None
        except (FetchFailed, asyncio.CancelledError):
            self.close()
            raise
        finally:
            self._exchange = None
        if not response.reusable:
            self.close()
        return response

    def close(self) -> None:
        """End the connection at once and silently: what was not sent is dropped."""
        self._closed_here = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None or exchange.complete:  # bytes nobody asked for: the stream is out of step
            if self._transport is not None:
                self._transport.abort()
            return
        if exchange.first_byte_s is None:
            exchange.first_byte_s = self._clock() - exchange.started_s
        exchange.wire_bytes += len(data)
        if exchange.wire_bytes > exchange.max_bytes:
            self._fail(Fault.TOO_LARGE, f"larger than {exchange.max_bytes} bytes")
            return
        try:
            exchange.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(Fault.MALFORMED, "switches to another protocol")
        except httptools.HttpParserError as error:
            self._fail(Fault.MALFORMED, f"not HTTP: {type(error).__name__}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end_of_stream(broken=exc is not None)
        if self._on_lost is not None and not self._closed_here:
            self._on_lost()

    # httptools
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._exchange is not None and not self._exchange.headers_done:  # trailers say nothing of the body
            self._exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._exchange is not None:
            self._exchange.headers_done = True

    def on_body(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.parts.append(data)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.parser.get_status_code() < 200:  # an interim answer; the real one follows
            exchange.headers.clear()
            exchange.headers_done = False
            return
        exchange.complete = True
        self._finish(exchange, whole=True, reusable=bool(exchange.parser.should_keep_alive()))

    def _end_of_stream(self, *, broken: bool) -> None:
        exchange = self._exchange
        if exchange is None or exchange.complete:
            return
        lengths = ("content-length", "transfer-encoding")
        if not broken and exchange.headers_done and not any(name in exchange.headers for name in lengths):
            self._finish(exchange, whole=False, reusable=False)
        else:
            what = "before an answer" if exchange.first_byte_s is None else "inside the answer"
            self._fail(Fault.RESET, f"connection lost {what}")

    def _finish(self, exchange: _Exchange, *, whole: bool, reusable: bool) -> None:
        if exchange.future.done():
            return
        exchange.future.set_result(
            Response(
                status=exchange.parser.get_status_code(),
                headers=exchange.headers,
                body=b"".join(exchange.parts),
                first_byte_s=exchange.first_byte_s or 0.0,
                whole=whole,
                reusable=reusable,
            )
        )

    def _fail(self, fault: Fault, detail: str) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.complete = True
            if not exchange.future.done():
                exchange.future.set_exception(FetchFailed(fault, detail))
        if self._transport is not None:
            self._transport.abort()
