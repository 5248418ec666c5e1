"""The highest constant rate that a policy sustains: p95 TTFT within the SLO and nearly all served, by bisection."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tradewind.measure.record import Failure
from tradewind.measure.statistics import percentile
from tradewind.sim.grid import SimGrid
from tradewind.sim.journal import Entry
from tradewind.sim.policy import MakePolicy
from tradewind.sim.scenario import Scenario

LEAST_SERVED = 0.95
QUANTILE = 0.95
LOOK_S = 1.0  # virtual time between two looks at whether a step is decided
GROWTH = 1.2  # of the rate, until one is found that holds and one that does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """A step of the search: warm-up, what counts, and load after it so that what counts is served under load."""

    warm_up_s: float = 30.0
    counted_s: float = 45.0
    cool_down_s: float = 15.0

    @property
    def for_s(self) -> float:
        """All of it."""
        return self.warm_up_s + self.counted_s + self.cool_down_s


def sustains(scenario: Scenario, make: MakePolicy, *, seed: int, slo_s: float, phases: Phases) -> bool:
    """Whether the scenario's load holds the SLO. A request is served with its first token.

    The run ends as soon as this is decided: too many late ones, or a first token for each that counts.
    """
    grid = SimGrid(scenario, make, seed=seed)
    from_s, until_s = phases.warm_up_s, phases.warm_up_s + phases.counted_s
    counted = [entry for entry in grid.journal.entries if from_s <= entry.traced.at_s < until_s]
    assert counted, "a step of the search needs requests that count"
    look_s = from_s
    while grid.step():
        if grid.loop.now_s < look_s:
            continue
        look_s = grid.loop.now_s + LOOK_S
        failures = sum(map(failed, counted))
        late_ones = sum(late(entry, grid.loop.now_s, slo_s) for entry in counted)
        if max(failures, late_ones) > (1.0 - LEAST_SERVED) * len(counted) + 1:
            return False
        if look_s > until_s and all(entry.first_s is not None or failed(entry) for entry in counted):
            break
    ttfts_s = [entry.first_s - entry.traced.at_s for entry in counted if entry.first_s is not None]
    served = len(ttfts_s) / len(counted)
    tail_s = percentile(ttfts_s, QUANTILE)
    return served >= LEAST_SERVED and tail_s is not None and tail_s <= slo_s


def highest_rate(
    holds: Callable[[float], bool], *, near: float, precision: float = 0.03, most: float = 1_000.0
) -> float:
    """The highest rate that holds, within `precision`, searched from `near`; 0 if not even a hundredth of it does."""
    low, high = 0.0, math.inf
    rate = near
    while low == 0.0 or high == math.inf:
        if holds(rate):
            low, rate = rate, rate * GROWTH
        else:
            high, rate = rate, rate / GROWTH
        if rate < near / 100:
            return 0.0
        if rate > most:
            return low
    while high > low * (1.0 + precision):
        rate = math.sqrt(low * high)
        if holds(rate):
            low = rate
        else:
            high = rate
    return low


def failed(entry: Entry) -> bool:
    """It was refused, or ended without its answer."""
    return entry.refused or entry.failure is not Failure.NONE


def late(entry: Entry, now_s: float, slo_s: float) -> bool:
    """Its first token came too late, or will."""
    return (now_s if entry.first_s is None else entry.first_s) - entry.traced.at_s > slo_s
