"""The block pool: sharing, eviction order, counting."""

import pytest

from tradewind.engine.kv import BlockPool
from tradewind.engine.prefix import block_hashes, tokens_in


def pool_with(blocks: int) -> BlockPool:
    return BlockPool(blocks=blocks, block_size_tokens=16)


def fill(pool: BlockPool, hashes: list[int]) -> list[int]:
    taken = pool.allocate(len(hashes))
    assert taken is not None
    pool.publish(taken, hashes)
    return taken


def test_shared_blocks_count_once() -> None:
    pool = pool_with(10)
    first = fill(pool, [1, 2, 3])
    found = pool.match([1, 2, 3, 4], limit=9)
    pool.share(found)
    assert found == first
    assert pool.used_ratio == pytest.approx(0.3)
    pool.release(first)
    assert pool.used_ratio == pytest.approx(0.3)
    pool.release(found)
    assert pool.used_ratio == 0.0
    pool.check()


def test_a_match_stops_at_the_first_missing_block() -> None:
    pool = pool_with(10)
    fill(pool, [1, 2])
    assert len(pool.match([1, 9, 2], limit=9)) == 1
    assert pool.match([1, 2], limit=0) == []


def test_too_large_an_allocation_takes_nothing() -> None:
    pool = pool_with(4)
    assert pool.allocate(5) is None
    assert pool.free == 4


def test_the_least_recently_freed_prefix_is_evicted_first_and_its_tail_before_its_head() -> None:
    pool = pool_with(4)
    old = fill(pool, [1, 2])
    new = fill(pool, [3, 4])
    pool.release(old)
    pool.release(new)
    assert pool.allocate(1) is not None
    assert len(pool.match([1, 2], limit=9)) == 1
    assert len(pool.match([3, 4], limit=9)) == 2
    pool.check()


def test_used_again_a_prefix_becomes_young() -> None:
    pool = pool_with(4)
    pool.release(fill(pool, [1, 2]))
    pool.release(fill(pool, [3, 4]))
    again = pool.match([1, 2], limit=9)
    pool.share(again)
    pool.release(again)
    pool.allocate(2)
    assert len(pool.match([1, 2], limit=9)) == 2
    assert pool.match([3, 4], limit=9) == []


def test_clearing_the_cache_keeps_blocks_in_use() -> None:
    pool = pool_with(4)
    used = fill(pool, [1])
    pool.release(fill(pool, [2]))
    pool.clear_cache()
    assert pool.match([1], limit=9) == []
    assert pool.free == 3
    pool.release(used)
    pool.check()


def test_block_hashes_chain() -> None:
    size = 16
    text = bytes(range(256)) * 2
    hashes = block_hashes(text, block_size_tokens=size)
    assert len(hashes) == 512 // 64
    assert len(set(hashes)) == len(hashes)
    assert block_hashes(text[:200], block_size_tokens=size) == hashes[:3]
    changed = b"x" + text[1:]
    assert not set(block_hashes(changed, block_size_tokens=size)) & set(hashes)
    assert block_hashes(text, block_size_tokens=size, salt=7) != hashes


def test_a_token_is_four_bytes() -> None:
    assert [tokens_in(length) for length in (0, 1, 4, 5, 2048)] == [0, 1, 1, 2, 512]
