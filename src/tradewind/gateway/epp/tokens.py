"""Token usage from the end of a response: one JSON answer or a stream of events, OpenAI's and Anthropic's names."""

import re

import msgspec

TAIL_BYTES = 16 * 1024  # usage stands at the end; what was before is forgotten
_USAGE = re.compile(rb'"usage"\s*:\s*\{')


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None


class UsageReader:
    """Keeps the tail of one response."""

    __slots__ = ("_tail",)

    def __init__(self) -> None:
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        """The next piece of the body."""
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]

    def tokens(self) -> tuple[int | None, int | None, int | None]:
        """Prompt, cached and completion tokens; a name's last value counts. All None when there is no usage."""
        prompt = cached = completion = None
        for found in _USAGE.finditer(self._tail):
            usage = _decoded(self._tail, found.end() - 1)
            prompt = _first(usage.prompt_tokens, usage.input_tokens, prompt)
            completion = _first(usage.completion_tokens, usage.output_tokens, completion)
            details = usage.prompt_tokens_details or usage.input_tokens_details or _Details()
            cached = _first(details.cached_tokens, usage.cache_read_input_tokens, cached)
        return prompt, cached, completion


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _decoded(tail: bytes, start: int) -> _Usage:
    """The object that begins at `start`; an empty one when it is cut, or is not usage."""
    depth = 0
    for at in range(start, len(tail)):
        byte = tail[at]
        depth += (byte == 0x7B) - (byte == 0x7D)
        if depth == 0:
            try:
                return msgspec.json.decode(tail[start : at + 1], type=_Usage)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _Usage()
    return _Usage()
