"""Which cell served a request, after how many attempts: the gateway's request log, joined to the client's records."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tradewind.measure.record import Record


class RequestTruth(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a gateway's request line that the lab needs; the rest is skipped."""

    id: str
    cell: str | None = None
    status: int = 0
    flags: str = ""
    attempts: int = 1
    attempted: tuple[str, ...] = ()
    attempt_s: float | None = None  # request start to the start of the last attempt


def read_request_log(path: Path) -> dict[str, RequestTruth]:
    """By request id; both files of a rotated log. A missing file is an empty one, a half-written line is skipped."""
    known: dict[str, RequestTruth] = {}
    for part in (path.with_suffix(path.suffix + ".1"), path):
        known.update((line.id, line) for line in _lines(part))
    return known


def _lines(path: Path) -> Iterator[RequestTruth]:
    decoder = msgspec.json.Decoder(RequestTruth)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines():
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError:
            continue


def join_truth(record: Record, truth: RequestTruth | None) -> Record:
    """The record with what the gateway knows of it."""
    if truth is None:
        return record
    served_s = None if truth.attempt_s is None or record.sent_s is None else record.sent_s + truth.attempt_s
    return replace(record, cell=truth.cell, attempts=truth.attempts, attempted=truth.attempted, attempt_s=served_s)
