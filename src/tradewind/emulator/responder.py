"""Whole responses with the headers that every vLLM answer has, counted as vLLM's instrumentator counts them."""

import time
import uuid

import msgspec

from tradewind.emulator.http import Exchange, Header, HttpRequest
from tradewind.emulator.http_metrics import HttpMetrics

VARY: Header = ("vary", "Origin")


class Responder:
    """Sends and counts."""

    def __init__(self, metrics: HttpMetrics) -> None:
        self._metrics = metrics

    def json(self, exchange: Exchange, body: object) -> None:
        """200 with a JSON body."""
        self.send(exchange, 200, msgspec.json.encode(body))

    def send(
        self,
        exchange: Exchange,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        before: tuple[Header, ...] = (),
        handler: str = "",
    ) -> None:
        """Any response; `before` are headers that go ahead of the length, `handler` is the route if not the path."""
        kind: tuple[Header, ...] = (("content-type", content_type),) if body else ()
        length: Header = ("content-length", str(len(body)))
        exchange.respond(status, body, (*before, length, *kind, VARY, request_id_header(exchange.request)))
        self.count(exchange, status, len(body), handler=handler)

    def count(self, exchange: Exchange, status: int, response_bytes: int, *, handler: str = "") -> None:
        """Counts a response that was sent in another way; streams have no length and count 0 bytes."""
        request = exchange.request
        self._metrics.observe(
            handler=handler or request.path,
            method=request.method,
            status=status,
            request_bytes=len(request.body),
            response_bytes=response_bytes,
            duration_s=time.monotonic() - request.received_s,
        )


def request_id_header(request: HttpRequest) -> Header:
    """The client's id, or a new one."""
    return ("x-request-id", request.headers.get("x-request-id") or uuid.uuid4().hex)
