"""p95 TTFT over a grid of fixed weights, and how far weights are from its best point."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean

from tradewind.model.tuning import Weights

AXIS = (0.1, 0.3, 1.0, 2.0, 4.0, 10.0)  # of either weight: the box that priors and tuners have here


class Surface:
    """Means over seeds, the same ones at every point."""

    def __init__(self, points: Mapping[Weights, Sequence[float]]) -> None:
        """Every pair of the weights that occur must be there."""
        self._points = points
        self._mean_s = {weights: fmean(values) for weights, values in points.items()}
        self._rtt = sorted({weights.rtt for weights in points})
        self._queue = sorted({weights.queue for weights in points})
        self.best = min(self._mean_s, key=lambda weights: self._mean_s[weights])

    @property
    def best_s(self) -> float:
        """At the best point."""
        return self._mean_s[self.best]

    @property
    def chosen_s(self) -> float | None:
        """Of the point that is best on all other seeds, mean over seeds: the best of many is lucky on its own ones."""
        seeds = range(len(next(iter(self._points.values()))))
        if len(seeds) < 2:
            return None

        def others_s(weights: Weights, seed: int) -> float:
            return sum(self._points[weights]) - self._points[weights][seed]

        best = [min(self._points, key=lambda weights: others_s(weights, seed)) for seed in seeds]
        return fmean(self._points[weights][seed] for seed, weights in zip(seeds, best, strict=True))

    def points(self) -> Sequence[tuple[Weights, float]]:
        """Every one with its mean, by weight."""
        return sorted(self._mean_s.items())

    def at(self, weights: Weights) -> float:
        """Seconds, between the points by the logarithms of all three; outside, as at the edge."""
        row, over_rtt = _place(self._rtt, weights.rtt)
        column, over_queue = _place(self._queue, weights.queue)
        total = 0.0
        for down, by_rtt in enumerate((1.0 - over_rtt, over_rtt)):
            for right, by_queue in enumerate((1.0 - over_queue, over_queue)):
                if by_rtt * by_queue:
                    point = Weights(self._rtt[row + down], self._queue[column + right])
                    total += by_rtt * by_queue * log(self._mean_s[point])
        return exp(total)

    def gap(self, weights: Weights) -> float:
        """How much longer than at the best point, as a part of it."""
        return self.at(weights) / self.best_s - 1.0


def _place(axis: Sequence[float], value: float) -> tuple[int, float]:
    """The interval of the axis, and how far into it."""
    place = min(max(0, bisect_right(axis, value) - 1), max(0, len(axis) - 2))
    if len(axis) == 1 or value <= axis[0]:
        return 0, 0.0
    low, high = axis[place], axis[place + 1]
    return place, min(1.0, log(value / low) / log(high / low))


def in_force(course: Sequence[tuple[float, float, float]], *, request: float) -> Weights:
    """The parent's weights at a request, of a course of (request from which on, RTT weight, queue weight)."""
    found = next(step for step in reversed(course) if step[0] <= request)
    return Weights(found[1], found[2])


def worst_gap(surface: Surface, course: Sequence[tuple[float, float, float]], *, after: float) -> float:
    """The largest gap of weights in force at this request or later."""
    weights = [in_force(course, request=after), *(Weights(step[1], step[2]) for step in course if step[0] > after)]
    return max(surface.gap(of) for of in weights)


def settled(surface: Surface, course: Sequence[tuple[float, float, float]], *, within: float) -> float | None:
    """The request from which on the gap stays within this; None if it does not at the end."""
    since: float | None = None
    for from_request, rtt, queue in course:
        inside = surface.gap(Weights(rtt, queue)) <= within
        since = (from_request if since is None else since) if inside else None
    return since
