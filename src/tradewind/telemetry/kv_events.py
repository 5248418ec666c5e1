"""KV cache events of vLLM and SGLang: what an engine stores, drops and clears.

Frames are [topic, sequence number (8 bytes, big-endian), msgpack]; the payload is [time, events, rank]. An event is a
map with "type" (vLLM from 0.23 on, SGLang) or an array that begins with its type (vLLM before). Only the memory of the
GPU counts: blocks on other media are no hit without a transfer.

A publisher drops what it cannot send, and does not know its subscribers: a gap in the sequence is told as `Missed`, a
sequence that starts again as `Restarted`. Anything unreadable is counted and skipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

MAX_PAYLOAD_BYTES = 16 << 20
MAX_EVENTS = 65_536  # of one batch
SEQUENCE_BYTES = 8
GPU = "GPU"
_Hash = int | bytes

# Positions in the array form.
_STORED_HASHES, _STORED_PARENT, _STORED_TOKENS, _STORED_BLOCK_SIZE, _STORED_MEDIUM = 1, 2, 3, 4, 6
_REMOVED_HASHES, _REMOVED_MEDIUM = 1, 2

_decoder = msgspec.msgpack.Decoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksStored:
    """Blocks of a prompt that are in the cache now. Hashes are the engine's own, over token ids."""

    hashes: tuple[_Hash, ...]
    parent: _Hash | None
    token_ids: tuple[int, ...]  # of all blocks, first block first
    block_size_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksRemoved:
    """Blocks that gave way."""

    hashes: tuple[_Hash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCleared:
    """The cache is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """So many batches never arrived; among them may be a clearing."""

    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The publisher began again: another engine process, with an empty cache."""


CacheEvent = BlocksStored | BlocksRemoved | AllCleared
KvEvent = CacheEvent | Missed | Restarted


class KvEventReader:
    """One publisher's frames, in order, to calls of `on_events`. Never raises for what a publisher sends."""

    def __init__(self, on_events: Callable[[Sequence[KvEvent]], None]) -> None:
        self._on_events = on_events
        self._last_sequence: int | None = None
        self.from_the_start = False  # the first batch of this publisher was seen
        self.batches = 0
        self.missed = 0  # batches that a gap in the sequence tells of
        self.read = 0  # events of the GPU's cache
        self.bad = 0  # frames or events that could not be read

    def expect_another(self) -> None:
        """The publisher is known to have ended: what comes next is another one's, of which nothing is known."""
        self._last_sequence = None
        self.from_the_start = False

    def take(self, frames: Sequence[bytes]) -> None:
        """One message of the publisher."""
        if len(frames) != 3 or len(frames[1]) != SEQUENCE_BYTES:
            self.bad += 1
            return
        news = self._sequence(int.from_bytes(frames[1], "big"))
        events, bad = decode(frames[2])
        self.read += len(events)
        self.bad += bad
        if news or events:
            self._on_events([*news, *events])

    def _sequence(self, sequence: int) -> list[KvEvent]:
        last, self._last_sequence = self._last_sequence, sequence
        self.batches += 1
        if last is None:
            self.from_the_start = sequence == 0
            return []
        restarted = sequence <= last
        gap = sequence if restarted else sequence - last - 1
        self.missed += gap
        if restarted:
            self.from_the_start = sequence == 0
        return [*([Restarted()] if restarted else []), *([Missed(batches=gap)] if gap else [])]


def decode(payload: bytes) -> tuple[list[CacheEvent], int]:
    """(events of the GPU's cache in order, how many could not be read)."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        return [], 1
    try:
        batch = _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return [], 1
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list) or len(batch[1]) > MAX_EVENTS:
        return [], 1
    events: list[CacheEvent] = []
    bad = 0
    for item in batch[1]:
        try:
            event = _event(item)
        except (KeyError, IndexError, TypeError, ValueError):
            bad += 1
            continue
        if event is not None:
            events.append(event)
    return events, bad


def _event(item: object) -> CacheEvent | None:
    """None for a known event of another medium; raises for what is not an event."""
    fields: dict[str, Any] = item if isinstance(item, dict) else _listed(item)
    kind = fields["type"]
    if kind == "AllBlocksCleared":
        return AllCleared()
    if kind not in ("BlockStored", "BlockRemoved"):
        raise ValueError(kind)
    if fields.get("medium") not in (None, GPU):
        return None
    hashes = tuple(_hash(value) for value in fields["block_hashes"])
    if kind == "BlockRemoved":
        return BlocksRemoved(hashes=hashes)
    parent = fields["parent_block_hash"]
    size = _integer(fields["block_size"])
    if size <= 0:
        raise ValueError(size)
    return BlocksStored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        token_ids=tuple(_integer(value) for value in fields["token_ids"]),
        block_size_tokens=size,
    )


def _listed(item: object) -> dict[str, Any]:
    """The array form as the map form."""
    if not isinstance(item, list):
        raise TypeError(item)
    kind = item[0]
    if kind == "BlockStored":
        return {
            "type": kind,
            "block_hashes": item[_STORED_HASHES],
            "parent_block_hash": item[_STORED_PARENT],
            "token_ids": item[_STORED_TOKENS],
            "block_size": item[_STORED_BLOCK_SIZE],
            "medium": item[_STORED_MEDIUM] if len(item) > _STORED_MEDIUM else None,
        }
    if kind == "BlockRemoved":
        medium = item[_REMOVED_MEDIUM] if len(item) > _REMOVED_MEDIUM else None
        return {"type": kind, "block_hashes": item[_REMOVED_HASHES], "medium": medium}
    return {"type": kind}


def _hash(value: object) -> _Hash:
    if isinstance(value, bool) or not isinstance(value, int | bytes):
        raise TypeError(value)
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value
