"""Captures that are not true any more: what a replay must notice."""

from collections.abc import Iterator

import msgspec

from tradewind.core.pick.tape import Heard
from tradewind.model.decision import Decision

_PROBABILITY, _CELL = Decision._fields.index("probability"), Decision._fields.index("cell_id")


def tampered(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each way that applies to this capture: what was done, and the capture with it."""
    lines = data.splitlines()
    decisions = _places(lines, Heard.DECISION)
    if decisions:
        middle = decisions[len(decisions) // 2]
        yield "another cell", _with(lines, middle, _CELL, "somewhere-else")
        yield "another probability", _with(lines, middle, _PROBABILITY, 0.123456789)
        yield "one request twice", _joined([*lines[: middle + 1], *lines[middle - 1 :]])
    requests = _places(lines, Heard.PICK)
    if len(requests) > 1:
        first = requests[0]
        yield "a request left out", _joined([*lines[:first], *lines[first + 2 :]])


def _places(lines: list[bytes], kind: Heard) -> list[int]:
    begins = f'{{"kind":"{kind.value}",'.encode()
    return [place for place, line in enumerate(lines) if line.startswith(begins)]


def _with(lines: list[bytes], place: int, field: int, value: object) -> bytes:
    note = msgspec.json.decode(lines[place])
    note["value"][field] = value
    return _joined([*lines[:place], msgspec.json.encode(note), *lines[place + 1 :]])


def _joined(lines: list[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"
