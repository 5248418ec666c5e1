"""Figures say what they are over: percentiles over successes, with counts, failures and goodput beside them."""

import random
from pathlib import Path

from msgspec.structs import replace

from tradewind.measure.record import Failure, Record, read_records, write_records
from tradewind.measure.statistics import bootstrap_interval, percentile
from tradewind.measure.summary import leak, lost_with_cell, retried_from, shares, summarise


def served(
    at_s: float, ttft_s: float, *, cell: str = "a", lag_s: float = 0.0, prompt: int = 100, tokens: int = 11
) -> Record:
    return Record(
        request_id=f"r-{at_s}",
        intended_s=at_s,
        sent_s=at_s + lag_s,
        headers_s=at_s + lag_s,
        content_s=at_s + ttft_s,
        end_s=at_s + ttft_s + 1.0,
        status=200,
        prompt_tokens=prompt,
        usage_completion_tokens=tokens,
        cell=cell,
    )


def failed(at_s: float, failure: Failure, *, status: int = 0, prompt: int = 100) -> Record:
    return Record(
        request_id=f"f-{at_s}", intended_s=at_s, sent_s=at_s, end_s=at_s, status=status, failure=failure,
        prompt_tokens=prompt,
    )  # fmt: skip


def test_percentiles() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([float(value) for value in range(101)], 0.95) == 95.0


def test_fc_66_failures_never_enter_latency_and_always_the_counts() -> None:
    records = [served(0, 0.1), served(1, 0.3), failed(2, Failure.RESET), failed(3, Failure.STATUS, status=500)]
    records += [failed(4, Failure.HEADERS_ONLY), failed(5, Failure.BYTES_DELIVERED)]
    summary = summarise(records, slo_ttft_s=0.2, for_s=10)
    assert (summary.requests, summary.succeeded, summary.success_ratio) == (6, 2, 2 / 6)
    assert summary.failures == {"reset": 1, "status_500": 1, "headers_only": 1, "bytes_delivered": 1}
    assert (summary.headers_only, summary.bytes_delivered) == (1, 1)
    assert summary.ttft_s.count == 2
    assert (summary.good, summary.goodput_per_s) == (1, 0.1)


def test_fc_66_ttft_counts_from_the_intended_sending_and_the_actual_one_stands_beside_it() -> None:
    late = served(0, 15.2, lag_s=15.0)
    summary = summarise([late], slo_ttft_s=1, for_s=1)
    assert summary.ttft_s.p50 == 15.2
    assert abs((summary.ttft_sent_s.p50 or 0) - 0.2) < 1e-9
    assert summary.send_lag_s.p99 == 15.0


def test_empty_run_has_no_ratio() -> None:
    summary = summarise([], slo_ttft_s=1, for_s=0)
    assert (summary.requests, summary.success_ratio, summary.ttft_s.p95, summary.goodput_per_s) == (0, None, None, 0)


def test_itl_and_e2e() -> None:
    record = served(0, 0.5, tokens=11)
    assert record.itl_s == 0.1
    assert record.e2e_s == 1.5
    assert served(0, 0.5, tokens=1).itl_s is None


def test_shares_leave_out_unknown_cells() -> None:
    records = [served(0, 0.1), served(1, 0.1), served(2, 0.1, cell="b"), failed(3, Failure.RESET)]
    assert shares(records) == {"a": 2 / 3, "b": 1 / 3}
    assert shares([]) == {}


def test_leak_is_over_long_prompts_after_the_first_ones() -> None:
    records = [failed(0, Failure.STATUS, status=400, prompt=2_000), served(1, 0.1, prompt=2_000)]
    records += [failed(2, Failure.STATUS, status=400, prompt=100), failed(3, Failure.STATUS, status=400, prompt=3_000)]
    assert leak(records, longer_than=1_024).ratio == 2 / 3
    assert leak(records, longer_than=1_024, skip_first=1).ratio == 1 / 2
    assert leak([], longer_than=1_024).ratio is None


def test_what_a_dying_cell_takes_with_it_is_told_apart_by_the_first_token() -> None:
    def ended(sent_s: float, end_s: float, *, cell: str = "a", **changes: object) -> Record:
        changes = {"end_s": end_s, "cell": cell, **changes}
        return replace(failed(sent_s, Failure.HEADERS_ONLY), **changes)

    waited = ended(1.0, 2.1)
    cut = ended(1.1, 2.1, content_s=1.2)
    tried_again = ended(1.2, 3.0, cell="b", attempted=("a", "b"))
    cut_elsewhere = ended(1.3, 3.0, cell="b", content_s=2.5, attempted=("a", "b"))
    late = ended(2.1, 2.1)
    rest = [ended(0.1, 0.2), ended(1.4, 2.1, cell="b"), served(1.5, 2.0)]
    records = [waited, cut, tried_again, cut_elsewhere, late, *rest]
    assert lost_with_cell(records, "a", 2.0) == ([waited, tried_again], [cut])
    assert lost_with_cell(records, "a", 2.0, grace_s=0.2)[0] == [waited, tried_again, late]
    assert retried_from(records, "a") == [tried_again, cut_elsewhere]


def test_reroute_is_known_only_for_what_was_served() -> None:
    record = served(0, 0.1)
    assert record.reroute_s is None
    assert failed(0, Failure.RESET).reroute_s is None


def test_bootstrap_interval_holds_the_statistic_and_is_seeded() -> None:
    values = [random.Random(1).gauss(10, 1) for _ in range(200)]
    values = [value + index / 100 for index, value in enumerate(values)]

    def median(drawn: object) -> float | None:
        return percentile(drawn, 0.5)  # type: ignore[arg-type]

    low, high = bootstrap_interval(values, median, random.Random(1)) or (0, 0)
    assert low <= (percentile(values, 0.5) or 0) <= high
    assert bootstrap_interval(values, median, random.Random(1)) == (low, high)
    assert bootstrap_interval([1.0], median, random.Random(1)) is None


def test_records_survive_the_file(tmp_path: Path) -> None:
    records = [served(0, 0.1), failed(1, Failure.REFUSED)]
    write_records(tmp_path / "run" / "records.ndjson", records)
    assert list(read_records(tmp_path / "run" / "records.ndjson")) == records
