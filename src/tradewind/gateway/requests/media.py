"""Images, sounds and films in a request: what they are, and how many tokens they are likely to be."""

import binascii
import re

from msgspec import Raw

from tradewind.core.tokens.images import Size, image_size, image_tokens

IMAGE, AUDIO, VIDEO, FILE = "image", "audio", "video", "file"
MODALITIES = frozenset({IMAGE, AUDIO, VIDEO})
AUDIO_TOKENS_PER_S = 25.0  # Qwen2-Audio and its kin; others have 7 to 50
PLAIN_AUDIO_BYTES_PER_S = 32_000.0  # 16 kHz, 16 bit
PACKED_AUDIO_BYTES_PER_S = 8_000.0
UNKNOWN_AUDIO_TOKENS = 750  # half a minute
UNKNOWN_VIDEO_TOKENS = 4_096
FILE_TOKENS_PER_BYTE = 0.05  # documents are mostly layout and pictures
LARGE_BYTES = 4_096  # base64 below this is not worth a look

_DATA = re.compile(rb'base64,|"data"\s*:\s*"')
_FIRST_LOOK = 512  # base64 bytes; enough for every format but JPEG
_LONG_LOOK = 65_536


def holds_data(raw: Raw) -> bool:
    """Whether a structured field carries encoded media."""
    view = memoryview(raw)
    return len(view) > LARGE_BYTES and _DATA.search(view[:LARGE_BYTES]) is not None


def tokens_of(sort: str, raw: Raw, *, model: str) -> int:
    """Estimated tokens of one medium."""
    data = _data(raw)
    if sort == IMAGE:
        return image_tokens(model, _size(data) if data is not None else None)
    if sort == AUDIO:
        return _audio_tokens(raw, data)
    if sort == VIDEO:
        return UNKNOWN_VIDEO_TOKENS
    return max(1, int(len(memoryview(raw)) * FILE_TOKENS_PER_BYTE))


def _data(raw: Raw) -> memoryview | None:
    """The base64 text, up to its closing quote and what follows it; None for a medium that lies elsewhere."""
    view = memoryview(raw)
    found = _DATA.search(view[:LARGE_BYTES])
    return view[found.end() :] if found else None


def _size(data: memoryview) -> Size | None:
    size = image_size(_decoded(data[:_FIRST_LOOK]))
    return size if size is not None or len(data) <= _FIRST_LOOK else image_size(_decoded(data[:_LONG_LOOK]))


def _decoded(data: memoryview) -> bytes:
    """As much as is base64."""
    text = bytes(data).partition(b'"')[0].replace(b"\\/", b"/")
    try:
        return binascii.a2b_base64(text[: len(text) & ~3])
    except binascii.Error:
        return b""


def _audio_tokens(raw: Raw, data: memoryview | None) -> int:
    if data is None:
        return UNKNOWN_AUDIO_TOKENS
    plain = bytes(data[:4]) == b"UklG"  # "RIFF"
    seconds = len(data) * 0.75 / (PLAIN_AUDIO_BYTES_PER_S if plain else PACKED_AUDIO_BYTES_PER_S)
    return max(1, int(seconds * AUDIO_TOKENS_PER_S))
