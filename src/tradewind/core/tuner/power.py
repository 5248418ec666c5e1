"""How many requests an answer needs, before anybody waits for it; and what a number of requests can show.

The error of a mean of logarithms is sd / sqrt(n), that of the 95 % quantile 2.11 sd / sqrt(n) for a lognormal: 1.69 /
sqrt(n) for the sd of 0.8 that first tokens have in the tuner study. So the quantile needs 4.5 times the requests.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import NamedTuple

from tradewind.core.tuner.answer import LEVEL, time_of
from tradewind.core.tuner.compare import quantile
from tradewind.core.tuner.student import student_quantile
from tradewind.model.tuning import Sample

BLOCK, DISCARD = 600, 100  # requests of one block, and those of it right after the switch, which do not count
PAIR = 2 * BLOCK
LEAST, MOST = 8_000, 200_000  # requests of a check
LEAST_SAMPLES = 200  # for a spread that was seen
STRETCHES, LEAST_STRETCH = 8, 100  # for the waves of load in it: how many, and requests of one
ENOUGH_SAMPLES = 10 * (BLOCK - DISCARD)  # for stretches as long as what counts of a block
POWER_Z = NormalDist().inv_cdf(0.80)
RATIO = 0.95
_NEAR = 0.025  # to both sides of the quantile, for the slope there


class Spread(NamedTuple):
    """Relative standard error of one figure over one request; over n of them it is sqrt(n) times less."""

    p95_ttft: float
    log_ttft: float
    mean_e2e: float


STUDY = Spread(p95_ttft=1.69, log_ttft=0.8, mean_e2e=0.8)  # lognormal, sd 0.8


def spread_of(samples: Sequence[Sample]) -> Spread | None:
    """As it was in these requests, in the order of their end; None if too few say when they began to answer and ended.

    Load comes in waves, and neighbouring stretches may differ by more than their requests do: the larger counts.
    """
    known_both = [pair for sample in samples if (pair := _times(sample)) is not None]
    if len(known_both) < LEAST_SAMPLES:
        return None
    ttfts_s, e2es_s = ([pair[side] for pair in known_both] for side in (0, 1))
    slope = log(quantile(ttfts_s, RATIO + _NEAR) / quantile(ttfts_s, RATIO - _NEAR)) / (2.0 * _NEAR)
    return Spread(
        p95_ttft=max(sqrt(RATIO * (1.0 - RATIO)) * slope, _waves(ttfts_s, lambda part: log(quantile(part, RATIO)))),
        log_ttft=max(
            pstdev([log(value) for value in ttfts_s]),
            _waves(ttfts_s, lambda part: fmean([log(value) for value in part])),
        ),
        mean_e2e=max(pstdev(e2es_s) / fmean(e2es_s), _waves(e2es_s, lambda part: log(fmean(part)))),
    )


def _times(sample: Sample) -> tuple[float, float] | None:
    """TTFT and E2E, if both are known."""
    ttft_s, e2e_s = time_of(sample.ttft_s), time_of(sample.e2e_s)
    return None if ttft_s is None or e2e_s is None else (ttft_s, e2e_s)


def _waves(values: Sequence[float], log_of: Callable[[Sequence[float]], float]) -> float:
    """What chance and load make of two neighbouring stretches, as long as a block if there are enough requests."""
    length = min(BLOCK - DISCARD, len(values) // STRETCHES)
    if length < LEAST_STRETCH:
        return 0.0
    figures = [log_of(values[at : at + length]) for at in range(0, len(values) - length + 1, length)]
    squares = [(after - before) ** 2 for before, after in pairwise(figures)]
    return sqrt(0.5 * fmean(squares) * length)


def requests_needed(effect: float, *, error: float = STUDY.p95_ttft) -> int:
    """That tell a relative change in four of five checks, with those that blocks discard; LEAST at least.

    `error`: one field of a Spread. May be more than MOST. Raises ValueError for a change that is none.
    """
    if not 0.0 < effect < 1.0:
        raise ValueError(f"the change must be above 0 and below 1 (0.05 = 5 %), not {effect:g}")
    low = high = whole_pairs(LEAST) // PAIR
    while smallest_change(PAIR * high, error=error) > effect:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if smallest_change(PAIR * middle, error=error) <= effect else (middle + 1, high)
    return PAIR * high


def smallest_change(requests: int, *, error: float = STUDY.p95_ttft) -> float:
    """The relative change that so many requests tell in four of five checks: two pairs of blocks or more."""
    pairs = requests // PAIR
    far = student_quantile(LEVEL, pairs - 1) + POWER_Z
    return far * error * sqrt(2.0 / (pairs * (BLOCK - DISCARD)))


def whole_pairs(requests: int) -> int:
    """Rounded up to pairs of blocks."""
    return PAIR * ceil(requests / PAIR)
