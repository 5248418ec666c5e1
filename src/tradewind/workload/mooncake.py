"""Requests with their prefix blocks, and the format of the Mooncake traces (FAST '25) for reading and writing them.

One JSON object for each line: `timestamp` in milliseconds from the start, `input_length` and `output_length` in tokens,
`hash_ids`: one number for each started block of 512 prompt tokens. Equal numbers at one position mean equal text up to
and with that block; the last, partial block has a number too, and never counts as cached.
"""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

BLOCK_TOKENS = 512  # the format's
MAX_ROWS = 1_000_000  # a longer trace is cut here
_MASK = (1 << 64) - 1


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


class _Row(msgspec.Struct, forbid_unknown_fields=False):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_mooncake(path: Path) -> Trace:
    """The trace in a .jsonl or .jsonl.gz file. Raises OSError; ValueError naming the line."""
    with path.open("rb") as raw:
        lines = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        return Trace(requests=tuple(parse_mooncake(lines)))


def parse_mooncake(lines: Iterable[bytes]) -> Iterator[TracedRequest]:
    """Requests of the lines of a trace. Raises ValueError naming the line."""
    decoder = msgspec.json.Decoder(_Row)
    for number, line in enumerate(lines, start=1):
        if number > MAX_ROWS:
            return
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number} of the trace is not a Mooncake row: {error}") from error
        full = row.input_length // BLOCK_TOKENS
        yield TracedRequest(
            at_s=row.timestamp / 1_000,
            prompt_tokens=max(1, row.input_length),
            output_tokens=max(1, row.output_length),
            block_ids=tuple(row.hash_ids[:full]),
        )


def mooncake_lines(trace: Trace) -> Iterator[bytes]:
    """The trace, of 512-token blocks, as lines of the format; each partial block gets an id of its own."""
    assert trace.block_tokens == BLOCK_TOKENS, "the format's block is 512 tokens"
    fresh = 1 + max((max(request.block_ids, default=0) for request in trace.requests), default=0)
    encoder = msgspec.json.Encoder()
    for request in trace.requests:
        ids = list(request.block_ids)
        if request.prompt_tokens > len(ids) * BLOCK_TOKENS:
            ids.append(fresh)
            fresh += 1
        row = _Row(
            timestamp=round(request.at_s * 1_000),
            input_length=request.prompt_tokens,
            output_length=request.output_tokens,
            hash_ids=ids,
        )
        yield encoder.encode(row) + b"\n"


def mixed_hash(number: int) -> int:
    """A 64-bit hash of a block id (splitmix64): ids are dense, consumers expect hashes."""
    mixed = (number + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


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
