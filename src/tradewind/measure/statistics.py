"""Percentiles and their uncertainty."""

import random
from collections.abc import Callable, Sequence

import numpy as np

RESAMPLES = 1_000


def percentile(values: Sequence[float], ratio: float) -> float | None:
    """The value below which `ratio` of the values lie (0.95 = P95), interpolated; None without values."""
    return float(np.quantile(np.asarray(values, dtype=float), ratio)) if values else None


def bootstrap_interval(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float | None],
    rng: random.Random,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> tuple[float, float] | None:
    """The percentile bootstrap interval of `statistic` at `level`; None below two values."""
    if len(values) < 2:
        return None
    drawn = (statistic(rng.choices(values, k=len(values))) for _ in range(resamples))
    results = [value for value in drawn if value is not None]
    if not results:
        return None
    low, high = np.quantile(np.asarray(results), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(values: Sequence[float], *, level: float = 0.95) -> tuple[float, float] | None:
    """The percentile bootstrap interval of the mean, always by the same resamples; None below two values."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(0).integers(0, len(values), size=(RESAMPLES, len(values)))
    means = np.asarray(values, dtype=float)[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
