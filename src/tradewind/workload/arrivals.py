"""Arrival times in seconds from the start of a load, ascending."""

import random
from collections.abc import Iterator


def constant(*, rate_per_s: float, for_s: float) -> Iterator[float]:
    """One arrival each 1 / rate_per_s seconds, the first at 0."""
    assert rate_per_s > 0, "a load needs a rate"
    for index in range(int(rate_per_s * for_s)):
        yield index / rate_per_s


def poisson(rng: random.Random, *, rate_per_s: float, for_s: float) -> Iterator[float]:
    """Independent arrivals at a mean rate: exponential gaps."""
    assert rate_per_s > 0, "a load needs a rate"
    at_s = rng.expovariate(rate_per_s)
    while at_s < for_s:
        yield at_s
        at_s += rng.expovariate(rate_per_s)
