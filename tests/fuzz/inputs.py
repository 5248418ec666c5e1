"""Inputs for the request parser, and what must hold for each of them."""

import base64
import gzip
import json

from hypothesis import strategies as st

from tradewind.core.tokens.estimate import TokenEstimator
from tradewind.gateway.requests.parse import RequestParser
from tradewind.gateway.requests.result import ParsedRequest, Refused

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/resp_1/cancel",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/audio/transcriptions",
    "/tokenize",
    "/nothing",
)
MAX_PROMPT_TOKENS_PER_BYTE = 20_000  # an image of a few bytes may be 16,384 tokens

_KEYS = st.sampled_from(
    [
        *(
            "model",
            "messages",
            "role",
            "content",
            "type",
            "text",
            "image_url",
            "url",
            "source",
            "data",
            "input",
            "prompt",
        ),
        *("tools", "system", "max_tokens", "stream", "cache_salt", "input_audio", "tool_calls", "previous_response_id"),
        *("instructions", "output", "name"),
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(["m", "user", "text", "image_url", "data:image/png;base64,iVBORw0KGgo", "\ud83d", "x" * 600]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.one_of(_KEYS, st.text(max_size=5)), inner)),
    max_leaves=25,
)
_OBJECTS = st.builds(
    lambda value, more: {"model": value, **more},
    st.one_of(st.just("m"), _VALUES),
    st.dictionaries(_KEYS, _VALUES, max_size=6),
)
_SPELLED = st.builds(
    lambda value, ascii_only: json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"),
    _OBJECTS,
    st.booleans(),
)


def _mangled(body: bytes, at: float, cut: int, put: bytes) -> bytes:
    start = int(at * len(body))
    return body[:start] + put + body[start + cut :]


_MANGLED = st.builds(_mangled, _SPELLED, st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8))
bodies = st.one_of(st.binary(max_size=200), _SPELLED, _MANGLED, _MANGLED.map(gzip.compress))

SEEDS: tuple[bytes, ...] = tuple(
    json.dumps(body).encode()
    for body in (
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "hi \U0001f6a2"}]}]},
        {
            "messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
            "model": "m",
            "stream": True,
        },
        {"model": "m", "prompt": [[1, 2], [3]], "max_tokens": "5"},
        {"model": "m", "input": [{"role": "user", "content": "x"}], "previous_response_id": "r"},
        {
            "model": "m",
            "system": "s",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"data": base64.b64encode(b"\x89PNG\r\n\x1a\n" * 9).decode()}},
                        {"type": "tool_result", "content": [{"type": "text", "text": "t"}]},
                    ],
                }
            ],
        },
    )
)


def parser() -> RequestParser:
    """A parser that has learned nothing."""
    return RequestParser(TokenEstimator())


def check(body: bytes, *, path: str, partial: bool) -> None:
    """Parses in every way that the headers can ask for; raises where the contract does not hold."""
    for headers in (
        {},
        {"content-encoding": "gzip"},
        {"content-encoding": "deflate"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-length": str(len(body) * 3), "tradewind-model": "h"},
    ):
        answer = parser().parse(
            body, path=path, headers=headers, partial=partial, only_model="only" if partial else None
        )
        if isinstance(answer, Refused):
            assert answer.status in {400, 404, 413, 415}
            answer.message.encode()
            continue
        assert isinstance(answer, ParsedRequest)
        request = answer.request
        request.model.encode()
        assert request.model or path.startswith("/v1/responses/")
        assert 1 <= request.prompt_tokens <= MAX_PROMPT_TOKENS_PER_BYTE * (len(body) + 1)
        assert all(0 <= block < 1 << 64 for block in request.blocks)
        assert (request.block_tokens > 0) == bool(request.blocks)
        assert request.max_output_tokens is None or request.max_output_tokens >= 0
