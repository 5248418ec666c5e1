"""The little of protobuf's wire format that lets a weight change reuse the bytes of everything else."""

from functools import lru_cache


@lru_cache(maxsize=4096)  # tags, and lengths that repeat from build to build
def varint(value: int) -> bytes:
    """Encode a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message_field(number: int, payload: bytes) -> bytes:
    """A length-delimited field: a sub-message, a string, or bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint_field(number: int, value: int) -> bytes:
    """An unsigned integer, bool or enum field."""
    return varint(number << 3) + varint(value)
