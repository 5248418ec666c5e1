"""The top level of a body: typed where its types are the usual ones, and its model alone where they are not."""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Raw

from tradewind.gateway.requests import shapes, truncated
from tradewind.gateway.requests.kinds import Kind
from tradewind.gateway.requests.result import Refused

SLOW_BYTES = 1 << 18  # the standard library's parser is not given a longer body
MAX_INTEGER = 1 << 31
_BOM = b"\xef\xbb\xbf"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DECODERS: Mapping[Kind, Callable[[bytes], shapes.Head]] = {
    Kind.CHAT: shapes.CHAT.decode,
    Kind.COMPLETION: shapes.COMPLETION.decode,
    Kind.RESPONSES: shapes.RESPONSES.decode,
    Kind.MESSAGES: shapes.ANTHROPIC.decode,
}
_NOT_AN_OBJECT = Refused(400, "the request body must be a JSON object", "invalid_json")
_NOT_JSON = Refused(400, "the request body is not valid JSON", "invalid_json")


class Known(NamedTuple):
    """What the top level says. `head` is None for a body of unusual types, and where the prompt is not looked at."""

    model: object  # whatever the client wrote; None = nothing
    stream: bool = False
    max_output_tokens: int | None = None
    previous_response_id: str = ""
    input_ids: int = 0  # token ids of a pooling request
    head: shapes.Head | None = None
    note: str = ""
    seen_bytes: int = 0  # of the body, that `head` is made of; 0 = all


NOTHING_KNOWN = Known(None, note="unreadable")


def know(body: bytes, kind: Kind, *, partial: bool) -> Known | Refused:
    """Decodes the top level; of a body that is cut off, as much as arrived whole."""
    if body.startswith(_BOM):
        body = body[len(_BOM) :]
    if partial:
        return _beginning(body, kind) or NOTHING_KNOWN
    if kind in _DECODERS and truncated.is_dense(body, b"{["):
        return _dense(body, kind)
    known = _fast(body, kind)
    return _slow(body) if known is None else known


def _beginning(body: bytes, kind: Kind) -> Known | None:
    """What can be had of a body whose end is missing."""
    closed = truncated.closed(body[: truncated.SEEN_BYTES])
    known = _fast(closed, kind) if closed is not None else None
    return known._replace(seen_bytes=min(len(body), len(closed or b""))) if isinstance(known, Known) else None


def _dense(body: bytes, kind: Kind) -> Known | Refused:
    """The top level of the whole body, and the prompt's beginning."""
    known = _fast(body, Kind.OTHER)
    if not isinstance(known, Known):
        return _slow(body) if known is None else known
    beginning = _beginning(body, kind)
    if beginning is None or beginning.head is None:
        return known._replace(note="unusual types")
    return known._replace(head=beginning.head, note="dense", seen_bytes=beginning.seen_bytes)


def _fast(body: bytes, kind: Kind) -> Known | Refused | None:
    """None for what this decoder takes for malformed."""
    decoder = _DECODERS.get(kind)
    try:
        if decoder is not None:
            try:
                return _typed(decoder(body))
            except msgspec.ValidationError:
                pass  # JSON, but of other types than the usual ones
        return _loose(shapes.ENVELOPE.decode(body), kind, usual=decoder is None)
    except msgspec.ValidationError:
        return _NOT_AN_OBJECT
    except _UNREADABLE:
        return None


def _slow(body: bytes) -> Known | Refused:
    """What engines' parsers accept beyond the standard: NaN, lone surrogates, UTF-16. Nothing of the prompt is used."""
    if not body.strip():
        return Refused(400, "the request body is empty", "invalid_json")
    if len(body) > SLOW_BYTES:
        return NOTHING_KNOWN
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return _NOT_JSON
    if not isinstance(value, dict):
        return _NOT_AN_OBJECT
    previous = value.get("previous_response_id")
    return Known(
        value.get("model"),
        stream=value.get("stream") is True,
        max_output_tokens=_first_integer(
            value.get("max_completion_tokens"), value.get("max_tokens"), value.get("max_output_tokens")
        ),
        previous_response_id=previous if isinstance(previous, str) else "",
        note="unusual JSON",
    )


def _typed(head: shapes.Head) -> Known:
    return Known(
        head.model,
        head.stream is True or head.stream == "true" or head.stream == 1,
        _first_integer(head.max_completion_tokens, head.max_tokens, head.max_output_tokens),
        (head.previous_response_id or "") if isinstance(head, shapes.ResponsesBody) else "",
        0,
        head,
    )


def _loose(envelope: shapes.Envelope, kind: Kind, *, usual: bool) -> Known:
    previous = _value(envelope.previous_response_id)
    return Known(
        _value(envelope.model),
        stream=_value(envelope.stream) is True,
        max_output_tokens=_first_integer(
            _value(envelope.max_completion_tokens), _value(envelope.max_tokens), _value(envelope.max_output_tokens)
        ),
        previous_response_id=previous if isinstance(previous, str) else "",
        input_ids=_count_ids(envelope.input) if kind is Kind.POOLING else 0,
        note="" if usual else "unusual types",
    )


def _value(raw: Raw) -> object:
    """A scalar; anything structured or unreadable stands as an empty tuple, which is neither text nor a number."""
    if raw is shapes.NOTHING:
        return None
    text = bytes(raw)
    if text[:1] in (b"{", b"["):
        return ()
    try:
        value: object = shapes.ANYTHING.decode(text)
    except _UNREADABLE:
        return ()
    return value


def _first_integer(*values: object) -> int | None:
    """The first that is given, as engines read numbers; None for nonsense, which the engine will judge."""
    for value in values:
        if value is None:
            continue
        if isinstance(value, str) and len(value) <= 20 and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return int(value) if 0 < value < MAX_INTEGER else None
    return None


def _count_ids(raw: Raw) -> int:
    """How many token ids an `input` of ids, or of lists of ids, has; 0 for text."""
    text = bytes(raw)
    if not text.startswith(b"[") or b'"' in text:
        return 0
    return text.count(b",") + 1 if text.strip(b"[] \n\r\t") else 0
