"""What the gate must say of an event, in plain Python, and generated streams to say it of."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.unit.xds.gate.host import ERROR, NOTHING, TOKEN

OPENING = {
    "ping": (),
    "message_start": ("message", "content"),
    "content_block_start": ("content_block", None),
    "response.created": ("response", "output"),
    "response.in_progress": ("response", "output"),
    "response.queued": ("response", "output"),
    "response.output_item.added": ("item", None),
    "response.content_part.added": ("part", None),
}
_ONLY_FORM = {"type", "id", "status", "role"}


def empty(value: Any) -> bool:
    """True when nothing is said: null, an empty text, and lists and objects of these."""
    if isinstance(value, dict):
        return all(empty(item) for item in value.values())
    if isinstance(value, list):
        return all(empty(item) for item in value)
    return value is None or value == ""


def _without(value: Any, names: set[str]) -> Any:
    return {key: item for key, item in value.items() if key not in names} if isinstance(value, dict) else value


def _silent_choice(choice: Any) -> bool:
    delta = _without(choice.get("delta"), {"role"}) if isinstance(choice, dict) else None
    return empty(_without(choice, {"index", "delta"})) and empty(delta)


def _opens(kind: str, event: dict[str, Any]) -> bool:
    for name in ("message", "response"):
        inner = {"message": "content", "response": "output"}[name]
        value = event.get(name)
        if not empty(value.get(inner) if isinstance(value, dict) else value):
            return False
    return all(empty(_without(event.get(name), _ONLY_FORM)) for name in ("content_block", "item", "part"))


def _failed(name: str, event: dict[str, Any]) -> bool:
    error = event.get("error")
    said = isinstance(error, dict) or (isinstance(error, str) and error != "")
    return said or name == "error" or event.get("type") == "error" or event.get("object") == "error"


def _clients_fault(event: dict[str, Any]) -> bool:
    error = event.get("error")
    if not isinstance(error, dict):
        return False
    code = str(error.get("code"))
    named = error.get("type") in ("invalid_request_error", "BadRequestError")
    return named or (len(code) == 3 and code[0] == "4" and code not in ("408", "429"))


def verdict(name: str, event: Any) -> int:
    """Of an event with this name ("" for none) whose data is this value."""
    if not isinstance(event, dict):
        return ERROR if name == "error" else TOKEN
    if _failed(name, event):
        return TOKEN if _clients_fault(event) else ERROR
    kind = event["type"] if isinstance(event.get("type"), str) else name
    if kind in OPENING:
        return NOTHING if _opens(kind, event) else TOKEN
    choices = event.get("choices")
    if not isinstance(choices, list) or not all(_silent_choice(choice) for choice in choices):
        return TOKEN
    return NOTHING if choices or empty(event.get("usage")) else TOKEN


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(["", "a", "assistant", "error", "\n", '"}', "é", "\\", "message_start"]),
    st.sampled_from([0, 1, -2.5, 1e300, 400, 429, 500]),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "type", ""]), inner)),
    max_leaves=4,
)


def _objects(names: str, values: st.SearchStrategy[Any] = _values) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names.split()), values, max_size=4)


_quiet = st.sampled_from([None, "", [], {}, [None], {"a": ""}])
_deltas = st.one_of(_objects("role content tool_calls", _quiet), _objects("role content tool_calls"), _values)
_choices = st.one_of(
    st.fixed_dictionaries({"index": st.just(0), "delta": _deltas, "finish_reason": _quiet}),
    _objects("index text delta finish_reason", _quiet),
    _values,
)
_types = st.one_of(st.sampled_from([*OPENING, "error", "other", ""]), _scalars)
_parts = st.one_of(_objects("type id text role name", _quiet), _objects("type id status text name content"), _values)
_faults = st.one_of(
    st.fixed_dictionaries({"code": st.sampled_from([400, "404", 408, 429, 500, None])}),
    _objects("type code message", st.sampled_from(["invalid_request_error", "x", 400, "499", 503])),
    _values,
)
events = st.fixed_dictionaries(
    {},
    optional={
        "id": _scalars,
        "type": _types,
        "object": _scalars,
        "choices": st.one_of(st.lists(_choices, max_size=2), _values),
        "usage": _values,
        "error": _faults,
        "message": st.one_of(_objects("content usage", _quiet), _values),
        "response": st.one_of(_objects("output id", _quiet), _values),
        "item": _parts,
        "part": _parts,
        "content_block": _parts,
    },
)
names = st.sampled_from(["", "", "", "error", *OPENING])
line_ends = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def _written(draw: st.DrawFn) -> tuple[bytes, int]:
    value, name, end = draw(events), draw(names), draw(line_ends)
    text = json.dumps(value, indent=draw(st.sampled_from([None, 0, 1])), ensure_ascii=draw(st.booleans()))
    space = draw(st.sampled_from(["", " "]))
    lines = [f"data:{space}{line}" for line in text.split("\n")]
    lines += draw(st.sampled_from([[], [": note"], ["id: 7", "retry:1"]]))
    if name:
        lines.insert(draw(st.sampled_from([0, len(lines)])), f"event:{space}{name}")
    return (end.join(lines) + end * 2).encode(), verdict(name, value)


# An event as an engine may write it, with any line ends and spaces, its data on one line or on several; the verdict.
streams = _written()

_FRAGMENTS = [
    *(b'data: {"', b'"choices":[', b'"delta":{', b'"error"', b"\\", b'"', b"\n", b"\r", b"event: error", b"}", b"]"),
    *(b"null", b":", b",", b"data", b"\xef\xbb\xbf", b": ", b'"type":"ping"', b"["),
]
pieces = st.lists(st.one_of(st.binary(max_size=8), st.sampled_from(_FRAGMENTS)), max_size=40).map(b"".join)
