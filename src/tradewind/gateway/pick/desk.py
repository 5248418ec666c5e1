"""Where a question becomes a decision, and an outcome comes back to it: parser, picker, index and token estimates.

Synchronous and quick. What the picker cannot answer for certain (an unknown model, no cell, a body it cannot read) is
left to the shares, whose pools outlive a view that is stale or not there yet.
"""

import hmac
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import xxhash

from tradewind.core.pick.picker import Picker
from tradewind.core.pick.quarantine import DEFAULT_QUARANTINE, Quarantine, QuarantineSettings
from tradewind.core.pick.tape import Heard
from tradewind.core.pools import aliases
from tradewind.core.prefix.index import PrefixIndex
from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.core.tokens.shape import PromptShape
from tradewind.gateway.pick.capture import Capture
from tradewind.gateway.pick.late import NO_LIMITS, LateSettings, orders
from tradewind.gateway.pick.memory import MAX_ID_CHARS, Memory, Sent, sent_of
from tradewind.gateway.pick.others import Others
from tradewind.gateway.pick.server import LEFT_TO_SHARES, Question, Reply
from tradewind.gateway.pick.sharing import Sharing
from tradewind.gateway.requests.homes import ResponseHomes
from tradewind.gateway.requests.parse import RequestParser
from tradewind.gateway.requests.result import ParsedRequest, Refused
from tradewind.model.decision import Decision, Refusal, RefusalKind
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import Event, WeightRow
from tradewind.model.view import CellView, GatewayLoad, GridView, ViewDelta
from tradewind.runtime.log import log_event
from tradewind.xds.logline import GATE_REFUSES
from tradewind.xds.pick import (
    CELL_HEADER,
    DECISION_HEADER,
    EXPLAIN_HEADER,
    FIRST_HEADER,
    PARTIAL_HEADER,
    POOL_HEADER,
)
from tradewind.xds.routes import error_body
from tradewind.xds.settings import ResidencyRule

log = logging.getLogger(__name__)

