"""A gateway's request log read as a trace."""

from pathlib import Path

import msgspec
import pytest

from tradewind.gateway.requestlog import RequestLine
from tradewind.workload.errors import TraceError
from tradewind.workload.files import read_trace
from tradewind.workload.mooncake import Trace


def logged(folder: Path, *lines: RequestLine) -> Trace:
    path = folder / "requests.ndjson"
    path.write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return read_trace(path)


def line(end_s: float, *, cached: int = 0, prompt: int = 1_000, cell: str = "a", status: int = 200) -> RequestLine:
    return RequestLine(
        at_unix_s=1_700_000_000.0 + end_s,
        id="r",
        cell=cell,
        status=status,
        duration_s=2.0,
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=64,
    )


def test_requests_come_when_they_began_with_the_lengths_they_had(tmp_path: Path) -> None:
    long = msgspec.structs.replace(line(9.0), duration_s=8.5, completion_tokens=300)
    trace = logged(tmp_path, line(4.0), line(5.0), long)
    assert [request.at_s for request in trace.requests] == pytest.approx([0.0, 1.5, 2.5])
    assert [request.output_tokens for request in trace.requests] == [300, 64, 64]
    assert {request.prompt_tokens for request in trace.requests} == {1_000}
    assert trace.block_tokens == 128


def test_what_was_cached_is_shared_with_the_newest_long_enough_on_the_cell(tmp_path: Path) -> None:
    first, short, follow, elsewhere = logged(
        tmp_path, line(2.0), line(3.0, prompt=256), line(4.0, prompt=1_300, cached=700), line(5.0, cell="b", cached=256)
    ).requests
    assert len(first.block_ids) == 1_000 // 128
    assert follow.block_ids[:5] == first.block_ids[:5]  # 700 tokens are five full blocks
    assert not set(follow.block_ids[5:]) & set(first.block_ids)
    assert not set(short.block_ids) & set(first.block_ids)
    assert not set(elsewhere.block_ids) & (set(first.block_ids) | set(short.block_ids) | set(follow.block_ids))


def test_what_failed_or_has_no_counts_is_left_out(tmp_path: Path) -> None:
    bare = msgspec.structs.replace(line(3.0), completion_tokens=None)
    assert len(logged(tmp_path, line(2.0), bare, line(4.0, status=503)).requests) == 1
    with pytest.raises(TraceError, match="those count that were served and have their tokens"):
        logged(tmp_path, bare)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.ndjson"
    path.write_bytes(msgspec.json.Encoder().encode_lines([line(2.0)]) + b'{"at_unix_s": "noon"}\n')
    with pytest.raises(TraceError, match=r"requests\.ndjson, line 2: not a line of a request log"):
        read_trace(path)
    path.write_bytes(msgspec.json.Encoder().encode_lines([msgspec.structs.replace(line(2.0), duration_s=-1.0)]))
    with pytest.raises(TraceError, match=r"line 1: a negative time or number of tokens"):
        read_trace(path)
