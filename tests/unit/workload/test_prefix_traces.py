"""Traces with prefix blocks: the Mooncake format both ways, and what the generators promise."""

import gzip
from pathlib import Path
from statistics import fmean, median

import pytest

from tradewind.workload.art import art_trace
from tradewind.workload.classes import baseline_mixed, hot_prefix
from tradewind.workload.mooncake import mixed_hash, mooncake_lines, parse_mooncake, read_mooncake, reuse
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


def test_mooncake_round_trip(tmp_path: Path) -> None:
    trace = art_trace(stream(5, "art"), for_s=100.0)
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(mooncake_lines(trace))))
    read = read_mooncake(path)
    assert [request.block_ids for request in read.requests] == [request.block_ids for request in trace.requests]
    assert [request.prompt_tokens for request in read.requests] == [request.prompt_tokens for request in trace.requests]
    assert [request.at_s for request in read.requests] == pytest.approx(
        [request.at_s for request in trace.requests], abs=1e-3
    )


def test_a_bad_line_is_named() -> None:
    good = b'{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [4, 5]}'
    assert next(parse_mooncake([good])).block_ids == (4,)
    with pytest.raises(ValueError, match="line 2"):
        list(parse_mooncake([good, b'{"timestamp": 0}']))


def test_mixed_hash_is_stable_and_spreads() -> None:
    assert mixed_hash(0) == 0xE220A8397B1DCDAF  # splitmix64's first output from seed 0
    assert len({mixed_hash(number) for number in range(10_000)}) == 10_000
