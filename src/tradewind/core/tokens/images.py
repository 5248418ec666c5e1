"""Tokens of an image without decoding it: its size from the file's first bytes, tokens by the model family's rule.

Rules: Qwen2-VL and Qwen2.5-VL merge 28 x 28 pixels into a token, Qwen3-VL 32 x 32, both between 4 and 16,384; InternVL
has 256 a tile of 448 x 448, at most 12 tiles and a thumbnail; LLaVA 576; Gemma 3 256; Pixtral 16 x 16 and one per row.
"""

from collections.abc import Callable
from math import ceil, sqrt

UNKNOWN_SIDE = 1_024  # of an image whose size is not known, such as a remote one: about a megapixel
MAX_SIDE = 1 << 16
Size = tuple[int, int]

_PNG, _GIF, _JPEG = b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a"), b"\xff\xd8"
_JPEG_SIZES = frozenset({*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0)})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_JPEG_SEGMENTS = 256


def image_size(head: bytes) -> Size | None:
    """(width, height) from the first bytes of a PNG, JPEG, GIF or WebP; None where they do not tell."""
    if head.startswith(_PNG):
        size = _big(head, 16, 4), _big(head, 20, 4)
    elif head.startswith(_GIF):
        size = _little(head, 6, 2), _little(head, 8, 2)
    elif head.startswith(_JPEG):
        size = _jpeg_size(head)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        size = _webp_size(head)
    else:
        return None
    return size if 0 < size[0] <= MAX_SIDE and 0 < size[1] <= MAX_SIDE else None


def image_tokens(model: str, size: Size | None) -> int:
    """Tokens of one image for this model; an unknown size counts as a square megapixel."""
    width, height = size or (UNKNOWN_SIDE, UNKNOWN_SIDE)
    name = model.lower()
    for families, rule in _RULES:
        if any(family in name for family in families):
            return rule(width, height)
    return _merged(width, height, side=28)


def _merged(width: int, height: int, *, side: int) -> int:
    """Both sides rounded up to whole patches."""
    return min(16_384, max(4, ceil(width / side) * ceil(height / side)))


def _intern(width: int, height: int) -> int:
    """The grid of at most 12 tiles whose shape is nearest to the image's, and a thumbnail when it is more than one."""
    grids = [(across, down) for across in range(1, 13) for down in range(1, 13) if across * down <= 12]
    ratio, area = width / height, width * height
    across, down = min(grids, key=lambda grid: (abs(ratio - grid[0] / grid[1]), grid[0] * grid[1]))
    scale = max(1, min(int(sqrt(area / 2 / (448 * 448 * across * down))) + 1, int(sqrt(12 / (across * down)))))
    tiles = across * down * scale * scale
    return 256 * (tiles + 1 if tiles > 1 else 1)


def _pixtral(width: int, height: int) -> int:
    shrink = max(1.0, width / 1_024, height / 1_024)
    columns, rows = ceil(width / shrink / 16), ceil(height / shrink / 16)
    return (columns + 1) * rows


_RULES: tuple[tuple[tuple[str, ...], Callable[[int, int], int]], ...] = (
    (("qwen3-vl", "qwen3vl", "qwen3.5", "qwen3-omni"), lambda width, height: _merged(width, height, side=32)),
    (("internvl", "intern-s1"), _intern),
    (("pixtral", "mistral-small-3", "mistral-medium-3"), _pixtral),
    (("llava",), lambda _width, _height: 576),
    (("gemma-3", "gemma3", "medgemma"), lambda _width, _height: 256),
)


def _big(head: bytes, at: int, width: int) -> int:
    return int.from_bytes(head[at : at + width], "big")


def _little(head: bytes, at: int, width: int) -> int:
    return int.from_bytes(head[at : at + width], "little")


def _jpeg_size(head: bytes) -> Size:
    at = 2
    for _ in range(_JPEG_SEGMENTS):
        if at + 9 > len(head) or head[at] != 0xFF:
            break
        marker = head[at + 1]
        if marker in _JPEG_SIZES:
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        else:
            at += 2 + max(2, _big(head, at + 2, 2))
    return 0, 0


def _webp_size(head: bytes) -> Size:
    form = head[12:16]
    if form == b"VP8X":
        return 1 + _little(head, 24, 3), 1 + _little(head, 27, 3)
    if form == b"VP8L":
        bits = _little(head, 21, 4)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if form == b"VP8 ":
        return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
    return 0, 0