MAX_OPEN = 65_536  # decisions whose outcome is awaited; beyond it the oldest teach nothing about tokens
MAX_FIRST_AGE_MS = 600_000
BLOCK_TOKENS = 128  # of one block of the index, about
_JSON = ("content-type", "application/json")
_CODES = {
    RefusalKind.TOO_LONG: (400, "context_length_exceeded"),
    RefusalKind.UNSUPPORTED: (400, "unsupported_modality"),
    RefusalKind.TOO_LARGE: (413, "request_too_large"),
    RefusalKind.ENDS_ENGINES: (422, "request_ends_engines"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """What a gateway's section says of picking."""

    gateways: int = 1  # that share the engines' caches
    explain_key: str = ""  # the key of a client that may ask why; "" = nobody may
    residency: tuple[ResidencyRule, ...] = ()
    late: LateSettings = NO_LIMITS
    quarantine: QuarantineSettings = DEFAULT_QUARANTINE


@dataclass(slots=True)
class DeskCounters:
    """Plain counts since the start, for metrics."""

    questions: int = 0
    left: int = 0  # to the shares
    refused: int = 0  # told to the client
    faults: int = 0  # errors of our own: the request went by the shares
    first_tokens: int = 0
    joined: int = 0  # outcomes of decisions of this process
    foreign: int = 0  # outcomes of another process's decisions, e.g. from before a restart
    late: int = 0  # decisions that Envoy did not wait for: the request went by the shares, or its client left


class PickDesk:
    """One per gateway process; `clock` is monotonic seconds. `answer` never raises."""

    def __init__(
        self,
        picker: Picker,
        *,
        index: PrefixIndex,
        tokens: TokenEstimator,
        parser: RequestParser,
        settings: DeskSettings,
        clock: Callable[[], float],
        rng: random.Random,
        ties: random.Random,
        capture: Capture | None = None,
    ) -> None:
        """`ties` is drawn from by picks alone, so that its seed and a `capture` tell every decision again."""
        self.picker = picker
        self.index = index
        self.tokens = tokens
        self.counters = DeskCounters()
        self.memory = Memory()
        self.quarantine = Quarantine(settings.quarantine)
        self.settings = settings
        self._parser = parser
        self._clock = clock
        self.capture = capture
        self._ties = ties
        self._boot = f"{rng.getrandbits(32):08x}-"  # a decision of a process before this one must not release ours
        self._open: OrderedDict[str, Sent] = OrderedDict()
        self._others = Others()
        self.sharing = Sharing(index, picker, parser.rekey)
        self._failures_told = 0
        self._homes = ResponseHomes()
        self._capacities: dict[str, int | None] = {}  # of every cell of the newest view, in blocks; None = not said
        self._served: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()  # models and LoRA adapters, as of that view
        self.seconds = 0.0  # spent deciding, for metrics

    def configure(self, settings: DeskSettings) -> None:
        """Other settings from now on; nothing is forgotten."""
        self.settings = settings
        self.quarantine.settings = settings.quarantine

    # --- questions --------------------------------------------------------------------------------------------

    def answer(self, question: Question) -> Reply:
        """Envoy's question. An error of our own is logged and costs the request nothing but its pick."""
        started_s = time.perf_counter()
        self.counters.questions += 1
        try:
            return self._answer(question)
        except Exception as error:  # noqa: BLE001 - the outermost loop of the picker: a bug must not lose requests
            self.counters.faults += 1
            self._leave(question.headers.get("x-request-id", ""), "the picker failed")
            log_event(log, "pick.fault", level=logging.ERROR, error=repr(error)[:300])
            return LEFT_TO_SHARES
        finally:
            self.seconds += time.perf_counter() - started_s

    def _answer(self, question: Question) -> Reply:
        headers = question.headers
        now_s = self._clock()
        told = headers.get(FIRST_HEADER)
        if told:
            self._take_first_tokens(told, now_s)
        partial = headers.get(PARTIAL_HEADER) == "true"
        parsed = self.read(question.body, path=question.path, headers=headers, partial=partial)
        if isinstance(parsed, Refused) and parsed.certain:
            return self._refusal(self.turn_away(parsed, headers.get("x-request-id", ""), now_s))
        if isinstance(parsed, Refused) or not parsed.request.model.isprintable():
            self.counters.left += 1
            why = parsed.message if isinstance(parsed, Refused) else "the model's name cannot be printed"
            self._leave(headers.get("x-request-id", ""), why)
            return LEFT_TO_SHARES
        fingerprint = 0 if partial else xxhash.xxh3_64_intdigest(question.body)
        left_s = self.quarantine.left_s(fingerprint, now_s) if fingerprint else 0.0
        if left_s:
            return self._refusal(self._quarantined(parsed.request.request_id, left_s, now_s))
        follows = parsed.previous_response_id
        found = self.decide(parsed.request, parsed.shape, now_s, follows=follows, fingerprint=fingerprint)
        if isinstance(found, Decision):
            return self._reply(found, parsed.request, headers)
        return self._refusal(found)

    def _leave(self, request_id: str, why: str) -> None:
        self.memory.asked(request_id, why, self._clock())

    def _within(self, request: Request, headers: Mapping[str, str]) -> Request:
        """The request with the sites that a residency rule leaves it. Envoy refuses values that no rule knows."""
        for rule in self.settings.residency:
            if headers.get(rule.header) == rule.value:
                return narrowed(request, rule.sites)
        return request

    def read(self, body: bytes, *, path: str, headers: Mapping[str, str], partial: bool) -> ParsedRequest | Refused:
        """A request as the picker sees it, within what residency leaves it."""
        request_id = headers.get("x-request-id", "")[:MAX_ID_CHARS]
        parsed = self._parser.parse(body, path=path, headers=headers, partial=partial, request_id=request_id)
        if isinstance(parsed, Refused):
            return parsed
        # What is only partly known must not teach: an exact shape is not learned from.
        shape = parsed.shape._replace(exact=True) if parsed.note else parsed.shape
        return parsed._replace(request=self._within(parsed.request, headers), shape=shape)

    def turn_away(self, refused: Refused, request_id: str, now_s: float) -> Refusal:
        """A request that no engine should see; remembered and counted as any refusal of the picker."""
        return self._kept(RefusalKind.TOO_LARGE, refused.message, request_id, now_s)

    def _quarantined(self, request_id: str, left_s: float, now_s: float) -> Refusal:
        message = f"Engines ended under requests like this one; it is given to none for {left_s:.0f} s."
        return self._kept(RefusalKind.ENDS_ENGINES, message, request_id, now_s)

    def _kept(self, kind: RefusalKind, message: str, request_id: str, now_s: float) -> Refusal:
        refusal = Refusal(request_id=request_id, kind=kind, message=message)
        self.picker.counters.refusals[kind] += 1
        self.memory.asked(request_id, refusal, now_s)
        return refusal

    def decide(
        self, request: Request, shape: PromptShape, now_s: float, *, follows: str = "", fingerprint: int = 0
    ) -> Decision | Refusal:
        """Pick, and remember the request until its outcome comes. `follows`: id of a response that an engine stores."""
        home = self._at_home(request, follows, now_s) if follows else None
        found = home or self.picker.pick(request, now_s=now_s, rng=self._ties)
        name = ""
        if isinstance(found, Decision):
            name = self.name_of(found.decision_id)
            self._open[found.decision_id] = sent_of(found, request.model, shape, fingerprint)
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        self.memory.asked(request.request_id, found, now_s, name=name)
        return found

    def name_of(self, decision_id: str) -> str:
        """A decision of this process as it is logged and told."""
        return self._boot + decision_id

    def _at_home(self, request: Request, response_id: str, now_s: float) -> Decision | None:
        """The cell that holds this response; None when it is unknown or not to be had: any engine will then say so."""
        home = self._homes.home(response_id, now_s)
        cell = self.picker.fleet.get(home) if home is not None else None
        allowed = request.allowed_addresses
        if cell is None or not (allowed is None or cell.within(allowed)):
            return None
        there = replace(request, allowed_addresses=(cell.address,))
        found = self.picker.pick(there, now_s=now_s, rng=self._ties)
        return found if isinstance(found, Decision) else None

    def _reply(self, decision: Decision, request: Request, headers: Mapping[str, str]) -> Reply:
        name = self.name_of(decision.decision_id)
        late = orders(self.settings.late, stream=request.stream, expected_s=decision.expected_ttft_s, asked=headers)
        told = ((CELL_HEADER, decision.address), (POOL_HEADER, request.model), (DECISION_HEADER, name), *late)
        if not self._may_ask(headers):
            return Reply(200, told)
        why = ("tradewind-reason", _printable(decision.reason))
        return Reply(200, (*told, ("tradewind-cell", decision.cell_id), ("tradewind-decision", name), why))

    def _may_ask(self, headers: Mapping[str, str]) -> bool:
        key, asked = self.settings.explain_key, headers.get(EXPLAIN_HEADER)
        return bool(key) and asked is not None and hmac.compare_digest(key.encode(), asked.encode())

    def _refusal(self, refusal: Refusal) -> Reply:
        if refusal.kind is RefusalKind.BUSY:
            self.counters.refused += 1
            body = error_body(refusal.message, kind="rate_limit_error", code="overloaded")
            after_s = max(1, -int(-(refusal.retry_after_s or 1.0) // 1))
            return Reply(429, (_JSON, ("retry-after", str(after_s))), body.encode())
        if refusal.kind not in _CODES:
            self.counters.left += 1
            return LEFT_TO_SHARES
        self.counters.refused += 1
        status, code = _CODES[refusal.kind]
        return Reply(status, (_JSON,), error_body(refusal.message, kind="invalid_request_error", code=code).encode())

    def _take_first_tokens(self, told: str, now_s: float) -> None:
        """ "id:age_ms,..." from first.lua; what does not read is skipped."""
        for note in told.split(","):
            name, _, age_ms = note.rpartition(":")
            if name.startswith(self._boot) and age_ms.isdecimal() and len(age_ms) < 10:
                age_s = min(int(age_ms), MAX_FIRST_AGE_MS) / 1e3
                self.picker.first_token(name.removeprefix(self._boot), now_s - age_s)
                self.counters.first_tokens += 1

    # --- outcomes ---------------------------------------------------------------------------------------------

    def on_outcome(self, outcome: Outcome, now_s: float) -> Sent | None:
        """The end of a request that this desk, or one before it, may have sent somewhere; what it was sent by."""
        story, name = self.memory.ended(outcome, now_s), outcome.decision_id
        if not name and story is not None and story.name:
            self._release_late(story.name.removeprefix(self._boot), now_s)
        if not name.startswith(self._boot):
            self.counters.foreign += bool(name)
            return None
        decision_id = name.removeprefix(self._boot)
        self.counters.joined += 1
        if outcome.stored_id and outcome.cell_id:
            self._homes.remember(outcome.stored_id, outcome.cell_id, now_s)
        sent = self._open.pop(decision_id, None)
        if sent is not None and sent.fingerprint and outcome.deaths and outcome.status == GATE_REFUSES:
            self._suspect(sent.fingerprint, outcome, now_s)
        if sent is not None and outcome.prompt_tokens:
            self.tokens.observe(sent.model, sent.shape, outcome.prompt_tokens)
        self.picker.finished(decision_id, outcome, now_s)
        return sent

    def _suspect(self, fingerprint: int, outcome: Outcome, now_s: float) -> None:
        if self.quarantine.observe(fingerprint, outcome.deaths, now_s):
            for_s = self.quarantine.left_s(fingerprint, now_s)
            log_event(
                log, "pick.quarantined", level=logging.WARNING, request_id=outcome.request_id,
                deaths=outcome.deaths, cells=",".join(outcome.attempted_cells), for_s=round(for_s),
            )  # fmt: skip

    def unheard(self, reply: Reply, now_s: float) -> None:
        """Envoy closed the connection on this answer."""
        name = next((value for header, value in reply.headers if header == DECISION_HEADER), "")
        if name.startswith(self._boot):
            self._release_late(name.removeprefix(self._boot), now_s)

    def _release_late(self, decision_id: str, now_s: float) -> None:
        """Envoy did not wait for this answer, so the work is not where it was booked; there is nothing to learn."""
        if self._open.pop(decision_id, None) is not None:
            self.counters.late += 1
            self.picker.release(decision_id, now_s)

    # --- the grid ---------------------------------------------------------------------------------------------

    def tick(self, view: GridView, rows: Sequence[WeightRow], now_s: float) -> tuple[Event, ...]:
        """Once per scoring tick: the view, the weights, and what was never finished.

        An event tells how the policy of a file has failed since the last one; there is at most one, whatever it does.
        """
        self.observe_view(view, now_s)
        self.picker.observe_pressure(rows, now_s)
        self.picker.expire(now_s)
        failures = self.picker.counters.policy_failures
        new, self._failures_told = failures - self._failures_told, failures
        detail = f"{new} x: {self.picker.last_failure}"
        return (Event(name="pick.policy_failed", at_s=now_s, cell_id=None, detail=detail),) if new else ()

    def observe_others(self, loads: Sequence[GatewayLoad], now_s: float) -> None:
        """What a control says of other gateways' work in flight."""
        self._others.take(loads, now_s)
        self.picker.observe_others(self._others.sums(now_s), now_s)

    def hear(self, control_id: str, delta: ViewDelta, controls: Sequence[str], now_s: float) -> None:
        """A message of one of these controls: other gateways' work in flight, and what they have sent where."""
        if delta.others:
            self.observe_others(delta.others, now_s)
        placed = self.sharing.observe(control_id, delta, controls, now_s)
        if placed:
            self.picker.observe_placed(placed, now_s)

    def observe_view(self, view: GridView, now_s: float) -> None:
        """The newest grid view; the index keeps as much of each cell as its engine can hold for this gateway."""
        self.picker.observe_view(view, now_s)
        alone = not self.sharing.hears(now_s)
        capacities = {item.cell.cell_id: self._blocks(item, alone=alone) for item in view.cells}
        for cell_id, blocks in capacities.items():
            if blocks is not None and self._capacities.get(cell_id) != blocks:
                self._note_capacity(cell_id, blocks, now_s)
                self.index.set_capacity(cell_id, blocks)
        for cell_id in sorted(self._capacities.keys() - capacities.keys()):
            self._note_capacity(cell_id, None, now_s)
            self.index.remove_cell(cell_id)
            self._homes.forget(cell_id)
        self._capacities = capacities
        served = {(item.cell.capabilities.models, item.cell.capabilities.lora_models) for item in view.cells}
        if served != self._served:
            self._served, self._parser.aliases = served, aliases(served)

    def _note_capacity(self, cell_id: str, blocks: int | None, now_s: float) -> None:
        if self.capture is not None:
            self.capture.note(Heard.CAPACITY, now_s, (cell_id, blocks))

    def _blocks(self, view: CellView, *, alone: bool) -> int | None:
        """What of an engine's cache the index may fill: a share, if neither the others nor the engine tell."""
        tokens = view.cell.capabilities.kv_capacity_tokens
        gateways = self.settings.gateways if alone and view.telemetry.cache is None else 1
        return tokens // BLOCK_TOKENS // gateways if tokens else None


def narrowed(request: Request, sites: tuple[str, ...]) -> Request:
    """The same request, within these sites."""
    if request.allowed_sites is not None:
        sites = tuple(site for site in request.allowed_sites if site in sites)
    return replace(request, allowed_sites=sites)


def _printable(text: str) -> str:
    """As a header's value."""
    return "".join(character if 32 <= ord(character) < 127 else "?" for character in text)[:512]
