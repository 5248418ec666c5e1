"""What of a prompt's text decides how many tokens it has: counts by class of byte, taken without a loop in Python.

The text is read as JSON spells it, where a line break is a backslash and a letter. A long text is sampled in evenly
spaced windows; the cost does not grow with its length.
"""

from typing import NamedTuple

FEATURES = ("letters", "spaces", "double_spaces", "digits", "escapes", "marks", "wide", "other", "messages", "prompts")
SAMPLE_BYTES = 2_048
WINDOW_BYTES = 256

_LETTERS = bytes(range(ord("a"), ord("z") + 1)) + bytes(range(ord("A"), ord("Z") + 1))
_DIGITS = b"0123456789"
_ASCII = bytes(range(128))
# "Wide" are three-byte sequences from U+3000 on: CJK, kana, Hangul, full-width forms. What is left of the non-ASCII
# bytes belongs to other scripts, to typographic marks and to emoji.
_NOT_WIDE_LEADS = bytes(byte for byte in range(128, 256) if not 0xE3 <= byte <= 0xEF)


class PromptShape(NamedTuple):
    """`counts` follows FEATURES; `fixed_tokens` are known without an estimate (images by rule, token ids exactly)."""

    counts: tuple[float, ...]
    fixed_tokens: float = 0.0
    exact: bool = False  # nothing is estimated


def exact_shape(tokens: int) -> PromptShape:
    """A prompt of token ids."""
    return PromptShape((0.0,) * len(FEATURES), float(tokens), exact=True)


def measure(text: bytes, *, messages: int, fixed_tokens: float = 0.0) -> PromptShape:
    """The shape of JSON text (any bytes will do) that came as this many messages."""
    sample, scale = _sample(text)
    if b"\\u" in sample and sample.isascii():  # a client that escapes all beyond ASCII
        sample = sample.decode("raw_unicode_escape", "ignore").encode("utf-8", "surrogatepass")
    rest = sample.translate(None, _LETTERS)
    letters = len(sample) - len(rest)
    spaceless = rest.translate(None, b" ")
    spaces = len(rest) - len(spaceless)
    doubles = sample.count(b"  ") if spaces else 0
    digitless = spaceless.translate(None, _DIGITS)
    digits = len(spaceless) - len(digitless)
    escapes = digitless.count(b"\\")
    marks = len(digitless) - escapes
    wide = other = 0
    if not digitless.isascii():
        beyond = digitless.translate(None, _ASCII)
        wide = len(beyond.translate(None, _NOT_WIDE_LEADS))
        other = max(0, len(beyond) - 3 * wide)
        marks -= len(beyond)
    counts = (letters, spaces, doubles, digits, escapes, marks, wide, other)
    return PromptShape((*[count * scale for count in counts], float(messages), 1.0), fixed_tokens)


def _sample(text: bytes) -> tuple[bytes, float]:
    """(what to look at, how many bytes each of it stands for)."""
    size = len(text)
    if size <= SAMPLE_BYTES:
        return text, 1.0
    windows = SAMPLE_BYTES // WINDOW_BYTES
    step = (size - WINDOW_BYTES) // (windows - 1)
    return b"".join([text[n * step : n * step + WINDOW_BYTES] for n in range(windows)]), size / SAMPLE_BYTES
