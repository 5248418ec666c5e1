"""How many requests an answer needs, before anybody waits for it; and what a number of requests can show.

The error of a mean of logarithms is sd / sqrt(n), that of the 95 % quantile 2.11 sd / sqrt(n) for a lognormal: 1.69 /
sqrt(n) for the sd of 0.8 that first tokens have in the tuner study. So the quantile needs 4.5 times the requests.
"""

from collections.abc import Sequence
from math import ceil, log, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import NamedTuple

from tradewind.core.numbers import known
from tradewind.core.tuner.answer import LEVEL
from tradewind.core.tuner.compare import quantile
from tradewind.core.tuner.student import student_quantile
from tradewind.model.tuning import Sample

BLOCK, DISCARD = 600, 100  # requests of one block, and those of it right after the switch, which do not count
PAIR = 2 * BLOCK
LEAST, MOST = 8_000, 200_000  # requests of a check
LEAST_SAMPLES = 200  # for a spread that was seen
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
    """As it was in these requests; None if too few say when their first token came, and when they ended."""
    ttfts_s = [value for sample in samples if (value := known(sample.ttft_s)) is not None and value > 0.0]
    e2es_s = [value for sample in samples if (value := known(sample.e2e_s)) is not None and value > 0.0]
    if min(len(ttfts_s), len(e2es_s)) < LEAST_SAMPLES:
        return None
    slope = log(quantile(ttfts_s, RATIO + _NEAR) / quantile(ttfts_s, RATIO - _NEAR)) / (2.0 * _NEAR)
    return Spread(
        p95_ttft=sqrt(RATIO * (1.0 - RATIO)) * slope,
        log_ttft=pstdev([log(value) for value in ttfts_s]),
        mean_e2e=pstdev(e2es_s) / fmean(e2es_s),
    )


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
