"""What an engine's KV events say of prefixes by any name: from when on they must have been used to be there still.

An engine names its blocks by hashes over token ids, which nobody else can compute without its tokenizer. What needs no
names is the order in which blocks go: vLLM and SGLang evict the one that was used least recently. A block that is
removed was used last at or after the time it was stored, so whatever was used last before that time went before it.
The latest such time over all removals is the horizon. It only ever errs towards too early: a block's uses after it was
stored are not told.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from tradewind.model.telemetry import CacheReading

MAX_BLOCKS = 1 << 20  # remembered of one engine: 16 million tokens at 16 a block; beyond it the oldest is forgotten


@dataclass(slots=True)
class _Stored:
    since_s: float  # the earliest time of those that are there
    copies: int  # several requests may have computed the same block


class CacheHorizon:
    """One engine's prefix cache, from its events. Times are of one monotonic clock and do not run back."""

    def __init__(self, *, block_size_tokens: int | None = None, max_blocks: int = MAX_BLOCKS) -> None:
        assert max_blocks > 0, "without memory there is no horizon"
        self._max_blocks = max_blocks
        self._block_size_tokens = block_size_tokens
        self._stored: dict[Hashable, _Stored] = {}  # in the order in which they came
        self._horizon_s: float | None = None
        self._clearings = 0
        self._complete = False  # everything that is resident is remembered

    def stored(self, hashes: Iterable[Hashable], now_s: float, *, block_size_tokens: int | None = None) -> None:
        """These blocks are in the cache now."""
        self._block_size_tokens = block_size_tokens or self._block_size_tokens
        stored = self._stored
        for content in hashes:
            old = stored.get(content)
            if old is not None:
                old.copies += 1
                continue
            stored[content] = _Stored(now_s, 1)
            if len(stored) > self._max_blocks:
                del stored[next(iter(stored))]
                self._complete = False

    def removed(self, hashes: Iterable[Hashable]) -> None:
        """These blocks gave way. One that was stored before anybody listened says nothing."""
        for content in hashes:
            old = self._stored.get(content)
            if old is None:
                continue
            if self._horizon_s is None or old.since_s > self._horizon_s:
                self._horizon_s = old.since_s
            old.copies -= 1
            if not old.copies:
                del self._stored[content]

    def cleared(self) -> None:
        """All of it was dropped, or another engine process has begun."""
        self.begun()
        self._clearings += 1

    def begun(self) -> None:
        """The events are heard from the engine's start, or from its last clearing, on."""
        self._stored.clear()
        self._horizon_s = None
        self._complete = True

    def missed(self) -> None:
        """Some events never came: what is resident is not known any longer. The horizon holds."""
        self._complete = False

    def reading(self, now_s: float) -> CacheReading:
        """For a heartbeat at this time."""
        size = self._block_size_tokens
        return CacheReading(
            clearings=self._clearings,
            untouched_s=None if self._horizon_s is None else max(0.0, now_s - self._horizon_s),
            resident_tokens=size * len(self._stored) if self._complete and size else None,
        )


def merged(ranks: Sequence[CacheReading]) -> CacheReading:
    """A cell whose engine has several caches, one for each data-parallel rank; nobody outside knows which one a request
    meets. So only what every rank has dropped is gone, and what one of them has cleared may have been all."""
    assert ranks, "a cell without a rank has no cache"
    untouched_s = [rank.untouched_s for rank in ranks if rank.untouched_s is not None]
    resident = [rank.resident_tokens for rank in ranks if rank.resident_tokens is not None]
    return CacheReading(
        clearings=sum(rank.clearings for rank in ranks),
        untouched_s=max(untouched_s) if len(untouched_s) == len(ranks) else None,
        resident_tokens=sum(resident) if len(resident) == len(ranks) else None,
    )
