"""Small arithmetic that keeps NaN, infinity and None out of everything above it."""

import math
from collections.abc import Iterable


def known(value: float | None) -> float | None:
    """`value` when it is a finite number, else None."""
    return value if value is not None and math.isfinite(value) else None


def ratio(value: float | None, *, slack: float = 0.05) -> float | None:
    """A ratio clipped to 0..1; None when unknown or further outside than `slack` (a percentage, a sentinel)."""
    if value is None or not -slack <= value <= 1.0 + slack:
        return None
    return min(1.0, max(0.0, value))


def clip(value: float, low: float, high: float) -> float:
    """`value` within low..high."""
    return low if value < low else high if value > high else value


def median(values: Iterable[float]) -> float | None:
    """The middle value, the mean of the two middle ones, or None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def ewma(old: float | None, new: float, *, dt_s: float, half_life_s: float) -> float:
    """Exponentially weighted mean with time-true decay; the first value is taken as it is."""
    if old is None:
        return new
    return new + (old - new) * math.exp2(-max(0.0, dt_s) / half_life_s)
