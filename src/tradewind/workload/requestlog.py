"""A gateway's request log as a trace: what came when, how long it was, and what its prefix may have been.

The log holds no prompt. It says how many tokens an engine served from its cache, and not whose they were: a request
that found some is taken to begin like the newest earlier request of its cell that is long enough, else like a text of
its own that was there before. What a cache no longer held, or another cell's did, is not seen: prefixes are shared at
least as much as the log shows.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from tradewind.workload.errors import at_line
from tradewind.workload.mooncake import MAX_ROWS, TracedRequest

BLOCK_TOKENS = 128
MARK = b'"at_unix_s"'  # in every line, and in no line of another format
MAX_LIVE = 4_096  # requests of a cell whose prompts may still be in its cache


class _Line(msgspec.Struct):
    at_unix_s: float  # when it ended
    cell: str | None = None
    status: int = 0
    duration_s: float = 0.0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


def parse_request_log(lines: Iterable[bytes], *, name: str = "the request log") -> Iterator[TracedRequest]:
    """Served requests with both counts of tokens, in order of arrival; others are left out. Raises TraceError."""
    served = sorted(_served(lines, name), key=lambda line: line.at_unix_s - line.duration_s)
    begin_s = served[0].at_unix_s - served[0].duration_s if served else 0.0
    prefixes = _Prefixes()
    for line in served:
        prompt, output = line.prompt_tokens or 1, line.completion_tokens or 1
        yield TracedRequest(
            at_s=max(0.0, line.at_unix_s - line.duration_s - begin_s),
            prompt_tokens=prompt,
            output_tokens=output,
            block_ids=prefixes.of(line.cell or "", prompt, min(prompt, line.cached_tokens or 0)),
        )


def _served(lines: Iterable[bytes], name: str) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    for number, text in enumerate(lines, start=1):
        if number > MAX_ROWS:
            return
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise at_line(name, number, f"not a line of a request log: {error}") from error
        if min(line.duration_s, line.prompt_tokens or 0, line.completion_tokens or 0, line.cached_tokens or 0) < 0:
            raise at_line(name, number, "a negative time or number of tokens")
        if line.status == 200 and line.prompt_tokens and line.completion_tokens:
            yield line


class _Prefixes:
    """Numbers for blocks: those of the prompt that a request is taken to begin like, then new ones."""

    def __init__(self) -> None:
        self._next = 1
        self._live: dict[str, deque[tuple[int, ...]]] = {}

    def of(self, cell: str, prompt_tokens: int, cached_tokens: int) -> tuple[int, ...]:
        """The full blocks of a prompt of which so many tokens were cached on the cell."""
        live = self._live.setdefault(cell, deque(maxlen=MAX_LIVE))
        shared, every = cached_tokens // BLOCK_TOKENS, prompt_tokens // BLOCK_TOKENS
        like = next((blocks for blocks in reversed(live) if len(blocks) >= shared), None)
        begin = self._fresh(shared) if like is None else like[:shared]
        blocks = begin + self._fresh(every - shared)
        live.append(blocks)
        return blocks

    def _fresh(self, count: int) -> tuple[int, ...]:
        first, self._next = self._next, self._next + count
        return tuple(range(first, self._next))
