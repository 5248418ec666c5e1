"""The desk as an Endpoint Picker: the same decision for proxies that are not ours."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tradewind.core.tokens.shape import exact_shape
from tradewind.gateway.epp.service import Ending, EndKind
from tradewind.gateway.pick.desk import MAX_OPEN, PickDesk
from tradewind.gateway.requests.result import Refused
from tradewind.model.decision import Decision, Refusal, RefusalKind
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request

_ABORTED = (EndKind.ABORTED, EndKind.UNSEEN)


class _Started(NamedTuple):
    request_id: str
    model: str | None  # None where the request names none
    at_s: float
    cell_id: str
    request_bytes: int
    first_s: float | None


class DeskPickService:
    """What the ext_proc server asks; see `gateway.epp.service.PickService`. `on_outcome` counts what ended."""

    def __init__(
        self,
        desk: Callable[[], PickDesk | None],
        *,
        clock: Callable[[], float],
        cell_at: Callable[[str], str | None],
        address_of: Callable[[str], str | None],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        self._desk = desk
        self._clock = clock
        self._cell_at = cell_at
        self._address_of = address_of
        self._on_outcome = on_outcome
        self._started: OrderedDict[str, _Started] = OrderedDict()

    def pick(
        self,
        body: bytes,
        *,
        path: str,
        headers: Mapping[str, str],
        partial: bool,
        allowed_addresses: tuple[str, ...] | None,
    ) -> Decision | Refusal:
        """A cell for one request; one without a body may go to any cell."""
        desk, request_id = self._desk(), headers.get("x-request-id", "")
        if desk is None:
            return Refusal(request_id=request_id, kind=RefusalKind.NO_CELL, message="this gateway does not pick")
        now_s = self._clock()
        request, shape, follows = Request(request_id=request_id, model="", prompt_tokens=1), exact_shape(1), ""
        if body or headers.get(":method", "POST") == "POST":
            parsed = desk.read(body, path=path, headers=headers, partial=partial)
            if isinstance(parsed, Refused) and parsed.certain:
                return desk.turn_away(parsed, request_id, now_s)
            if isinstance(parsed, Refused):
                return Refusal(request_id=request_id, kind=RefusalKind.UNREADABLE, message=parsed.message)
            request, shape, follows = parsed.request, parsed.shape, parsed.previous_response_id
        if allowed_addresses is not None:
            request = replace(request, allowed_addresses=allowed_addresses)
        found = desk.decide(request, shape, now_s, follows=follows)
        if isinstance(found, Decision):
            self._start(found, request, len(body), now_s)
        return found

    def _start(self, decision: Decision, request: Request, request_bytes: int, now_s: float) -> None:
        self._started[decision.decision_id] = _Started(
            request.request_id, request.model or None, now_s, decision.cell_id, request_bytes, None
        )
        if len(self._started) > MAX_OPEN:
            self._started.popitem(last=False)

    def first_token(self, decision_id: str) -> None:
        """The first body bytes of a good answer were seen."""
        desk, started, now_s = self._desk(), self._started.get(decision_id), self._clock()
        if desk is None or started is None:
            return
        self._started[decision_id] = started._replace(first_s=now_s)
        desk.picker.first_token(decision_id, now_s)

    def served(self, decision_id: str, address: str | None, status: int, ending: Ending) -> None:
        """The end, exactly once per decision: released, learned from, counted."""
        desk, started, now_s = self._desk(), self._started.pop(decision_id, None), self._clock()
        if started is None:
            return
        outcome = Outcome(
            request_id=started.request_id,
            cell_id=self._cell_at(address) if address else started.cell_id,
            model=started.model,
            status=status,
            request_bytes=started.request_bytes,
            # A body that the proxy does not show is not an empty one, which would count against the cell.
            response_bytes=1 if ending.body_bytes is None else ending.body_bytes,
            ttft_s=None if started.first_s is None else started.first_s - started.at_s,
            duration_s=now_s - started.at_s,
            prompt_tokens=ending.prompt_tokens,
            cached_tokens=ending.cached_tokens,
            completion_tokens=ending.completion_tokens,
            client_cancelled=ending.kind in _ABORTED,
            decision_id=desk.name_of(decision_id) if desk is not None else "",
        )
        self._on_outcome(outcome)

    def addresses(self, cell_ids: tuple[str, ...]) -> tuple[str, ...]:
        """Where this gateway reaches these cells; unknown ones are left out."""
        found = (self._address_of(cell_id) for cell_id in cell_ids)
        return tuple(address for address in found if address)
