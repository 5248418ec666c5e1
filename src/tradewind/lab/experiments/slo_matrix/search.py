"""The highest rate on a ladder that holds a service level, by bisection; a rate is simulated once for all levels."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tradewind.lab.simulated.collection import uncollected
from tradewind.lab.simulated.sustained import LEAST_SERVED, LOOK_S, QUANTILE, Phases, failed, late
from tradewind.measure.statistics import percentile
from tradewind.sim.grid import DRAIN_S, SimGrid
from tradewind.sim.policy import MakePolicy
from tradewind.sim.scenario import Scenario

BISECTIONS = 8  # per level; the ladder has so many rungs that as many decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rate, simulated. A step that was lost beyond doubt ended early and has no tail."""

    rate: float
    samples: int
    served: float  # of the samples; of a step that ended early: at most
    tail_s: float | None  # p95 of the first tokens
    gap_s: float | None  # the longest time between two first tokens
    requests: int  # begun in all

    def holds(self, slo_s: float) -> bool:
        """Whether this rate is sustained at the level."""
        return self.tail_s is not None and self.tail_s <= slo_s and self.served >= LEAST_SERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The end of one search."""

    best: Step | None  # of the highest rate that holds; None: not even the lowest rung does
    at_top: bool  # the highest rung holds: the true rate may be higher
    steps: tuple[Step, ...]  # in the order of the search


def simulate(scenario: Scenario, make: MakePolicy, *, rate: float, seed: int, slo_s: float, phases: Phases) -> Step:
    """One step; it ends when each sample has its first token, or when the level `slo_s` is lost beyond doubt."""
    with uncollected():
        return _simulate(scenario, make, rate=rate, seed=seed, slo_s=slo_s, phases=phases)


def _simulate(scenario: Scenario, make: MakePolicy, *, rate: float, seed: int, slo_s: float, phases: Phases) -> Step:
    grid = SimGrid(scenario, make, seed=seed)
    from_s, until_s = phases.warm_up_s, phases.warm_up_s + phases.counted_s
    counted = [entry for entry in grid.journal.entries if from_s <= entry.traced.at_s < until_s]
    assert counted, "a step of the search needs requests that count"
    lost_at = (1.0 - LEAST_SERVED) * len(counted) + 1
    look_s, end_s, open_ones, coming = from_s, scenario.for_s + DRAIN_S, counted[:0], deque(counted)
    failures = decided_late = late_ones = 0
    while look_s < end_s and (coming or open_ones) and max(failures, late_ones) <= lost_at:
        grid.loop.run(until_s=look_s)
        while coming and coming[0].traced.at_s <= look_s:
            open_ones.append(coming.popleft())
        decided = [entry for entry in open_ones if entry.first_s is not None or failed(entry)]
        open_ones = [entry for entry in open_ones if entry.first_s is None and not failed(entry)]
        failures += sum(map(failed, decided))
        decided_late += sum(late(entry, look_s, slo_s) for entry in decided)
        late_ones = decided_late + sum(late(entry, look_s, slo_s) for entry in open_ones)
        look_s += LOOK_S
    lost = max(failures, late_ones) > lost_at
    firsts_s = sorted(entry.first_s for entry in counted if entry.first_s is not None)
    ttfts_s = [entry.first_s - entry.traced.at_s for entry in counted if entry.first_s is not None]
    return Step(
        rate=rate,
        samples=len(counted),
        served=1.0 - failures / len(counted) if lost else len(ttfts_s) / len(counted),
        tail_s=None if lost else percentile(ttfts_s, QUANTILE),
        gap_s=None if lost else max((later - one for one, later in pairwise(firsts_s)), default=None),
        requests=sum(entry.traced.at_s <= grid.loop.now_s for entry in grid.journal.entries),
    )


def ladder(low: float, high: float, *, bisections: int = BISECTIONS) -> Sequence[float]:
    """Rates in equal ratios, so many that `bisections` halvings leave one."""
    rungs = 2**bisections - 1
    return [low * (high / low) ** (index / (rungs - 1)) for index in range(rungs)]


def highest(
    rates: Sequence[float], step: Callable[[float], Step], *, slo_s: float, known: Collection[Step] = ()
) -> Found:
    """Bisection over ascending rates, on the assumption that what holds at one rate holds at lower ones.

    `known`: steps simulated before, for another level; what they decide is not simulated again. It may grow meanwhile.
    """
    below, above = -1, len(rates)
    best: Step | None = None
    steps: list[Step] = []
    while above - below > 1:
        middle = (below + above) // 2
        steps.append(decided(known, rates[middle], slo_s=slo_s) or step(rates[middle]))
        if steps[-1].holds(slo_s):
            below, best = middle, steps[-1]
        else:
            above = middle
    return Found(best=best, at_top=below == len(rates) - 1, steps=tuple(steps))


def decided(known: Collection[Step], rate: float, *, slo_s: float) -> Step | None:
    """The step that tells how `rate` ends: one that holds at a higher rate or fails at a lower; None: none, or both."""
    holding = [one for one in known if one.rate >= rate and one.holds(slo_s)]
    failing = [one for one in known if one.rate <= rate and not one.holds(slo_s)]
    if bool(holding) == bool(failing):
        return None
    return max(holding, key=lambda one: one.rate) if holding else min(failing, key=lambda one: one.rate)
