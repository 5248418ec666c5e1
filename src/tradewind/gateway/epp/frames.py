"""HTTP/2 frames (RFC 9113): their numbers, and the few that a server writes."""

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
MIN_FRAME, MAX_FRAME = 16_384, 2**24 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

SET_TABLE_SIZE, SET_PUSH, SET_STREAMS, SET_WINDOW, SET_FRAME_SIZE, SET_HEADER_LIST = range(1, 7)

_HEADER = Struct(">HBBBL")  # length in two parts, type, flags, stream
_SETTING = Struct(">HL")
_WORD = Struct(">L")
_TWO_WORDS = Struct(">LL")


class Code(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


def read_header(buffer: bytes | bytearray, at: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream of the frame that begins at `at`; nine bytes must be there."""
    high, low, kind, flags, stream = _HEADER.unpack_from(buffer, at)
    return high << 8 | low, kind, flags, stream & MAX_WINDOW


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame; the payload must fit the peer's frame size."""
    length = len(payload)
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    """Our settings."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """The peer's settings in order; the length must be a multiple of six."""
    return list(_SETTING.iter_unpack(payload))


def reset(stream: int, code: Code) -> bytes:
    """End one stream."""
    return frame(RST_STREAM, 0, stream, _WORD.pack(code))


def goaway(last_stream: int, code: Code) -> bytes:
    """No new streams on this connection."""
    return frame(GOAWAY, 0, 0, _TWO_WORDS.pack(last_stream, code))


def window_update(stream: int, more: int) -> bytes:
    """Let the peer send so many bytes more."""
    return frame(WINDOW_UPDATE, 0, stream, _WORD.pack(more))


def read_word(payload: bytes) -> int:
    """A 31-bit number."""
    return int(_WORD.unpack_from(payload)[0]) & MAX_WINDOW
