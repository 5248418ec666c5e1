"""A blocking HTTP client that shows what a router sees: status, headers, events one by one, how a stream ended."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.contract.engine import Server

TIMEOUT_S = 60.0  # silence after which a request counts as hung; no check asserts a latency
DONE = "[DONE]"

Json = dict[str, Any]
Event = Json | str  # a decoded chunk, or DONE


def eventually(holds: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Polls until `holds()`; fails with `what` at the deadline."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {what}"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole response. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Json:
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded

    def error(self) -> Json:
        """The OpenAI-shaped error object."""
        assert self.headers["content-type"] == "application/json"
        error = self.json()["error"]
        assert isinstance(error, dict)
        return error


def send(
    server: Server,
    method: str,
    path: str,
    body: Json | bytes | None = None,
    *,
    headers: dict[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """One request on its own connection. Raises OSError or http.client.HTTPException as the network has it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout_s)
    try:
        connection.request(method, path, _encoded(body), {"content-type": "application/json"} | (headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(status=response.status, headers=found, body=response.read())
    finally:
        connection.close()


def get(server: Server, path: str) -> Answer:
    return send(server, "GET", path)


def post(server: Server, path: str, body: Json | bytes | None = None, **headers: str) -> Answer:
    return send(server, "POST", path, body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def _encoded(body: Json | bytes | None) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()


class Stream:
    """One streamed POST. Sent at construction, which returns with the response's headers; iterate for its events.

    `cut` is None until the body has ended, then whether it ended without the last chunk. Leaving the `with` block
    closes the connection, read to its end or not.
    """

    def __init__(self, server: Server, path: str, body: Json, *, timeout_s: float = TIMEOUT_S) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout_s)
        self._connection.request("POST", path, _encoded(body), {"content-type": "application/json"})
        self._response = self._connection.getresponse()
        self._pending = b""
        self.status = self._response.status
        self.content_type = self._response.getheader("content-type")
        self.cut: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[Event]:
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Event | None:
        while b"\n\n" not in self._pending:
            piece = self._read()
            if not piece:
                return None
            self._pending += piece
        raw, self._pending = self._pending.split(b"\n\n", 1)
        assert raw.startswith(b"data: "), raw
        text = raw.removeprefix(b"data: ").decode()
        return DONE if text == DONE else _object(text)

    def _read(self) -> bytes:
        try:
            piece = self._response.read1(65_536)
        except (http.client.IncompleteRead, ConnectionError):
            self.cut = True
            return b""
        if not piece:
            self.cut = False
        return piece


def _object(text: str) -> Json:
    decoded = json.loads(text)
    assert isinstance(decoded, dict)
    return decoded


def chunks_of(stream: Stream) -> list[Json]:
    """Every chunk of a stream that ends as it should: 200, SSE, [DONE], last HTTP chunk."""
    assert stream.status == 200
    assert stream.content_type == "text/event-stream; charset=utf-8"
    events = list(stream)
    assert events[-1] == DONE
    assert stream.cut is False
    return [event for event in events[:-1] if isinstance(event, dict)]
