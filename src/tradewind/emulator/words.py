"""The text that an emulated engine answers: words of four bytes, one per token, chosen by the prompt alone."""

_LETTERS = (
    "airandarkbaybowbrybuocabcaycogcupdaydewdipebbeeleyefanfinflyfoggapgibgingungybhithubhumiceinkjet"
    "jibjutkeykegkitlapleeloglowmapmasmenmidnetnoroakoaroffoldpadpaypenpinpotrayredribrigrowrunsagsea"
)
WORDS: tuple[bytes, ...] = tuple(f" {_LETTERS[start : start + 3]}".encode() for start in range(0, 192, 3))
WORD_BYTES = 4
SHORTEST_ANSWER_TOKENS = 32
LONGEST_ANSWER_TOKENS = 512

assert len(WORDS) == 64, len(WORDS)
assert all(len(word) == WORD_BYTES for word in WORDS)


def word(seed: int, index: int) -> bytes:
    """Token `index` of the answer to the prompt with hash `seed`."""
    return WORDS[(seed + index * (1 + (seed >> 6 & 31) * 2)) & 63]


def output_bytes(seed: int, tokens: int) -> bytes:
    """The first `tokens` tokens of an answer; it repeats after 64."""
    period = b"".join(word(seed, index) for index in range(64))
    return (period * (tokens // 64 + 1))[: tokens * WORD_BYTES]


def natural_length(seed: int) -> int:
    """How long the model answers when nobody limits it, in tokens."""
    return SHORTEST_ANSWER_TOKENS + seed % (LONGEST_ANSWER_TOKENS - SHORTEST_ANSWER_TOKENS)
