"""HTTP/2 frames as bytes, right or wrong, and the frames in bytes."""

import hpack
from hyperframe.frame import Frame, RstStreamFrame

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 0x1, 0x4, 0x8


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame, whatever it means."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(
        SETTINGS, 0, 0, b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items())
    )


def reset(stream: int, code: int) -> bytes:
    return RstStreamFrame(stream, error_code=code).serialize()


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def block(*headers: tuple[str, str]) -> bytes:
    """Headers that use no entry of another block."""
    return hpack.Encoder().encode(headers)


def heard(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Whole frames as (type, flags, stream, payload)."""
    at, found = 0, []
    while at < len(data):
        read, length = Frame.parse_frame_header(memoryview(data)[at : at + HEADER_BYTES])
        at += HEADER_BYTES + length
        found.append((data[at - length - 6], data[at - length - 5], read.stream_id, data[at - length : at]))
    return found
