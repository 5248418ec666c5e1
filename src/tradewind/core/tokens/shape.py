"""What of a prompt's text decides how many tokens it has: counts by class of byte, taken without a loop in Python.

The text is read as JSON spells it, where a line break is a backslash and a letter. A long text is sampled in evenly
spaced windows; the cost does not grow with its length.
"""

from typing import NamedTuple

FEATURES = (
    "letters",  # bytes, as all that is not said otherwise
    "capitals",  # of the letters
    "words",  # runs of letters
    "spaces",
    "double_spaces",  # pairs: indentation, columns
    "digits",
    "escapes",  # backslashes
    "marks",  # the rest of ASCII
    "mark_runs",  # of marks and escapes
    "double_marks",  # pairs of the same mark: rulers
    "wide",  # characters
    "other",
    "messages",
    "prompts",  # 1
)
SAMPLE_BYTES = 1_536
WINDOW_BYTES = 96
MANY_ESCAPES_RATIO = 0.08  # backslashes; more come from clients that write everything beyond ASCII as \u4F60

_CAPITALS, _SMALL = bytes(range(ord("A"), ord("Z") + 1)), bytes(range(ord("a"), ord("z") + 1))
_ESCAPES = FEATURES.index("escapes")
_DIGITS = b"0123456789"
_IS_MARK = bytes(
    ord("a") if chr(byte).isascii() and 33 <= byte < 127 and not chr(byte).isalnum() else 32 for byte in range(256)
)
_RULERS = (b"--", b"==", b"**")
_ASCII = bytes(range(128))
# "Wide" are three-byte sequences from U+3000 on: CJK, kana, Hangul, full-width forms. What is left of the non-ASCII
# bytes belongs to other scripts, to typographic marks and to emoji.
_NOT_WIDE_LEADS = bytes(byte for byte in range(128, 256) if not 0xE3 <= byte <= 0xEF)


class PromptShape(NamedTuple):
    """`counts` follows FEATURES; `fixed_tokens` are known without an estimate (images by rule, token ids exactly)."""

    counts: tuple[float, ...]
    text_bytes: int = 0  # what the counts were taken from
    fixed_tokens: float = 0.0
    exact: bool = False  # nothing is estimated


def exact_shape(tokens: int) -> PromptShape:
    """A prompt of token ids."""
    return PromptShape((), fixed_tokens=float(tokens), exact=True)


def measure(text: bytes, *, messages: int, fixed_tokens: float = 0.0) -> PromptShape:
    """The shape of JSON text (any bytes will do) that came as this many messages."""
    sample, scale = _sample(text)
    counts = _counts(sample)
    if counts[_ESCAPES] > MANY_ESCAPES_RATIO * len(sample) and b"\\u" in sample and sample.isascii():
        counts = _counts(sample.decode("raw_unicode_escape", "ignore").encode("utf-8", "surrogatepass"))
    return PromptShape((*[count * scale for count in counts], float(messages), 1.0), len(text), fixed_tokens)


def _counts(sample: bytes) -> tuple[int, ...]:
    size = len(sample)
    words = size - len(sample.title().translate(None, _CAPITALS))  # title() makes the first of each run a capital
    unsmall = sample.translate(None, _SMALL)
    unlettered = unsmall.translate(None, _CAPITALS)
    unspaced = unlettered.translate(None, b" ")
    undigited = unspaced.translate(None, _DIGITS)
    escapes = undigited.count(b"\\")
    wide, other = (0, 0) if undigited.isascii() else _beyond_ascii(undigited)
    return (
        size - len(unlettered),
        len(unsmall) - len(unlettered),
        words,
        len(unlettered) - len(unspaced),
        sample.count(b"  "),
        len(unspaced) - len(undigited),
        escapes,
        len(undigited) - escapes - 3 * wide - other,
        len(sample.translate(_IS_MARK).title().translate(None, b" a")),
        sum([undigited.count(ruler) for ruler in _RULERS]),
        wide,
        other,
    )


def _beyond_ascii(text: bytes) -> tuple[int, int]:
    """(wide characters, bytes of others)."""
    beyond = text.translate(None, _ASCII)
    wide = min(len(beyond.translate(None, _NOT_WIDE_LEADS)), len(beyond) // 3)
    return wide, len(beyond) - 3 * wide


def _sample(text: bytes) -> tuple[bytes, float]:
    """(what to look at, how many bytes each of it stands for)."""
    size = len(text)
    if size <= SAMPLE_BYTES:
        return text, 1.0
    windows = SAMPLE_BYTES // WINDOW_BYTES
    step = (size - WINDOW_BYTES) // (windows - 1)
    return b"".join([text[n * step : n * step + WINDOW_BYTES] for n in range(windows)]), size / SAMPLE_BYTES
