"""What a transcript must fulfil. Each check gives the problem in words, or "" where all is well."""

import ipaddress
import json
from collections.abc import Callable, Sequence

from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tradewind.gateway.epp.replies import DESTINATION
from tradewind.lab.epp.pool import Pool
from tradewind.lab.epp.transcript import Transcript

Check = Callable[[Transcript, Pool], str]
MAX_PIECE_BYTES = 64 * 1024  # of a body given back: Envoy's limit for one message's body


def alive(transcript: Transcript, _pool: Pool) -> str:
    """Every answer came, and the stream ended well."""
    if transcript.silent:
        return f"no answer in time: {transcript.silent}"
    return f"the stream broke: {transcript.error}" if transcript.error else ""


def picked(transcript: Transcript, pool: Pool) -> str:
    """A well-formed destination, the same as header and as metadata, within the pool."""
    refusal = transcript.refusal
    if refusal is not None:
        return f"refused with {refusal.status.code} {refusal.body[:120]!r}"
    if len(transcript.header_values) != 1:
        return f"{DESTINATION} was set {len(transcript.header_values)} times in a header mutation, expected once"
    if transcript.metadata_values != transcript.header_values:
        return f"header says {transcript.header_values}, metadata says {transcript.metadata_values}"
    broken = [entry for entry in transcript.destinations if not _is_address(entry)]
    if broken:
        return f"{broken[0]!r} is not ip:port"
    if len(set(transcript.destinations)) < len(transcript.destinations):
        return f"an address is listed twice: {transcript.destinations}"
    strangers = [entry for entry in transcript.destinations if pool.endpoints and entry not in pool.endpoints]
    return f"{strangers[0]} is not in the pool" if strangers else ""


def within(allowed: Sequence[str]) -> Check:
    """Every destination is one of these."""

    def check(transcript: Transcript, _pool: Pool) -> str:
        outside = [entry for entry in transcript.destinations if entry not in allowed]
        return f"{outside[0]} is outside {', '.join(allowed)}" if outside else ""

    return check


def overwrites(transcript: Transcript, _pool: Pool) -> str:
    """A client's own destination header is replaced, not added to."""
    replacing = (base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD, base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS)
    unsafe = [action for action in transcript.header_actions if action not in (*replacing, 0)]
    return "the client's header would survive" if unsafe or not transcript.header_actions else ""


def in_order(transcript: Transcript, _pool: Pool) -> str:
    """Headers, then body, then trailers, and the response after the request."""
    ranks = [_RANK[kind] for kind in transcript.order if kind in _RANK]
    return "" if ranks == sorted(ranks) else f"answers in the order {transcript.order}"


def gives_back(kind: str) -> Check:
    """FULL_DUPLEX_STREAMED: a body comes back unchanged, in pieces that Envoy takes, with its end."""

    def check(transcript: Transcript, _pool: Pool) -> str:
        script = transcript.script
        if kind == "request_body":
            sent, trailers = script.body, script.trailers
        else:
            sent = b"".join(script.answer.chunks if script.answer else ())
            trailers = bool(script.answer and script.answer.trailers)
        back = transcript.echoed(kind)
        if back != sent:
            return f"{len(back)} bytes of {kind} came back, not the {len(sent)} that were sent"
        largest = max((len(piece.body) for piece in transcript.echoes(kind)), default=0)
        if largest > MAX_PIECE_BYTES:
            return f"a piece of {largest} bytes is more than Envoy takes"
        ends = sum(piece.end_of_stream for piece in transcript.echoes(kind))
        wanted = 0 if trailers or (script.unfinished and kind == "request_body") else 1
        return "" if ends == wanted else f"the end of {kind} was given back {ends} times, expected {wanted}"

    return check


def body_untouched(transcript: Transcript, _pool: Pool) -> str:
    """BUFFERED: the body is not changed."""
    changed = [
        answer
        for answer in transcript.answers
        if answer.WhichOneof("response") == "request_body"
        and (
            answer.request_body.response.HasField("body_mutation")
            or answer.request_body.response.status == pb.CommonResponse.CONTINUE_AND_REPLACE
        )
    ]
    return "the body was changed" if changed else ""


def refuses(*statuses: int, retry_after: bool = False) -> Check:
    """An ImmediateResponse with one of these statuses and an error in OpenAI's shape."""

    def check(transcript: Transcript, _pool: Pool) -> str:
        refusal = transcript.refusal
        wanted = " or ".join(str(status) for status in statuses)
        if refusal is None:
            return f"expected {wanted}, but picked {', '.join(transcript.destinations) or 'nothing'}"
        if refusal.status.code not in statuses:
            return f"expected {wanted}, got {refusal.status.code}"
        if retry_after and "retry-after" not in _names(refusal):
            return "no Retry-After"
        return _openai_error(refusal.body)

    return check


def refuses_or_picks(*statuses: int) -> Check:
    """Either leave it to the engine or refuse, but with a client's error."""

    def check(transcript: Transcript, pool: Pool) -> str:
        return refuses(*statuses)(transcript, pool) if transcript.refusal is not None else picked(transcript, pool)

    return check


def decides_within(transcript: Transcript, pool: Pool) -> str:
    """The promised deadline."""
    if transcript.decided_s is None:
        return f"no decision at all ({transcript.silent or transcript.error or 'the stream ended'})"
    late = pool.deadline_s is not None and transcript.decided_s > pool.deadline_s + DEADLINE_SLACK_S
    return f"decided after {transcript.decided_s * 1e3:.0f} ms" if late else ""


DEADLINE_SLACK_S = 0.25  # for a busy machine
_RANK = {
    "request_headers": 0,
    "request_body": 1,
    "request_trailers": 2,
    "response_headers": 3,
    "response_body": 4,
    "response_trailers": 5,
}


def _is_address(entry: str) -> bool:
    host, _, port = entry.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        return False
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        return (ipaddress.ip_address(host[1:-1] if bracketed else host).version == 6) == bracketed
    except ValueError:
        return False


def _names(refusal: pb.ImmediateResponse) -> set[str]:
    return {option.header.key.lower() for option in refusal.headers.set_headers}


def _openai_error(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        whole = isinstance(error["message"], str) and "type" in error and "code" in error
    except (ValueError, KeyError, TypeError):
        whole = False
    return "" if whole else f"not an OpenAI-shaped error: {body[:120]!r}"
