"""Processes of arrivals: their mean rate, and how bursty they are."""

import itertools
from collections import Counter
from statistics import fmean, pstdev, pvariance

import pytest

from tradewind.workload.arrivals import Arrivals, parse_arrivals
from tradewind.workload.streams import stream


def drawn(text: str, *, rate_per_s: float = 20.0, for_s: float = 2_000.0) -> list[float]:
    return list(parse_arrivals(text).times(stream(1, "a"), rate_per_s=rate_per_s, for_s=for_s))


def gap_cv(times: list[float]) -> float:
    gaps = [b - a for a, b in itertools.pairwise(times)]
    return pstdev(gaps) / fmean(gaps)


def dispersion(times: list[float], window_s: float, for_s: float = 2_000.0) -> float:
    counts = Counter(int(at_s / window_s) for at_s in times)
    values = [counts[window] for window in range(int(for_s / window_s))]
    return pvariance(values) / fmean(values)


@pytest.mark.parametrize("text", ["constant", "poisson", "gamma:0.5", "gamma:3", "modulated:0.5", "clients"])
def test_rate_order_and_end(text: str) -> None:
    times = drawn(text)
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 2_000
    assert len(times) == pytest.approx(40_000, rel=0.12)


@pytest.mark.parametrize(("text", "cv"), [("constant", 0.0), ("poisson", 1.0), ("gamma:0.5", 0.5), ("gamma:3", 3.0)])
def test_gaps_have_their_cv(text: str, cv: float) -> None:
    assert gap_cv(drawn(text)) == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_a_modulated_rate_bursts_over_seconds_not_over_gaps() -> None:
    times = drawn("modulated:0.5")
    assert gap_cv(times) < 1.7
    # Counts of a window of the period: Poisson's variance, and the rate's (cv * mean count) squared.
    assert dispersion(times, 10.0) == pytest.approx(1 + 0.5**2 * 200, rel=0.25)
    assert dispersion(drawn("poisson"), 10.0) == pytest.approx(1.0, rel=0.3)


def test_a_few_clients_make_most_of_the_load_in_bursts() -> None:
    assert dispersion(drawn("clients"), 1.0) > 4


@pytest.mark.parametrize(
    "text", ["", "poison", "gamma", "gamma:0", "gamma:x", "poisson:2", "modulated:-1", "clients:0"]
)
def test_what_is_no_process_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="gamma:CV"):
        parse_arrivals(text)


def test_the_same_seed_gives_the_same_times() -> None:
    arrivals = Arrivals(kind="clients", cv=2.0)
    once, again = (list(arrivals.times(stream(4, "c"), rate_per_s=5, for_s=60)) for _ in range(2))
    assert once == again
