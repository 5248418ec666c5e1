"""Chained hashes of a prompt's blocks: equal hashes at position k mean equal text up to and with block k."""

import xxhash

BYTES_PER_TOKEN = 4  # the emulated tokenizer: a token is four bytes of UTF-8


def tokens_in(text_bytes: int) -> int:
    """Tokens of a text of so many bytes."""
    return -(-text_bytes // BYTES_PER_TOKEN)


def block_hashes(text: bytes, *, block_size_tokens: int, salt: int = 0) -> tuple[int, ...]:
    """Returns one 64-bit hash per full block of `text`, each chained on the one before it."""
    size = block_size_tokens * BYTES_PER_TOKEN
    digest = xxhash.xxh3_64_intdigest
    chained = salt
    hashes: list[int] = []
    for start in range(0, len(text) - size + 1, size):
        chained = digest(text[start : start + size], chained)
        hashes.append(chained)
    return tuple(hashes)
