"""Traces in files: told apart by their names, read to requests from the start of the load on, and written."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from tradewind.workload import requestlog
from tradewind.workload.azure import as_trace, parse_rows
from tradewind.workload.errors import TraceError
from tradewind.workload.mooncake import BLOCK_TOKENS, Trace, coarser, mooncake_lines, parse_mooncake

FORMS = (
    "NAME.jsonl for a Mooncake trace, NAME.ndjson for that or a request log, NAME.csv for an Azure trace, .gz or not"
)


def read_trace(path: Path, *, block_tokens: int = BLOCK_TOKENS) -> Trace:
    """The requests of a file in order of arrival, the first at 0 s. Raises OSError; TraceError with file and line.

    `block_tokens` is what one of the file's hash ids stands for.
    """
    trace = _read(path, block_tokens)
    if not trace.requests:
        raise TraceError(
            f"{path}: no requests in it; of a request log, those count that were served and have their tokens"
        )
    in_order = sorted(trace.requests, key=lambda request: request.at_s)
    begin_s = in_order[0].at_s
    requests = tuple(replace(request, at_s=request.at_s - begin_s) for request in in_order)
    return Trace(requests=requests, block_tokens=trace.block_tokens)


def write_trace(path: Path, trace: Trace, *, in_seconds: bool = False) -> None:
    """Write the trace in Mooncake's format, packed if the name ends in .gz. Raises OSError.

    `in_seconds` is what guidellm wants of timestamps; the format has milliseconds.
    """
    data = b"".join(mooncake_lines(coarser(trace), in_seconds=in_seconds))
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a time inside, equal traces are equal files.
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _read(path: Path, block_tokens: int) -> Trace:
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "csv":
        with _opened(path) as raw:
            return as_trace(parse_rows((line.decode("ascii", "replace") for line in raw), name=str(path)))
    if kind in {"jsonl", "ndjson"}:
        with _opened(path) as raw:
            first = raw.readline()
            lines = chain((first,) if first else (), raw)
            if requestlog.MARK in first:
                logged = tuple(requestlog.parse_request_log(lines, name=str(path)))
                return Trace(requests=logged, block_tokens=requestlog.BLOCK_TOKENS)
            requests = tuple(parse_mooncake(lines, name=str(path), block_tokens=block_tokens))
            return Trace(requests=requests, block_tokens=block_tokens)
    raise TraceError(f"{path}: the name does not say what it is; write {FORMS}")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        try:
            yield cast("BinaryIO", gzip.GzipFile(fileobj=raw))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TraceError(f"{path}: not a whole gzip file: {error}") from error
