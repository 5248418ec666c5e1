"""The gateway's admin HTTP: health, readiness, metrics, status, events, outcomes, explanations; on loopback."""

from typing import Protocol

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tradewind.gateway.events import MAX_EVENTS, EventRow
from tradewind.gateway.outcomes import Summary
from tradewind.gateway.pick.explain import Explanation
from tradewind.gateway.status import GatewayStatus, Row


class Events(Row, frozen=True, kw_only=True):
    """Answer of /v1/events; ask on with after=last."""

    events: list[EventRow]
    last: int


class Reloaded(Row, frozen=True, kw_only=True):
    """Answer of /v1/reload."""

    applied: bool
    error: str


class Answers(Protocol):
    """What the admin API asks of the gateway."""

    registry: CollectorRegistry

    def status(self) -> GatewayStatus: ...

    def events_after(self, sequence: int, *, limit: int) -> list[EventRow]: ...

    def summary(self) -> Summary: ...

    def explain(self, request_id: str) -> Explanation: ...

    def reload(self) -> Reloaded: ...


def admin_app(answers: Answers) -> Starlette:
    """The application; every handler is quick and synchronous at heart."""

    async def healthz(_request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_request: Request) -> Response:
        ready = answers.status().ready
        return Response(
            "ready\n" if ready else "Envoy has not taken a snapshot yet\n", status_code=200 if ready else 503
        )

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(answers.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def status(_request: Request) -> Response:
        return _json(answers.status())

    async def events(request: Request) -> Response:
        after = _number(request.query_params.get("after"), default=0)
        limit = _number(request.query_params.get("limit"), default=200)
        if after is None or limit is None:
            return _json({"error": "after and limit are whole numbers, e.g. ?after=0&limit=200"}, status=400)
        rows = answers.events_after(after, limit=min(limit, MAX_EVENTS))
        return _json(Events(events=rows, last=rows[-1].sequence if rows else after))

    async def outcomes(_request: Request) -> Response:
        return _json(answers.summary())

    async def explain(request: Request) -> Response:
        return _explained(answers, request.query_params.get("id", ""))

    async def reload(_request: Request) -> Response:
        result = answers.reload()
        return _json(result, status=400 if result.error else 200)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/v1/status", status),
            Route("/v1/events", events),
            Route("/v1/outcomes", outcomes),
            Route("/v1/explain", explain),
            Route("/v1/reload", reload, methods=["POST"]),
        ]
    )


def _explained(answers: Answers, request_id: str) -> Response:
    if not request_id:
        return _json({"error": "which request? its x-request-id, /v1/explain?id=..."}, status=400)
    return _json(answers.explain(request_id))


def _number(text: str | None, *, default: int) -> int | None:
    """A whole number of at most 18 digits; None when it is not one."""
    if text is None:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _json(value: object, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
