"""Body messages without protobuf: they carry nearly all bytes, and each copy of a prompt of megabytes counts.

Field numbers are those of envoy.service.ext_proc.v3. What is not in the form that serialisers write is left to
protobuf.
"""

from typing import NamedTuple

_REQUEST_BODY, _RESPONSE_BODY = 0x22, 0x2A  # ProcessingRequest{request_body = 4, response_body = 5}
_BODY, _END = 0x0A, b"\x10\x01"  # HttpBody{body = 1, end_of_stream = 2}, and the same in StreamedBodyResponse
_MAX_LENGTH_BYTES = 5


class BodyMessage(NamedTuple):
    """A piece of a body, and what else its message holds."""

    of_request: bool
    body: bytes
    last: bool
    rest: bytes  # the other fields, serialised: mostly none


def read_body(message: bytes, *, at_most: int) -> BodyMessage | None:
    """A body message, with `at_most` bytes of its body; None = ask protobuf."""
    if not message or message[0] not in (_REQUEST_BODY, _RESPONSE_BODY):
        return None
    length, at = _varint(message, 1)
    end = at + length
    if length < 0 or end > len(message):
        return None
    size = 0
    if at < end and message[at] == _BODY:
        size, at = _varint(message, at + 1)
        if size < 0 or at + size > end:
            return None
    start, at = at, at + size
    if at < end and message[at:end] != _END:
        return None
    body = message[start : start + min(size, at_most)]
    return BodyMessage(message[0] == _REQUEST_BODY, body, at < end, message[end:])


def write_body(body: bytes, *, of_request: bool, last: bool) -> bytes:
    """ProcessingResponse{request_body or response_body{response{body_mutation{streamed_response}}}}."""
    tail = _END if last else b""
    inner = bytes([_BODY]) + _length(len(body)) if body else b""
    size = len(inner) + len(body) + len(tail)
    for tag in (0x1A, 0x1A, 0x0A, 0x1A if of_request else 0x22):
        prefix = bytes([tag]) + _length(size)
        inner = prefix + inner
        size += len(prefix)
    return b"".join((inner, body, tail))


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A length and where it ends; -1 where there is none."""
    value = 0
    for step in range(_MAX_LENGTH_BYTES):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            return value, at
    return -1, at


def _length(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
