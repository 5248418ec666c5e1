"""One request's conversation with the proxy: messages in, answers out, a decision in between. No I/O and no clock.

When it decides: at the headers for a request without a body and in modes that show the body too late to route by it
(NONE, STREAMED); at the one body message in BUFFERED; at the body's end in FULL_DUPLEX_STREAMED, or before, when the
body outgrows `max_body_bytes` or the shell says that time is up. Then the rest passes through unread.
"""

from dataclasses import dataclass

from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf.message import DecodeError

from tradewind.gateway.epp import replies
from tradewind.gateway.epp.bodies import read_body
from tradewind.gateway.epp.replies import Phase
from tradewind.gateway.epp.service import Ending, EndKind, PickService
from tradewind.gateway.epp.subset import holds, parse_hint
from tradewind.gateway.epp.tokens import UsageReader
from tradewind.model.decision import Decision, Refusal, RefusalKind

_MODE = processing_mode_pb2.ProcessingMode
_BLIND = (_MODE.NONE, _MODE.STREAMED)  # the headers leave before the body could be read


class BadExchange(Exception):
    """The proxy said something that the protocol does not allow here; its stream ends."""


@dataclass(slots=True)
class EppCounters:
    """Since the start of the process."""

    streams: int = 0
    picked: int = 0
    refused: int = 0
    late: int = 0  # decided by the beginning of a body: it was too slow or too large
    bad: int = 0  # streams ended for breaking the protocol or a bound
    aborted: int = 0  # picked requests whose stream ended before their response


