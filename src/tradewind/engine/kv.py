"""KV blocks with a prefix cache: chained hashes, reference counts, eviction of the least recently freed block."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol


class CacheListener(Protocol):
    """Whoever is told what the prefix cache holds, as an engine's KV events tell it."""

    def stored(self, contents: Sequence[int], parent: int | None) -> None:
        """Blocks with these hashes are full and in the cache now; `parent` is the hash before the first."""
        ...

    def removed(self, contents: Sequence[int]) -> None:
        """These gave way."""
        ...

    def cleared(self) -> None:
        """All did."""
        ...


class BlockPool:
    """A fixed number of blocks. A block is in use (references > 0) or free; a free one may still hold a cached prefix.

    Shared prefix blocks are counted once. Free blocks without content go first, then the least recently freed.
    """

    def __init__(self, *, blocks: int, block_size_tokens: int) -> None:
        assert blocks > 0
        assert block_size_tokens > 0
        self.blocks = blocks
        self.block_size_tokens = block_size_tokens
        self._references: dict[int, int] = {}  # blocks in use only
        self._hash_of: dict[int, int] = {}  # cached content, in use or free
        self._block_of: dict[int, int] = {}
        self._free_cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._free_empty: list[int] = []
        self._next_fresh = 0  # blocks at and above were never used: a pool costs nothing until it fills
        self.listener: CacheListener | None = None

    @property
    def free(self) -> int:
        """Blocks that an allocation can take, cached ones included."""
        return self.blocks - len(self._references)

    @property
    def used_ratio(self) -> float:
        """Share of blocks in use, 0..1."""
        return len(self._references) / self.blocks

    def match(self, hashes: Sequence[int], limit: int) -> list[int]:
        """Returns the blocks that hold the longest cached prefix of `hashes`, at most `limit` of them."""
        found: list[int] = []
        block_of = self._block_of
        for content in hashes[:limit]:
            if content not in block_of:
                break
            found.append(block_of[content])
        return found

    def needs(self, cached: Sequence[int], fresh: int) -> int:
        """How many free blocks it takes to hold the `cached` blocks and `fresh` new ones."""
        references = self._references
        return fresh + len([block for block in cached if block not in references])

    def share(self, cached: Sequence[int]) -> None:
        """Takes one reference on each cached block."""
        for block in cached:
            count = self._references.get(block, 0)
            if not count:
                del self._free_cached[block]
            self._references[block] = count + 1

    def allocate(self, count: int) -> list[int] | None:
        """Takes `count` blocks with one reference each, evicting cached ones; None, and nothing taken, if too few."""
        if count > self.free:
            return None
        taken = self._free_empty[: -count - 1 : -1]  # the newest first
        if taken:
            del self._free_empty[-len(taken) :]
        if len(taken) < count:
            fresh = min(count - len(taken), self.blocks - self._next_fresh)
            taken.extend(range(self._next_fresh, self._next_fresh + fresh))
            self._next_fresh += fresh
            self._evict(count - len(taken), into=taken)
        self._references.update(dict.fromkeys(taken, 1))
        return taken

    def publish(self, blocks: Sequence[int], contents: Sequence[int], *, parent: int | None = None) -> None:
        """Says that the `blocks`, in use, are full and have these hashes. The first holder of a hash keeps it.

        `parent`: the hash of the block before the first; a listener is told of the new ones as one chain.
        """
        block_of, hash_of = self._block_of, self._hash_of
        new: list[int] = []
        for block, content in zip(blocks, contents, strict=True):
            if content not in block_of and block not in hash_of:
                block_of[content] = block
                hash_of[block] = content
                new.append(content)
        if new and self.listener is not None:
            first = contents.index(new[0])
            self.listener.stored(new, contents[first - 1] if first else parent)

    def release(self, blocks: Sequence[int]) -> None:
        """Gives back one reference on each block; the tail of a sequence is freed, and so evicted, before its head."""
        references, hash_of = self._references, self._hash_of
        for block in reversed(blocks):
            count = references.pop(block)
            if count > 1:
                references[block] = count - 1
            elif block in hash_of:
                self._free_cached[block] = None
            else:
                self._free_empty.append(block)

    def clear_cache(self) -> None:
        """Forgets every cached prefix; blocks in use stay in use."""
        self._free_empty.extend(self._free_cached)
        self._free_cached.clear()
        self._hash_of.clear()
        self._block_of.clear()
        if self.listener is not None:
            self.listener.cleared()

    def check(self) -> None:
        """Asserts the pool's invariants; for tests."""
        known_free = len(self._free_cached) + len(self._free_empty) + (self.blocks - self._next_fresh)
        assert known_free == self.free, (known_free, self.free)
        assert all(count > 0 for count in self._references.values())
        assert not self._references.keys() & self._free_cached.keys()
        assert {self._block_of[content] for content in self._block_of} == set(self._hash_of)
        assert self._free_cached.keys() <= self._hash_of.keys()

    def _evict(self, count: int, *, into: list[int]) -> None:
        removed: list[int] = []
        for _ in range(count):
            block, _ = self._free_cached.popitem(last=False)
            content = self._hash_of.pop(block)
            del self._block_of[content]
            removed.append(content)
            into.append(block)
        if removed and self.listener is not None:
            self.listener.removed(removed)
