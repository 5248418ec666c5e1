"""Chained block hashes of a canonical prompt.

A block is 512 bytes, about 128 tokens of English: fine enough that a match falls short by some 60 tokens on average, a
few milliseconds of prefill; coarse enough that a cell of a million tokens takes about 8,000 entries in the index, and a
prompt of 64 KiB 128 hashes. The last, partial block is left out.
"""

from collections.abc import Sequence

import xxhash

BLOCK_BYTES = 512
MAX_BLOCKS = 16_384  # of one prompt: 8 MiB


def chain_seed(parts: Sequence[bytes], *, key: int) -> int:
    """The start of a chain: prompts whose parts differ share no block. Parts hold no byte 0xFF, as no UTF-8 does."""
    return xxhash.xxh3_64_intdigest(b"\xff".join(parts), key)


def chain(stream: bytes, seed: int) -> tuple[int, ...]:
    """One 64-bit hash per whole block, each over its block and all before it."""
    digest = xxhash.xxh3_64_intdigest
    size = BLOCK_BYTES
    end = min(len(stream) // size, MAX_BLOCKS) * size
    hashes = []
    for start in range(0, end, size):
        seed = digest(stream[start : start + size], seed)
        hashes.append(seed)
    return tuple(hashes)
