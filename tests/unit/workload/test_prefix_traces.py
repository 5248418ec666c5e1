"""Traces with prefix blocks: the Mooncake format both ways, and what the generators promise."""

import gzip
import json
from pathlib import Path
from statistics import fmean, median

import pytest

from tradewind.workload.art import art_trace
from tradewind.workload.classes import CLASSES, baseline_mixed, hot_prefix
from tradewind.workload.errors import TraceError
from tradewind.workload.files import read_trace, write_trace
from tradewind.workload.mooncake import (
    Trace,
    TracedRequest,
    block_hashes,
    coarser,
    mooncake_lines,
    parse_mooncake,
    reuse,
)
from tradewind.workload.named import make_trace
from tradewind.workload.sessions import CHAT, MULTITURN, sessions
from tradewind.workload.streams import stream


def test_art_like_is_like_its_window() -> None:
    trace = art_trace(stream(7, "art"))
    lengths = sorted(request.prompt_tokens for request in trace.requests)
    assert len(lengths) == pytest.approx(7_195, rel=0.05)
    assert fmean(lengths) == pytest.approx(6_900, rel=0.08)
    assert median(lengths) == pytest.approx(5_600, rel=0.12)
    assert lengths[int(0.95 * len(lengths))] == pytest.approx(19_900, rel=0.10)
    share = reuse(trace)
    assert share.anywhere == pytest.approx(0.788, abs=0.02)
    assert 0.001 < share.anywhere - share.within_session < 0.01


def test_time_scale_stretches_gaps_and_nothing_else() -> None:
    once, twice = (art_trace(stream(1, "art"), for_s=60.0, time_scale=scale) for scale in (1.0, 2.0))
    assert [request.prompt_tokens for request in once.requests] == [request.prompt_tokens for request in twice.requests]
    assert [2 * request.at_s for request in once.requests] == pytest.approx(
        [request.at_s for request in twice.requests]
    )


def test_equal_ids_mean_equal_prefixes() -> None:
    traces = [
        art_trace(stream(2, "t"), for_s=200.0),
        hot_prefix(stream(2, "t"), rate_per_s=10, for_s=30),
        sessions(stream(2, "t"), CHAT, rate_per_s=4, for_s=60),
    ]
    for trace in traces:
        before: dict[int, tuple[int, ...]] = {}
        for request in trace.requests:
            assert len(request.block_ids) <= request.prompt_tokens // trace.block_tokens
            for depth, block in enumerate(request.block_ids):
                assert before.setdefault(block, request.block_ids[:depth]) == request.block_ids[:depth]


def test_multiturn_grows_by_2048_up_to_16k() -> None:
    trace = sessions(stream(3, "m"), MULTITURN, rate_per_s=8, for_s=60)
    assert {request.prompt_tokens for request in trace.requests} == {2_048 * turn for turn in range(1, 9)}
    assert len(trace.requests) == pytest.approx(480, rel=0.25)


def test_hot_prefix_share_and_plain_class() -> None:
    hot = hot_prefix(stream(4, "h"), rate_per_s=50, for_s=60)
    assert sum(request.kind == "hot" for request in hot.requests) / len(hot.requests) == pytest.approx(0.4, abs=0.04)
    plain = baseline_mixed(stream(4, "b"), rate_per_s=50, for_s=60)
    assert reuse(plain).anywhere == 0.0
    assert fmean(request.prompt_tokens for request in plain.requests) == pytest.approx(512, rel=0.05)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
@pytest.mark.parametrize("workload", ["art", "multiturn", "rag_multidoc"])
def test_mooncake_round_trip(tmp_path: Path, name: str, workload: str) -> None:
    trace = coarser(make_trace(workload, seed=5, rate_per_s=4.0, for_s=60.0))
    write_trace(tmp_path / name, trace)
    read = read_trace(tmp_path / name)
    begin_s = trace.requests[0].at_s
    for before, after in zip(trace.requests, read.requests, strict=True):
        assert after.at_s == pytest.approx(before.at_s - begin_s, abs=1.1e-3)
        assert (after.prompt_tokens, after.output_tokens) == (before.prompt_tokens, before.output_tokens)
        assert after.block_ids[: len(before.block_ids)] == before.block_ids
        assert after.session == before.session
    assert reuse(read) == reuse(trace)


