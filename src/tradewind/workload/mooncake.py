"""Requests with their prefix blocks, and the format of the Mooncake traces (FAST '25) for reading and writing them.

One JSON object for each line: `timestamp` in milliseconds from the start, `input_length` and `output_length` in tokens,
`hash_ids`: one number for each started block of 512 prompt tokens. Equal numbers at one position mean equal text up to
and with that block; the last, partial block has a number too, and never counts as cached. Some traces add a `user_id`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

import msgspec
import numpy as np

from tradewind.workload.errors import at_line

BLOCK_TOKENS = 512  # the format's
MAX_ROWS = 1_000_000  # a longer trace is cut here


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """One request to come. `block_ids` holds one id for each full block; `at_s` counts from the start of the load."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...] = ()
    session: str = ""
    kind: str = ""  # group for reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival, and the size of their blocks."""

    requests: tuple[TracedRequest, ...]
    block_tokens: int = BLOCK_TOKENS


class _Row(msgspec.Struct, omit_defaults=True):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []
    user_id: int | str | None = None


def parse_mooncake(
    lines: Iterable[bytes], *, name: str = "the trace", block_tokens: int = BLOCK_TOKENS
) -> Iterator[TracedRequest]:
    """Requests of the lines of a trace. Raises TraceError naming the line."""
    decoder = msgspec.json.Decoder(_Row)
    for number, line in enumerate(lines, start=1):
        if number > MAX_ROWS:
            return
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise at_line(name, number, f"not a Mooncake row: {error}") from error
        wrong = _wrong(row, block_tokens)
        if wrong:
            raise at_line(name, number, wrong)
        yield TracedRequest(
            at_s=row.timestamp / 1_000,
            prompt_tokens=max(1, row.input_length),
            output_tokens=max(1, row.output_length),
            block_ids=tuple(row.hash_ids[: row.input_length // block_tokens]),
            session="" if row.user_id is None else str(row.user_id),
        )


def _wrong(row: _Row, block_tokens: int) -> str:
    """What is wrong with a row; "" = nothing. A row without ids shares nothing."""
    if row.timestamp < 0 or row.input_length < 0 or row.output_length < 0:
        return "a negative timestamp or length; write milliseconds and tokens from 0 up"
    wanted = -(-row.input_length // block_tokens)
    if row.hash_ids and len(row.hash_ids) != wanted:
        return (
            f"{len(row.hash_ids)} hash_ids for {row.input_length} tokens, which are {wanted} blocks of {block_tokens};"
            " is the trace's block of another size?"
        )
    return ""


def mooncake_lines(trace: Trace, *, in_seconds: bool = False) -> Iterator[bytes]:
    """The trace, of 512-token blocks, as lines of the format; each partial block gets an id of its own."""
    assert trace.block_tokens == BLOCK_TOKENS, "the format's block is 512 tokens"
    fresh = 1 + max((max(request.block_ids, default=0) for request in trace.requests), default=0)
    encoder = msgspec.json.Encoder()
    for request in trace.requests:
        ids = list(request.block_ids)
        while len(ids) * BLOCK_TOKENS < request.prompt_tokens:  # a full block without an id is shared with nobody
            ids.append(fresh)
            fresh += 1
        row = _Row(
            timestamp=round(request.at_s, 3) if in_seconds else round(request.at_s * 1_000),
            input_length=request.prompt_tokens,
            output_length=request.output_tokens,
            hash_ids=ids,
            user_id=request.session or None,
        )
        yield encoder.encode(row) + b"\n"


def coarser(trace: Trace, block_tokens: int = BLOCK_TOKENS) -> Trace:
    """The same requests in blocks of so many tokens, a multiple of the trace's: an id stands for all before it."""
    assert block_tokens % trace.block_tokens == 0, "blocks can only be put together"
    times = block_tokens // trace.block_tokens
    requests = tuple(replace(request, block_ids=request.block_ids[times - 1 :: times]) for request in trace.requests)
    return Trace(requests=requests, block_tokens=block_tokens)


def block_hashes(trace: Trace) -> Iterator[tuple[int, ...]]:
    """For each request the 64-bit hashes of its blocks (splitmix64): ids are dense, consumers expect hashes."""
    ids = np.fromiter(chain.from_iterable(request.block_ids for request in trace.requests), dtype=np.uint64)
    mixed = ids + np.uint64(0x9E3779B97F4A7C15)  # arithmetic of arrays is modulo 2**64
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes = iter((mixed ^ (mixed >> np.uint64(31))).tolist())
    return (tuple(islice(hashes, len(request.block_ids))) for request in trace.requests)


class Reuse(msgspec.Struct, frozen=True, kw_only=True):
    """What of a trace an infinite cache would serve: shares of all blocks, over all users and within one session."""

    anywhere: float
    within_session: float


def reuse(trace: Trace) -> Reuse:
    """Shares of full and partial blocks that repeat an earlier prefix; 0 for an empty trace."""
    seen: set[int] = set()
    by_session: dict[str, set[int]] = {}
    blocks = hits = own_hits = 0
    for request in trace.requests:
        own = by_session.setdefault(request.session, set())
        blocks += -(-request.prompt_tokens // trace.block_tokens)
        hits += _leading(request.block_ids, seen)
        own_hits += _leading(request.block_ids, own)
        seen.update(request.block_ids)
        own.update(request.block_ids)
    return Reuse(anywhere=hits / blocks if blocks else 0.0, within_session=own_hits / blocks if blocks else 0.0)


def _leading(ids: tuple[int, ...], known: set[int]) -> int:
    count = 0
    for block in ids:
        if block not in known:
            break
        count += 1
    return count
