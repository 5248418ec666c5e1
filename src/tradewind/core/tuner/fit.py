"""What first tokens say of the weights: a robust regression on the terms that the picker believed."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from tradewind.core.numbers import median
from tradewind.core.tuner.settings import FitSettings

_SIZE = 4  # 1, prefill, rtt, queue
_PIVOT = 1e-7  # of its column: what is left when the others explain it, if they do


class Point(NamedTuple):
    """One request: seconds, all finite and not negative."""

    ttft_s: float
    rtt_s: float
    queue_s: float
    prefill_s: float


class Ratio(NamedTuple):
    """A slope over the prefill's, with its standard error: what the weight should be."""

    value: float
    error: float


class Fit(NamedTuple):
    """None where the samples say nothing, e.g. because all round trips are equal."""

    requests: int
    prefill_t: float  # of the prefill's slope
    prefill: float
    rtt: Ratio | None
    queue: Ratio | None


def fit(points: Sequence[Point], settings: FitSettings) -> Fit | None:
    """None when there are too few points, or the prefill's slope cannot be told from 0."""
    if len(points) < settings.least:
        return None
    rows = [_scaled(point, settings) for point in points]
    trust = [1.0] * len(rows)
    solved = None
    for _ in range(settings.passes):
        solved = _least_squares(rows, trust)
        if solved is None:
            return None
        residuals = _residuals(rows, solved.slopes)
        trust = _trust(residuals, settings.huber)
    if solved is None:
        return None
    variance = settings.covariance * _variance(residuals, trust, solved.rank)
    return _ratios(len(points), solved, variance, settings)


class _Solved(NamedTuple):
    slopes: list[float]
    inverse: list[list[float]]  # of the normal matrix
    known: list[bool]

    @property
    def rank(self) -> int:
        return sum(self.known)


_Row = tuple[float, float, float, float, float]  # the features and the answer, by the sample's weight


def _scaled(point: Point, settings: FitSettings) -> _Row:
    ttft_s, rtt_s, queue_s, prefill_s = point
    weight = 1.0 / (settings.base_s + rtt_s + settings.queue_part * queue_s + settings.prefill_part * prefill_s)
    return weight, weight * prefill_s, weight * rtt_s, weight * queue_s, weight * ttft_s


def _least_squares(rows: Sequence[_Row], trust: Sequence[float]) -> _Solved | None:
    """Normal equations by sweeps: a column that those before it explain is left out, and its slope unknown."""
    matrix = _normal(rows, trust)
    known = [False] * _SIZE
    size = [matrix[column][column] for column in range(_SIZE)]
    for column in range(_SIZE):
        if size[column] > 0.0 and matrix[column][column] > _PIVOT * size[column]:
            _sweep(matrix, column)
            known[column] = True
    if not known[0] or not known[1]:
        return None
    slopes = [matrix[column][_SIZE] if known[column] else 0.0 for column in range(_SIZE)]
    return _Solved(slopes, [[-value for value in row[:_SIZE]] for row in matrix[:_SIZE]], known)


def _normal(rows: Sequence[_Row], trust: Sequence[float]) -> list[list[float]]:
    """The cross products; written out, since this is where the time goes."""
    aa = ab = ac = ad = ay = bb = bc = bd = by = cc = cd = cy = dd = dy = 0.0
    for (a, b, c, d, y), share in zip(rows, trust, strict=True):
        sa, sb, sc, sd = share * a, share * b, share * c, share * d
        aa += sa * a
        ab += sa * b
        ac += sa * c
        ad += sa * d
        ay += sa * y
        bb += sb * b
        bc += sb * c
        bd += sb * d
        by += sb * y
        cc += sc * c
        cd += sc * d
        cy += sc * y
        dd += sd * d
        dy += sd * y
    return [[aa, ab, ac, ad, ay], [ab, bb, bc, bd, by], [ac, bc, cc, cd, cy], [ad, bd, cd, dd, dy]]


def _sweep(matrix: list[list[float]], column: int) -> None:
    """Gauss-Jordan in place on the symmetric part; afterwards the swept block holds minus its inverse."""
    pivot = matrix[column][column]
    old = [list(row) for row in matrix]
    for i in range(_SIZE):
        for j in range(_SIZE + 1):
            if i != column and j != column:
                matrix[i][j] = old[i][j] - old[i][column] * old[column][j] / pivot
    for i in range(_SIZE):
        if i != column:
            matrix[i][column] = old[i][column] / pivot
    for j in range(_SIZE + 1):
        if j != column:
            matrix[column][j] = old[column][j] / pivot
    matrix[column][column] = -1.0 / pivot


def _residuals(rows: Sequence[_Row], slopes: Sequence[float]) -> list[float]:
    base, prefill, rtt, queue = slopes
    return [y - base * a - prefill * b - rtt * c - queue * d for a, b, c, d, y in rows]


def _trust(residuals: Sequence[float], huber: float) -> list[float]:
    sizes = [abs(residual) for residual in residuals]
    limit = huber * (median(sizes) or 0.0)
    if limit <= 0.0:
        return [1.0] * len(sizes)
    return [1.0 if size <= limit else limit / size for size in sizes]


def _variance(residuals: Sequence[float], trust: Sequence[float], rank: int) -> float:
    total = sum(share * residual * residual for share, residual in zip(trust, residuals, strict=True))
    return total / max(1, len(residuals) - rank)


def _ratios(count: int, solved: _Solved, variance: float, settings: FitSettings) -> Fit | None:
    slope, inverse = solved.slopes[1], solved.inverse
    spread = variance * inverse[1][1]
    error = sqrt(max(0.0, spread))
    least = 1e-9 * abs(slope)  # a fit without residuals is not infinitely sure
    t = slope / max(error, least) if slope > 0.0 else 0.0
    if t < settings.least_t:
        return None

    def ratio(column: int) -> Ratio | None:
        if not solved.known[column]:
            return None
        value = solved.slopes[column] / slope
        own, both = variance * inverse[column][column], variance * inverse[column][1]
        return Ratio(value, sqrt(max(0.0, own - 2.0 * value * both + value * value * spread)) / slope)

    return Fit(count, t, slope, ratio(2), ratio(3))
