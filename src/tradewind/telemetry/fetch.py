"""Bounded HTTP reads of one peer: time, bytes and redirects limited, and a keep-alive race survived."""

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tradewind.telemetry.http_connection import (
    CONNECT_TIMEOUT_S,
    Fault,
    FetchFailed,
    HttpConnection,
    Response,
    Target,
    open_connection,
    parse_target,
    request_bytes,
)

MAX_PAGE_BYTES = 4 * 2**20  # vLLM's page is 70 KB, eight MIG-split GPUs are 300 KB
FETCH_TIMEOUT_S = 2.5
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31
GZIP_PIECE_BYTES = 16 * 1024
MAX_MEMBERS = 4096
UNDERSTOOD = ("", "identity", "gzip", "x-gzip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The body of a 200 answer, decoded."""

    body: bytes
    whole: bool  # False: the end of the page cannot be told from a cut
    took_s: float


class Fetcher:
    """Reads one peer over one keep-alive connection. Not for concurrent use: one request at a time.

    A connection that ends before the answer is complete is retried once on a fresh one, for requests that may be
    repeated: engines close idle connections after 5 s, and that race is nobody's fault.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = FETCH_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_bytes: int = MAX_PAGE_BYTES,
        headers: tuple[tuple[str, str], ...] = (),
        on_lost: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Raises ValueError if url is not one. `headers` go with every request and nowhere else."""
        self.target: Target = parse_target(url)
        self.retries = 0  # how many requests were repeated on a fresh connection
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._max_bytes = max_bytes
        self._headers = headers
        self._on_lost = on_lost
        self._clock = clock
        self._connection: HttpConnection | None = None

    async def page(self, path: str = "") -> Page:
        """GET a page. Raises FetchFailed for everything but a complete 200 within the bounds."""
        started_s = self._clock()
        response = await self.exchange("GET", path)
        if 300 <= response.status < 400:
            raise FetchFailed(Fault.REDIRECT, f"answers {response.status}; redirects are not followed")
        if response.status != 200:
            raise FetchFailed(Fault.STATUS, f"answers {response.status}")
        body = _decoded(response, self._max_bytes)
        return Page(body=body, whole=response.whole, took_s=self._clock() - started_s)

    async def exchange(
        self, method: str, path: str, *, body: bytes | None = None, timeout_s: float | None = None
    ) -> Response:
        """One request, any status. Raises FetchFailed. Only a GET is repeated on a fresh connection."""
        request = request_bytes(self.target, method, path, headers=self._headers, body=body)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = self._clock() + limit_s
        try:
            return await self._once(request, limit_s)
        except FetchFailed as failure:
            remaining_s = deadline_s - self._clock()
            if failure.fault is not Fault.RESET or method != "GET" or remaining_s <= 0:
                raise
        self.retries += 1
        self.close()
        return await self._once(request, remaining_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _once(self, request: bytes, limit_s: float) -> Response:
        started_s = self._clock()
        connection = self._connection
        if connection is None or not connection.is_open:
            connect_s = min(self._connect_timeout_s, limit_s)
            connection = await open_connection(self.target, timeout_s=connect_s, on_lost=self._on_lost)
            self._connection = connection
        left_s = max(0.001, limit_s - (self._clock() - started_s))
        return await connection.request(request, timeout_s=left_s, max_bytes=self._max_bytes)


def _decoded(response: Response, max_bytes: int) -> bytes:
    """Undo gzip where the body really is gzip: some servers only say so, and some do not say it. Raises FetchFailed."""
    encoding = response.headers.get("content-encoding", "").lower()
    if encoding not in UNDERSTOOD:
        raise FetchFailed(Fault.MALFORMED, "compressed in a way that was not asked for")
    if not response.body.startswith(GZIP_MAGIC):
        return response.body
    try:
        return _unpacked(response.body, max_bytes)
    except zlib.error:
        raise FetchFailed(Fault.MALFORMED, "broken gzip") from None


def _unpacked(packed: bytes, max_bytes: int) -> bytes:
    """All members of a gzip body: a server that flushes makes several. Raises FetchFailed and zlib.error."""
    rest, parts, left = memoryview(packed), [], max_bytes
    for _ in range(MAX_MEMBERS):
        inflater = zlib.decompressobj(GZIP_WBITS)
        while not inflater.eof:
            if not rest:
                raise FetchFailed(Fault.MALFORMED, "gzip data is cut off")
            piece = rest[:GZIP_PIECE_BYTES]  # what follows a member is copied, so not all of it at once
            parts.append(inflater.decompress(piece, left + 1))
            left -= len(parts[-1])
            if left < 0:
                raise FetchFailed(Fault.TOO_LARGE, f"larger than {max_bytes} bytes when unpacked")
            rest = rest[len(piece) - len(inflater.unused_data) :]
        if not rest or (rest[0] == 0 and not any(rest)):  # zeros are padding
            return b"".join(parts)
    raise FetchFailed(Fault.TOO_LARGE, f"more than {MAX_MEMBERS} gzip members")


async def sleep_or(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set (True, and it is cleared) or the time is over (False)."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
