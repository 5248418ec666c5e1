"""Counters that reset, worker pages that flip, histograms with odd buckets."""

from dataclasses import replace

import pytest

from tradewind.core.windows import (
    EngineWindow,
    Quantile,
    counter_delta,
    histogram_delta,
    quantile,
    tidy_histogram,
    ttft_quantile,
)
from tradewind.model.telemetry import EngineReading, Histogram

NAN, INF = float("nan"), float("inf")


def histogram(bounds: tuple[float, ...], *counts: float) -> Histogram:
    return Histogram(bounds=bounds, counts=counts)


@pytest.mark.parametrize(
    ("old", "new", "growth"),
    [
        (1.0, 4.0, 3.0),
        (4.0, 4.0, 0.0),
        (1000.0, 3.0, 3.0),  # a reset: the new value is the growth
        (None, 4.0, None),
        (4.0, None, None),
        (NAN, 4.0, None),
        (4.0, INF, None),
        (4.0, -1.0, None),
    ],
)
def test_fc_35_a_counter_never_grows_by_less_than_nothing(
    old: float | None, new: float | None, growth: float | None
) -> None:
    assert counter_delta(old, new) == growth


def test_fc_35_first_scrape_and_no_samples_are_unknown() -> None:
    full = histogram((0.1, 1.0), 1, 5, 6)
    assert histogram_delta(None, full) is None
    assert histogram_delta(full, full) is None
    assert quantile(histogram_delta(full, full), 0.95) is None


def test_fc_35_a_restart_counts_from_nothing() -> None:
    growth = histogram_delta(histogram((0.1, 1.0), 400, 900, 1000), histogram((0.1, 1.0), 0, 3, 3))
    assert growth == histogram((0.1, 1.0), 0, 3, 3)


def test_fc_35_some_buckets_fall_while_the_count_rises() -> None:
    growth = histogram_delta(histogram((0.1, 1.0), 5, 9, 10), histogram((0.1, 1.0), 2, 12, 14))
    assert growth is not None
    assert growth.counts == (0.0, 3.0, 4.0)


def test_fc_35_mass_beyond_the_last_bound_gives_that_bound_and_says_at_least() -> None:
    growth = histogram_delta(histogram((0.1, 1.0), 0, 0, 0), histogram((0.1, 1.0), 0, 0, 8))
    assert quantile(growth, 0.95) == Quantile(1.0, at_least=True)


@pytest.mark.parametrize(
    ("odd", "tidy"),
    [
        (histogram((1.0, 0.1), 5, 2, 6), histogram((0.1, 1.0), 2, 5, 6)),  # shuffled
        (histogram((0.1, 1.0), 2, 5), histogram((0.1, 1.0), 2, 5, 5)),  # no +Inf
        (histogram((0.1, 1.0, 2.0), 5, 3, 7, 7), histogram((0.1, 1.0, 2.0), 5, 5, 7, 7)),  # not monotone
        (histogram((0.1, INF), 2, 5, 5), histogram((0.1,), 2, 5)),  # +Inf among the finite
    ],
)
def test_fc_35_odd_buckets_are_put_right(odd: Histogram, tidy: Histogram) -> None:
    assert tidy_histogram(odd) == tidy


@pytest.mark.parametrize("counts", [(), (NAN, 1.0, 2.0), (1.0,), (1.0, 2.0, 3.0, 4.0), (-1.0, 2.0, 3.0)])
def test_fc_35_what_cannot_be_read_is_unknown(counts: tuple[float, ...]) -> None:
    assert tidy_histogram(Histogram(bounds=(0.1, 1.0), counts=counts)) is None


def test_fc_35_different_bucket_sets_meet_on_common_bounds() -> None:
    growth = histogram_delta(histogram((0.1, 0.5, 1.0), 1, 2, 3, 3), histogram((0.1, 1.0, 5.0), 4, 9, 11, 12))
    assert growth == histogram((0.1, 1.0), 3, 6, 9)
    assert histogram_delta(histogram((0.2,), 1, 1), histogram((0.3,), 2, 2)) is None


def test_the_quick_quantile_agrees_with_the_careful_one() -> None:
    old, new = histogram((0.1, 0.5, 1.0), 3, 4, 9, 10), histogram((0.1, 0.5, 1.0), 5, 14, 20, 22)
    assert ttft_quantile(old, new, 0.95) == quantile(histogram_delta(old, new), 0.95)


def test_a_quantile_interpolates_in_its_bucket() -> None:
    assert quantile(histogram((1.0, 2.0), 0, 10, 10), 0.5) == Quantile(1.5)


def page(tokens: float, *, start_time_s: float | None = None) -> EngineReading:
    return EngineReading(
        generation_tokens_total=tokens,
        steps_total=tokens,
        ttft_s=histogram((1.0,), tokens, tokens),
        start_time_s=start_time_s,
    )


def growths(values: list[float], starts: list[float | None]) -> list[float]:
    window = EngineWindow(span_s=10.0)
    found = []
    for second, (value, start_time_s) in enumerate(zip(values, starts, strict=True)):
        window.add(float(second), page(value, start_time_s=start_time_s))
        span = window.since(1.0)
        if span is not None:
            growth = counter_delta(span[1].generation_tokens_total, span[2].generation_tokens_total)
            assert growth is not None
            found.append(growth)
    return found


def test_fc_35_pages_of_two_workers_do_not_fabricate_a_rate() -> None:
    flip_flop = [100.0, 40.0, 101.0, 41.0, 102.0, 42.0]
    assert max(growths(flip_flop, [None] * 6)) <= 2.0
    assert max(growths(flip_flop, [7.0] * 6)) <= 2.0


def test_fc_35_a_restart_is_believed_once_it_is_sure() -> None:
    assert growths([100.0, 101.0, 5.0, 9.0], [None] * 4)[-1] == 4.0
    assert growths([100.0, 101.0, 5.0], [1.0, 1.0, 2.0])[-1] == 5.0  # the start time tells at once


def test_a_page_that_arrives_twice_counts_once() -> None:
    window = EngineWindow(span_s=10.0)
    assert window.add(1.0, page(5))
    assert not window.add(1.05, page(5))
    assert window.add(2.0, page(5))  # an idle engine says the same again
    assert len(window.readings) == 2


def test_an_engine_window_is_bounded() -> None:
    window = EngineWindow(span_s=10.0)
    for second in range(1000):
        window.add(second * 0.25, replace(page(second)))
    assert len(window.readings) <= 64