class Exchange:
    """`close` must be called at the end of the stream, whatever the end was."""

    __slots__ = (
        "_allowed",
        "_body_bytes",
        "_counters",
        "_decision",
        "_ended",
        "_first_seen",
        "_headers",
        "_max_body_bytes",
        "_mode",
        "_parts",
        "_reported",
        "_served",
        "_service",
        "_shows_bodies",
        "_size",
        "_status",
        "_usage",
        "finished",
    )

    def __init__(self, service: PickService, counters: EppCounters, *, max_body_bytes: int) -> None:
        self._service = service
        self._counters = counters
        self._max_body_bytes = max_body_bytes
        self._mode = self._shows_bodies = int(_MODE.NONE)
        self._headers: dict[str, str] | None = None
        self._allowed: tuple[str, ...] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._decision: Decision | None = None
        self._served: str | None = None
        self._status = 0
        self._first_seen = False
        self._ended = False  # the response was seen whole
        self._body_bytes = 0  # of the response, shown
        self._usage = UsageReader()
        self._reported = False
        self.finished = False  # nothing more will be answered: the stream can be ended

    @property
    def waits_for_body(self) -> bool:
        """Whether the proxy holds a request back until the decision, without a limit of its own."""
        return self._headers is not None and self._duplex and self._decision is None and not self.finished

    @property
    def held_bytes(self) -> int:
        """Of the request's body, kept until the decision."""
        return self._size if self._parts else 0

    @property
    def _duplex(self) -> bool:
        return bool(self._mode == _MODE.FULL_DUPLEX_STREAMED)

    def receive(self, message: bytes) -> list[bytes]:
        """Answer one message; several answers, or none, may be due. Raises BadExchange."""
        if self.finished:
            return []
        # Of a buffered body only what may be read is copied: it may be as large as a message.
        limit = len(message) if self._duplex else self._max_body_bytes + 1
        found = read_body(message, at_most=limit)
        if found is not None and self._headers is not None:
            if found.rest:
                self._read_metadata(_parsed(found.rest))
            react = self._on_body if found.of_request else self._on_response_body
            return react(found.body, last=found.last)
        request = _parsed(message)
        kind: str | None = request.WhichOneof("request")
        if kind != "request_headers" and self._headers is None:
            raise BadExchange(f"{kind or 'nothing'} before the request's headers")
        self._read_metadata(request)
        return self._answer(kind, request)

    def _answer(self, kind: str | None, request: pb.ProcessingRequest) -> list[bytes]:
        match kind:
            case "request_headers":
                return self._on_headers(request)
            case "request_body":
                body = request.request_body
                return self._on_body(body.body, last=body.end_of_stream)
            case "request_trailers":
                return [*self._body_whole(last=False), replies.go_on(Phase.REQUEST_TRAILERS)]
            case "response_headers":
                return self._on_response_headers(request.response_headers)
            case "response_body":
                body = request.response_body
                return self._on_response_body(body.body, last=body.end_of_stream)
            case "response_trailers":
                self._ended = True
                return [replies.go_on(Phase.RESPONSE_TRAILERS)]
            case _:
                raise BadExchange("an empty message")

    def time_is_up(self) -> list[bytes]:
        """Decide now by what has come of the body. Where that does not tell the model, its end is waited for."""
        return self._decide_early(give_up=False) if self.waits_for_body else []

    def too_large(self) -> list[bytes]:
        """The next message has more bytes than anybody takes. Nothing where it is too late to refuse the request."""
        if self._headers is None or self._decision is not None or self.finished:
            return []
        refusal = Refusal(request_id="", kind=RefusalKind.UNREADABLE, message="")
        return self._settle(refusal, Phase.REQUEST_BODY, cut=True)

    def close(self) -> None:
        """The stream has ended: tell the decider, once."""
        if self._decision is None or self._reported:
            return
        self._reported = True
        kind = self._end_kind()
        self._counters.aborted += kind is EndKind.ABORTED
        prompt, cached, completion = self._usage.tokens()
        ending = Ending(
            kind=kind,
            body_bytes=None if self._shows_bodies == _MODE.NONE and kind is not EndKind.COMPLETE else self._body_bytes,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
        )
        self._service.served(self._decision.decision_id, self._served, self._status, ending)

    # --- the request ------------------------------------------------------------------------------------------

    def _on_headers(self, request: pb.ProcessingRequest) -> list[bytes]:
        if self._headers is not None:
            raise BadExchange("the request's headers came twice")
        headers = request.request_headers
        self._headers = {
            item.key: item.raw_value.decode("utf-8", "replace") or item.value for item in headers.headers.headers
        }
        # A proxy that does not tell its mode is older than the field; the protocol asks for FULL_DUPLEX_STREAMED.
        told = request.HasField("protocol_config")
        self._mode = request.protocol_config.request_body_mode if told else _MODE.FULL_DUPLEX_STREAMED
        self._shows_bodies = request.protocol_config.response_body_mode if told else _MODE.FULL_DUPLEX_STREAMED
        if headers.end_of_stream or self._mode in _BLIND:
            return self._settle(self._ask(b"", partial=not headers.end_of_stream), Phase.REQUEST_HEADERS)
        return [] if self._duplex else [replies.go_on(Phase.REQUEST_HEADERS)]

    def _on_body(self, body: bytes, *, last: bool) -> list[bytes]:
        if not self._duplex:
            return self._on_buffered(body, last=last)
        if self._decision is not None:
            return replies.echoed(Phase.REQUEST_BODY, body, last=last)
        self._parts.append(body)
        self._size += len(body)
        if self._size <= self._max_body_bytes:
            return self._body_whole(last=True) if last else []
        return self._decide_early(give_up=True, last=last)

    def _on_buffered(self, body: bytes, *, last: bool) -> list[bytes]:
        if self._decision is not None:
            return [replies.go_on(Phase.REQUEST_BODY)]
        cut = len(body) > self._max_body_bytes
        partial = cut or (self._mode == _MODE.BUFFERED_PARTIAL and not last)
        chosen = self._ask(body[: self._max_body_bytes], partial=partial)
        return self._settle(chosen, Phase.REQUEST_BODY, cut=partial)

    def _body_whole(self, *, last: bool) -> list[bytes]:
        """FULL_DUPLEX_STREAMED: the body has ended, with trailers to come if not `last`."""
        if not self.waits_for_body:
            return []
        return self._settle_and_give_back(self._ask(b"".join(self._parts), partial=False), last=last)

    def _decide_early(self, *, give_up: bool, last: bool = False) -> list[bytes]:
        """By the beginning of the body; if that is unreadable, either wait for more or `give_up`."""
        chosen = self._ask(b"".join(self._parts)[: self._max_body_bytes], partial=True)
        if not give_up and isinstance(chosen, Refusal) and chosen.kind is RefusalKind.UNREADABLE:
            return []
        self._counters.late += 1
        return self._settle_and_give_back(chosen, last=last, cut=True)

    def _settle_and_give_back(self, chosen: Decision | Refusal, *, last: bool, cut: bool = False) -> list[bytes]:
        answers = self._settle(chosen, Phase.REQUEST_HEADERS, cut=cut)
        parts, self._parts = self._parts[::-1], []
        while parts and not self.finished:  # each piece is let go as its answer is made
            body = parts.pop()
            answers += replies.echoed(Phase.REQUEST_BODY, body, last=last and not parts)
        return answers

    def _ask(self, body: bytes, *, partial: bool) -> Decision | Refusal:
        headers = self._headers
        assert headers is not None
        if self._allowed == ():
            return Refusal(request_id=headers.get("x-request-id", ""), kind=RefusalKind.NO_CELL, message=_NO_SUBSET)
        return self._service.pick(
            body, path=headers.get(":path", ""), headers=headers, partial=partial, allowed_addresses=self._allowed
        )

    def _settle(self, chosen: Decision | Refusal, phase: Phase, *, cut: bool = False) -> list[bytes]:
        if isinstance(chosen, Decision):
            self._decision = chosen
            self._counters.picked += 1
            return [replies.picked(phase, self._destinations(chosen))]
        self._counters.refused += 1
        self._parts = []
        self.finished = True
        return [replies.refused(chosen, cut=cut)]

    def _destinations(self, decision: Decision) -> tuple[str, ...]:
        """The choice and what to try next, each once; alternatives outside the hint are left out."""
        others = self._service.addresses(decision.alternatives)
        allowed = (address for address in others if holds(self._allowed, address))
        return tuple(dict.fromkeys((decision.address, *allowed)))

    def _read_metadata(self, request: pb.ProcessingRequest) -> None:
        if not request.HasField("metadata_context"):
            return
        spaces = request.metadata_context.filter_metadata
        if self._decision is None and replies.SUBSET_NAMESPACE in spaces:
            hint = spaces[replies.SUBSET_NAMESPACE].fields
            if replies.SUBSET in hint:
                value = hint[replies.SUBSET]
                listed = [item.string_value for item in value.list_value.values]
                self._allowed = parse_hint(listed if value.HasField("list_value") else [value.string_value])
        elif self._decision is not None and replies.LB_NAMESPACE in spaces:
            told = spaces[replies.LB_NAMESPACE].fields
            if replies.SERVED in told:
                self._served = told[replies.SERVED].string_value or self._served

    # --- the response -----------------------------------------------------------------------------------------

    def _on_response_headers(self, headers: pb.HttpHeaders) -> list[bytes]:
        for item in headers.headers.headers:
            if item.key == ":status":  # the first one, as proxies write it
                text = item.raw_value.decode("latin-1") or item.value
                self._status = int(text) if text.isascii() and text.isdigit() else 0
                break
        self._ended = headers.end_of_stream
        return [replies.go_on(Phase.RESPONSE_HEADERS)]

    def _on_response_body(self, body: bytes, *, last: bool) -> list[bytes]:
        if self._decision is not None and body:
            if not self._first_seen and 200 <= self._status < 300:
                self._first_seen = True
                self._service.first_token(self._decision.decision_id)
            self._body_bytes += len(body)
            self._usage.feed(body)
        self._ended = self._ended or last
        if self._shows_bodies == _MODE.FULL_DUPLEX_STREAMED:
            return replies.echoed(Phase.RESPONSE_BODY, body, last=last)
        return [replies.go_on(Phase.RESPONSE_BODY)]

    def _end_kind(self) -> EndKind:
        if self._ended:
            return EndKind.COMPLETE
        if not self._status:
            return EndKind.UNSEEN
        return EndKind.HEADERS_ONLY if self._shows_bodies == _MODE.NONE else EndKind.ABORTED


_NO_SUBSET = "No endpoint of the given subset is there."


def _parsed(message: bytes) -> pb.ProcessingRequest:
    try:
        return pb.ProcessingRequest.FromString(message)
    except DecodeError as error:
        raise BadExchange("not a ProcessingRequest") from error
