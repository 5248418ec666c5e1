"""Compressed bodies: unpacked for routing only, the engine gets what the client sent.

gzip and deflate always; zstd where the package `zstandard` is installed (the extra `zstd`).
Nothing is unpacked beyond `MAX_BYTES`: a longer body counts as cut off there, and one that is mostly air up to there is
refused, however much follows.
"""

import importlib
import zlib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

MAX_BYTES = 4 << 20
ZSTD_STEP_BYTES = 256  # packed; four bytes can unpack to 128 KiB, so a step adds at most 8 MiB
BOMB_RATIO = 200  # unpacked to what was read for it; text reaches 5, the most repetitive JSON about 50


class Failure(Enum):
    """Why a body could not be unpacked."""

    UNSUPPORTED = "unsupported"
    BROKEN = "broken"
    BOMB = "bomb"


class Unpacked(NamedTuple):
    """The beginning of the body; `partial` when there is more, or the packed bytes ended early."""

    body: bytes
    partial: bool
    read_bytes: int  # of the packed ones, to come so far


Unpack = Callable[[bytes, int], Unpacked | Failure]


def unpack(body: bytes, coding: str, unpackers: Mapping[str, Unpack]) -> Unpacked | Failure:
    """The body behind one content coding."""
    unpacker = unpackers.get(coding.strip().lower())
    if unpacker is None:
        return Failure.UNSUPPORTED
    unpacked = unpacker(body, MAX_BYTES)
    if not isinstance(unpacked, Unpacked):
        return unpacked
    if len(unpacked.body) >= MAX_BYTES and BOMB_RATIO * unpacked.read_bytes < MAX_BYTES:
        return Failure.BOMB
    return unpacked


def available() -> dict[str, Unpack]:
    """Content codings that can be unpacked here."""
    found: dict[str, Unpack] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate}
    zstd = _zstd()
    if zstd is not None:
        found["zstd"] = zstd
    return found


def _gzip(body: bytes, most_bytes: int) -> Unpacked | Failure:
    return _inflate(body, most_bytes, window_bits=31)


def _deflate(body: bytes, most_bytes: int) -> Unpacked | Failure:
    """With the zlib header, as the standard says, or without, as some clients send it."""
    with_header = _inflate(body, most_bytes, window_bits=15)
    return _inflate(body, most_bytes, window_bits=-15) if with_header is Failure.BROKEN else with_header


def _inflate(body: bytes, most_bytes: int, *, window_bits: int) -> Unpacked | Failure:
    inflater = zlib.decompressobj(window_bits)
    try:
        unpacked = inflater.decompress(body, most_bytes)
    except zlib.error:
        return Failure.BROKEN
    return Unpacked(unpacked, partial=not inflater.eof, read_bytes=len(body) - len(inflater.unconsumed_tail))


def _zstd() -> Unpack | None:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError:
        return None

    def unpack_zstd(body: bytes, most_bytes: int) -> Unpacked | Failure:
        inflater = zstandard.ZstdDecompressor(max_window_size=most_bytes).decompressobj()
        pieces: list[bytes] = []
        length = start = 0
        try:
            while start < len(body) and length < most_bytes and not inflater.eof:
                pieces.append(inflater.decompress(body[start : start + ZSTD_STEP_BYTES]))
                length += len(pieces[-1])
                start += ZSTD_STEP_BYTES
        except zstandard.ZstdError:
            return Failure.BROKEN
        partial = not inflater.eof or length > most_bytes
        return Unpacked(b"".join(pieces)[:most_bytes], partial, min(start, len(body)))

    return unpack_zstd
