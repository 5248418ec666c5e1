"""The difference between two arms after what was known before the choice is taken out: less noise, no bias.

Known as CUPED, or analysis of covariance: slopes are fitted within the arms, so that an effect of the arm is not taken
for one of the covariates.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

_SINGULAR = 1e-9  # of the product of variances: covariates that say the same, or nothing


class Measured(NamedTuple):
    """One request: what it came to, and two things known before its choice."""

    value: float
    first: float
    second: float


class Difference(NamedTuple):
    """Child minus parent."""

    change: float
    error: float  # standard error

    @property
    def z(self) -> float:
        """In standard errors; 0 if there is no spread to measure by."""
        return self.change / self.error if self.error > 0.0 else 0.0


def adjusted_difference(parent: Sequence[Measured], child: Sequence[Measured]) -> Difference:
    """Of the means. Each arm has two requests at least."""
    means = _mean(parent), _mean(child)
    centred = tuple(_centred(arm, mean) for arm, mean in zip((parent, child), means, strict=True))
    slopes = _slopes([each for arm in centred for each in arm])
    gap = Measured(*(after - before for before, after in zip(*means, strict=True)))
    change = gap.value - slopes[0] * gap.first - slopes[1] * gap.second
    return Difference(change, sqrt(sum(_squared_error(arm, slopes) for arm in centred)))


def _mean(arm: Sequence[Measured]) -> Measured:
    count = len(arm)
    return Measured(*(sum(column) / count for column in zip(*arm, strict=True)))


def _centred(arm: Sequence[Measured], mean: Measured) -> list[Measured]:
    return [Measured(each[0] - mean[0], each[1] - mean[1], each[2] - mean[2]) for each in arm]


def _slopes(centred: Sequence[Measured]) -> tuple[float, float]:
    """Least squares; a covariate without spread has none."""
    s11 = sum(each.first * each.first for each in centred)
    s22 = sum(each.second * each.second for each in centred)
    s12 = sum(each.first * each.second for each in centred)
    s1y = sum(each.first * each.value for each in centred)
    s2y = sum(each.second * each.value for each in centred)
    determinant = s11 * s22 - s12 * s12
    if determinant > _SINGULAR * s11 * s22:
        return (s22 * s1y - s12 * s2y) / determinant, (s11 * s2y - s12 * s1y) / determinant
    if s11 > 0.0:
        return s1y / s11, 0.0
    return 0.0, s2y / s22 if s22 > 0.0 else 0.0


def _squared_error(centred: Sequence[Measured], slopes: tuple[float, float]) -> float:
    rest = sum((each.value - slopes[0] * each.first - slopes[1] * each.second) ** 2 for each in centred)
    return rest / (len(centred) - 1) / len(centred)
