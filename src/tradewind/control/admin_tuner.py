"""The admin API of the tuner: what it does and has done, and the operator's orders to it."""

from collections.abc import Awaitable, Callable, Sequence
from math import isfinite

from starlette.requests import Request
from starlette.responses import Response

from tradewind.control import api
from tradewind.control.answers import BadRequest, json_reply, natural, read_body
from tradewind.control.openapi import Endpoint, Parameter
from tradewind.control.saver import Saver
from tradewind.control.store import MAX_TUNER_EVENTS
from tradewind.control.tuning import OrderRefused, Tuning
from tradewind.model.tuning import Weights

MAX_REASON_CHARS = 200
SAVE_TIMEOUT_S = 2.0
NO_TUNER = "this control has no tuner; write a section `tuner: {}` into its grid file and start it again"

_AFTER = Parameter(name="after", where="query", text="Only lines with a higher sequence.", kind="integer")
_LIMIT = Parameter(name="limit", where="query", text=f"At most so many, up to {MAX_TUNER_EVENTS}.", kind="integer")


class TunerAdmin:
    """Handlers and their part of the route table; without a tuner each says how to get one."""

    def __init__(self, tuning: Tuning | None, saver: Saver) -> None:
        self._tuning = tuning
        self._saver = saver

    def endpoints(self) -> Sequence[Endpoint]:
        """Their part of the route table."""
        return (
            Endpoint(
                method="GET",
                path="/v1/tuner",
                handler=self.status,
                summary="The tuner and the order in force.",
                reply=api.TunerRow,
                errors=(404,),
            ),
            Endpoint(
                method="GET",
                path="/v1/tuner/history",
                handler=self.history,
                summary="What the tuner did and why, oldest first; it outlives restarts.",
                reply=api.TunerHistoryRow,
                parameters=(_AFTER, _LIMIT),
                errors=(400, 404),
            ),
            self._order("freeze", self.freeze, "Keep the weights, end a comparison, propose nothing."),
            self._order("thaw", self.thaw, "Go on after a freeze."),
            self._order("reset", self.reset, "Back to the start weights; what was learned is void."),
            Endpoint(
                method="POST",
                path="/v1/tuner/set",
                handler=self.set,
                summary="Put weights in force at once.",
                reply=api.TunerReply,
                request=api.SetRequest,
                errors=(400, 404, 409, 413),
            ),
        )

    def _order(self, name: str, handler: Callable[[Request], Awaitable[Response]], summary: str) -> Endpoint:
        return Endpoint(
            method="POST",
            path=f"/v1/tuner/{name}",
            handler=handler,
            summary=summary,
            reply=api.TunerReply,
            errors=(404, 409),
        )

    async def status(self, _request: Request) -> Response:
        return json_reply(self._there().row())

    async def history(self, request: Request) -> Response:
        after = natural(request, "after", default=0)
        limit = min(natural(request, "limit", default=MAX_TUNER_EVENTS), MAX_TUNER_EVENTS)
        held = self._there().history
        newer = [row for row in held if row.sequence > after]
        return json_reply(
            api.TunerHistoryRow(
                events=newer[-limit:] if limit else [],
                first=held[0].sequence if held else 0,
                last=held[-1].sequence if held else 0,
            )
        )

    async def freeze(self, _request: Request) -> Response:
        return await self._obeyed(self._there().freeze())

    async def thaw(self, _request: Request) -> Response:
        return await self._obeyed(self._there().thaw())

    async def reset(self, _request: Request) -> Response:
        return await self._obeyed(self._there().reset())

    async def set(self, request: Request) -> Response:
        tuning, order = self._there(), await read_body(request, api.SetRequest)
        if not (isfinite(order.rtt) and isfinite(order.queue)):
            raise BadRequest(400, "bad_weights", "write both weights as finite numbers")
        if len(order.reason) > MAX_REASON_CHARS:
            raise BadRequest(400, "bad_reason", f"write a reason of at most {MAX_REASON_CHARS} characters")
        return await self._obeyed(tuning.put(Weights(order.rtt, order.queue), order.reason or "by an operator"))

    def _there(self) -> Tuning:
        if self._tuning is None:
            raise BadRequest(404, "no_tuner", NO_TUNER)
        return self._tuning

    async def _obeyed(self, work: Awaitable[None]) -> Response:
        """The order is in force already; say whether it would survive a restart."""
        try:
            await work
        except OrderRefused as error:
            raise BadRequest(409, "refused", str(error)) from None
        saved = await self._saver.settled(SAVE_TIMEOUT_S)
        return json_reply(api.TunerReply(tuner=self._there().row(), saved=saved))
