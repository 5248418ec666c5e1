"""Student's t: how far a mean of few values may be from the truth."""

from math import atan, cos, exp, lgamma, pi, sqrt

_STEPS = 400  # of Simpson's rule: exact to six digits where it is used
_FARTHEST = 1e4


def student_quantile(level: float, freedom: int) -> float:
    """The value that |t| stays below with this chance, e.g. 2.447 for 95 % and 6 degrees of freedom."""
    assert 0.0 < level < 1.0
    assert freedom >= 1
    low, high = 0.0, 1.0
    while _within(high, freedom) < level and high < _FARTHEST:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return 0.5 * (low + high)


def _within(value: float, freedom: int) -> float:
    """P(|t| <= value), with t = sqrt(freedom) * tan(u): smooth in u, so that few steps do."""
    from_zero = atan(value / sqrt(freedom))
    step = from_zero / _STEPS
    total = 0.0
    for index in range(_STEPS + 1):
        share = 1.0 if index in (0, _STEPS) else 4.0 if index % 2 else 2.0
        total += share * cos(index * step) ** (freedom - 1)
    scale = exp(lgamma(0.5 * (freedom + 1)) - lgamma(0.5 * freedom)) / sqrt(pi)
    return 2.0 * scale * total * step / 3.0
