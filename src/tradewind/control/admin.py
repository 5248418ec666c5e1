"""The admin API: what the grid is, and the operator's orders."""

from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tradewind.control import api
from tradewind.control.admin_tuner import TunerAdmin
from tradewind.control.answers import BadRequest, json_reply, natural, read_body
from tradewind.control.grid import Grid, UnknownCell
from tradewind.control.guard import Guard, error_response
from tradewind.control.openapi import Endpoint, Parameter, openapi_document
from tradewind.control.page import PAGE
from tradewind.control.rows import cell_row, drain_row, gateway_row
from tradewind.control.saver import Saver
from tradewind.model.view import CellView

MAX_EVENTS_PER_REPLY = 1_000
MAX_REASON_CHARS = 200
SAVE_TIMEOUT_S = 2.0

_CELL = Parameter(name="cell_id", where="path", text="The cell's id.")
_AFTER = Parameter(name="after", where="query", text="Only events with a higher sequence.", kind="integer")
_LIMIT = Parameter(name="limit", where="query", text=f"At most so many, up to {MAX_EVENTS_PER_REPLY}.", kind="integer")


class Admin:
    """Handlers of the admin API and their route table."""

    def __init__(
        self,
        *,
        grid: Grid,
        saver: Saver,
        metrics: CollectorRegistry,
        status: Callable[[], api.StatusRow],
        version: str,
    ) -> None:
        self._grid = grid
        self._saver = saver
        self._metrics = metrics
        self._status = status
        self.endpoints = self._endpoints()
        self._document = msgspec.json.encode(openapi_document(self.endpoints, version=version))

    def app(self, *, token: str) -> Starlette:
        """The application; `token` "" where none is needed."""
        app = Starlette(
            routes=[Route(item.path, item.handler, methods=[item.method]) for item in self.endpoints],
            exception_handlers={
                BadRequest: _bad_request,
                UnknownCell: _unknown_cell,
                HTTPException: _http_error,
                500: _internal_error,
            },
        )
        open_paths = frozenset(item.path for item in self.endpoints if item.open)
        app.add_middleware(Guard, token=token, is_open=open_paths.__contains__)
        return app

    def _endpoints(self) -> tuple[Endpoint, ...]:
        tuner = TunerAdmin(self._grid.tuning, self._saver, clock=self._grid.clock).endpoints()
        return (*self._reading_endpoints(), *self._order_endpoints(), *tuner, *self._plain_endpoints())

    def _reading_endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(method="GET", path="/v1/grid", handler=self.grid, summary="The whole grid.", reply=api.GridRow),
            Endpoint(
                method="GET",
                path="/v1/cells/{cell_id}",
                handler=self.cell,
                summary="One cell.",
                reply=api.CellRow,
                parameters=(_CELL,),
                errors=(404,),
            ),
            Endpoint(
                method="GET",
                path="/v1/gateways",
                handler=self.gateways,
                summary="The gateways' last reports.",
                reply=api.GatewaysRow,
            ),
            Endpoint(
                method="GET",
                path="/v1/events",
                handler=self.events,
                summary="Life-cycle changes with time and cause, oldest first.",
                reply=api.EventsRow,
                parameters=(_AFTER, _LIMIT),
                errors=(400,),
            ),
            Endpoint(
                method="GET",
                path="/v1/status",
                handler=self.status,
                summary="The control process itself.",
                reply=api.StatusRow,
            ),
        )

    def _order_endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                method="POST",
                path="/v1/cells/{cell_id}/drain",
                handler=self.drain,
                summary="Take a cell out of new work; streams in flight finish.",
                reply=api.CellReply,
                request=api.DrainRequest,
                parameters=(_CELL,),
                errors=(400, 404, 413),
            ),
            Endpoint(
                method="POST",
                path="/v1/cells/{cell_id}/undrain",
                handler=self.undrain,
                summary="End an operator's drain.",
                reply=api.CellReply,
                parameters=(_CELL,),
                errors=(404,),
            ),
            Endpoint(
                method="DELETE",
                path="/v1/cells/{cell_id}",
                handler=self.forget,
                summary="Forget a cell for good; an agent that still beats registers it anew.",
                reply=api.CellReply,
                parameters=(_CELL,),
                errors=(404,),
            ),
        )

    def _plain_endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                method="GET",
                path="/healthz",
                handler=self.healthz,
                summary="The process is alive.",
                reply=api.HealthRow,
                open=True,
            ),
            Endpoint(
                method="GET",
                path="/readyz",
                handler=self.readyz,
                summary="Views are being published.",
                reply=api.HealthRow,
                errors=(503,),
                open=True,
            ),
            Endpoint(
                method="GET",
                path="/metrics",
                handler=self.metrics,
                summary="Prometheus metrics.",
                reply="text/plain",
            ),
            Endpoint(
                method="GET",
                path="/openapi.json",
                handler=self.openapi,
                summary="This document.",
                reply="application/json",
            ),
            Endpoint(method="GET", path="/", handler=self.page, summary="A page for people.", reply="text/html"),
        )

    async def grid(self, _request: Request) -> Response:
        grid = self._grid
        return json_reply(
            api.GridRow(
                grid=grid.name,
                control_id=grid.control_id,
                incarnation=grid.incarnation,
                version=grid.version,
                publishing=grid.publishing,
                holding_back_because=grid.holding_back_because,
                cells=[cell_row(status) for status in grid.statuses()],
                drains=[drain_row(cell_id, drain) for cell_id, drain in sorted(grid.drains.items())],
            )
        )

    async def cell(self, request: Request) -> Response:
        return json_reply(cell_row(self._grid.status(request.path_params["cell_id"])))

    async def gateways(self, _request: Request) -> Response:
        return json_reply(api.GatewaysRow(gateways=[gateway_row(status) for status in self._grid.gateways()]))

    async def events(self, request: Request) -> Response:
        after = natural(request, "after", default=0)
        limit = min(natural(request, "limit", default=MAX_EVENTS_PER_REPLY), MAX_EVENTS_PER_REPLY)
        ring = self._grid.events
        rows = ring.after(after, limit=limit)
        return json_reply(api.EventsRow(events=rows, last=ring.last, dropped=ring.dropped))

    async def status(self, _request: Request) -> Response:
        return json_reply(self._status())

    async def drain(self, request: Request) -> Response:
        order = await read_body(request, api.DrainRequest)
        if len(order.reason) > MAX_REASON_CHARS:
            raise BadRequest(400, "bad_reason", f"write a reason of at most {MAX_REASON_CHARS} characters")
        return await self._ordered(self._grid.drain(request.path_params["cell_id"], reason=order.reason))

    async def undrain(self, request: Request) -> Response:
        return await self._ordered(self._grid.undrain(request.path_params["cell_id"]))

    async def forget(self, request: Request) -> Response:
        return await self._ordered(self._grid.forget(request.path_params["cell_id"]))

    async def healthz(self, _request: Request) -> Response:
        return json_reply(api.HealthRow(status="ok"))

    async def readyz(self, _request: Request) -> Response:
        if self._grid.publishing:
            return json_reply(api.HealthRow(status="ok"))
        return error_response(503, "not_ready", self._grid.holding_back_because)

    async def metrics(self, _request: Request) -> Response:
        return Response(generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def openapi(self, _request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def page(self, _request: Request) -> Response:
        return Response(PAGE, media_type="text/html; charset=utf-8")

    async def _ordered(self, view: CellView) -> Response:
        """The order is in force already; say whether it would survive a restart."""
        saved = await self._saver.settled(SAVE_TIMEOUT_S)
        cell_id = view.cell.cell_id
        return json_reply(
            api.CellReply(cell_id=cell_id, state=view.state.value, draining=cell_id in self._grid.drains, saved=saved)
        )


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return error_response(error.status, error.code, str(error))


async def _unknown_cell(_request: Request, error: Exception) -> Response:
    assert isinstance(error, UnknownCell)
    return error_response(404, "unknown_cell", "no such cell; GET /v1/grid lists them")


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return error_response(405, "bad_method", "GET /openapi.json lists the methods of each path")
    return error_response(error.status_code, "not_found", "no such path; GET /openapi.json lists them")


async def _internal_error(_request: Request, _error: Exception) -> Response:
    return error_response(500, "internal", "control failed on this request; its log says why")