@pytest.mark.parametrize("workload", ["art", *CLASSES])
def test_a_written_trace_is_consistent_as_replaying_tools_want_it(workload: str) -> None:
    """One id for each started block of 512, whole milliseconds, and no id that stands for two sizes or two prefixes."""
    sizes: dict[int, int] = {}
    before: dict[int, tuple[int, ...]] = {}
    for line in mooncake_lines(coarser(make_trace(workload, seed=1, rate_per_s=5.0, for_s=30.0))):
        row = json.loads(line)
        ids = row["hash_ids"]
        assert len(ids) == -(-row["input_length"] // 512)
        assert row["timestamp"] == int(row["timestamp"]) >= 0
        for depth, block in enumerate(ids):
            size = min(512, row["input_length"] - 512 * depth)
            assert sizes.setdefault(block, size) == size
            assert before.setdefault(block, tuple(ids[:depth])) == tuple(ids[:depth])


def test_coarser_blocks_share_what_finer_ones_share_in_whole_blocks() -> None:
    fine = make_trace("long_context", seed=3, rate_per_s=5.0, for_s=60.0)
    assert reuse(coarser(fine)).anywhere == pytest.approx(reuse(fine).anywhere, abs=0.03)


GOOD = b'{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [4, 5]}'


def test_a_good_row_has_ids_for_full_blocks_only() -> None:
    assert next(parse_mooncake([GOOD])).block_ids == (4,)
    assert next(parse_mooncake([b'{"timestamp": 0, "input_length": 600, "output_length": 3}'])).block_ids == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"timestamp": 0}', "input_length"),
        (b"{broken", "not a Mooncake row"),
        (b"", "not a Mooncake row"),
        (b'{"timestamp": -1, "input_length": 6, "output_length": 3, "hash_ids": [1]}', "from 0 up"),
        (b'{"timestamp": 0, "input_length": -6, "output_length": 3, "hash_ids": [1]}', "from 0 up"),
        (b'{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2, 3]}', "another size"),
        (b'{"timestamp": "x", "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}', "timestamp"),
        (b'\xff\xfe{"timestamp": 0}', "not a Mooncake row"),
    ],
)
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(GOOD + b"\n" + line + b"\n")
    with pytest.raises(TraceError, match=rf"mine.jsonl, line 2: .*{why}"):
        read_trace(path)


def test_blocks_of_another_size_are_read_as_such(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'{"timestamp": 7, "input_length": 600, "output_length": 3, "hash_ids": [1, 2, 3]}')
    trace = read_trace(path, block_tokens=256)
    assert trace.block_tokens == 256
    assert trace.requests[0].block_ids == (1, 2)
    assert trace.requests[0].at_s == 0.0


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("empty.jsonl", b"", "no requests"),
        ("head.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        ("trace.json", b"{}", "write NAME.jsonl"),
        ("half.jsonl.gz", gzip.compress(GOOD * 400)[:40], "not a whole gzip"),
        ("none.jsonl.gz", b"plain text", "not a whole gzip"),
        ("minus.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,-4,1\n", "line 2: -4"),
        ("bytes.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n\xff\xff,4,1\n", "line 2"),
    ],
)
def test_a_file_that_is_no_trace_says_why(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError, match=rf"{name}.*{why}"):
        read_trace(tmp_path / name)


def test_rows_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [f'{{"timestamp": {at}, "input_length": {at}, "output_length": 3}}' for at in (900, 100, 500)]
    path.write_text("\n".join(rows))
    assert [request.at_s for request in read_trace(path).requests] == pytest.approx([0.0, 0.4, 0.8])


def test_block_hashes_are_stable_and_spread_and_equal_blocks_stay_equal() -> None:
    first, second = (
        TracedRequest(at_s=at_s, prompt_tokens=512 * len(ids), output_tokens=1, block_ids=ids)
        for at_s, ids in ((0.0, (0, 1, 2)), (1.0, (0, 1, *range(10, 10_000))))
    )
    none = TracedRequest(at_s=2.0, prompt_tokens=10, output_tokens=1)
    hashes = list(block_hashes(Trace(requests=(first, second, none))))
    assert [len(of_one) for of_one in hashes] == [3, 9_992, 0]
    assert hashes[0][0] == 0xE220A8397B1DCDAF  # splitmix64's first output from seed 0
    assert hashes[0][:2] == hashes[1][:2]
    assert len({*hashes[0], *hashes[1]}) == 9_993
    assert not list(block_hashes(Trace(requests=())))
