"""The admin API of the tuner: what it does and has done, and the operator's orders to it."""

from collections.abc import Awaitable, Callable, Sequence
from math import isfinite

from starlette.requests import Request
from starlette.responses import Response

from tradewind.control import api
from tradewind.control.answers import BadRequest, json_reply, natural, read_body
from tradewind.control.openapi import Endpoint, Parameter
from tradewind.control.rows_tuner import check_row, tuner_row
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

    def __init__(self, tuning: Tuning | None, saver: Saver, *, clock: Callable[[], float]) -> None:
        self._tuning = tuning
        self._saver = saver
        self._clock = clock

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
            *self._check_endpoints(),
        )

    def _check_endpoints(self) -> Sequence[Endpoint]:
        path, reply = "/v1/tuner/check", api.CheckRow
        return (
            Endpoint(
                method="POST",
                path=path,
                handler=self.begin_check,
                summary="Compare the weights in force with others, all requests by turns in blocks.",
                reply=reply,
                request=api.CheckRequest,
                errors=(400, 404, 409, 413),
            ),
            Endpoint(
                method="GET",
                path=path,
                handler=self.check,
                summary="The newest check: how far it is, and what it has shown.",
                reply=reply,
                errors=(404,),
            ),
            Endpoint(
                method="DELETE",
                path=path,
                handler=self.end_check,
                summary="Give a check up; the tuner goes on as before.",
                reply=reply,
                errors=(404, 409),
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
        return json_reply(self._row())

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

    async def begin_check(self, request: Request) -> Response:
        tuning, asked = self._there(), await read_body(request, api.CheckRequest)
        other = Weights(asked.other.rtt, asked.other.queue)
        await _obey(tuning.begin_check(other, requests=asked.requests, seed=asked.seed))
        return self._check_reply()

    async def check(self, _request: Request) -> Response:
        return self._check_reply()

    async def end_check(self, _request: Request) -> Response:
        self._check_reply()
        await _obey(self._there().end_check())
        return self._check_reply()

    def _check_reply(self) -> Response:
        seen = self._there().check
        if seen is None:
            raise BadRequest(404, "no_check", "no check has begun; POST other weights to /v1/tuner/check")
        return json_reply(check_row(seen))

    def _there(self) -> Tuning:
        if self._tuning is None:
            raise BadRequest(404, "no_tuner", NO_TUNER)
        return self._tuning

    async def _obeyed(self, work: Awaitable[None]) -> Response:
        """The order is in force already; say whether it would survive a restart."""
        await _obey(work)
        saved = await self._saver.settled(SAVE_TIMEOUT_S)
        return json_reply(api.TunerReply(tuner=self._row(), saved=saved))

    def _row(self) -> api.TunerRow:
        return tuner_row(self._there(), now_s=self._clock())


async def _obey(work: Awaitable[None]) -> None:
    try:
        await work
    except OrderRefused as error:
        raise BadRequest(409, "refused", str(error)) from None
