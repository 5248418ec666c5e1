"""Declared disturbances: when which cell gets how much slower. Published figures name the profile they ran under.

Profiles: simulation.md 3.6 and 5. `D` (transient slow-downs, each cell on its own) was chosen so that the published
gains of pressure weights appear; it is an assumption about impairment, not a measurement.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tradewind.engine.law import HEALTHY, SlowDown


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From `at_s` on, the cell at `cell` (its index) runs with `slow`."""

    at_s: float
    cell: int
    slow: SlowDown


def uniform(speed: float) -> SlowDown:
    """Every term of a step at `speed` (1 = healthy); ingest is the host's and stays."""
    factor = 1.0 / speed
    return SlowDown(w=factor, b=factor, c=factor, d=factor, e=factor, a0=factor)


Draw = Callable[
    [random.Random, Sequence[str], float], Iterator[Change]
]  # chance, site of each cell, horizon -> changes


def _clean(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    yield from ()


def _transient(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """0.4 x for 15 s, normal for 60 s, both exponential and independent per cell; begins in the steady state."""
    slow_s, normal_s, slowed = 15.0, 60.0, uniform(0.4)
    for cell in range(len(sites)):
        is_slow = rng.random() < slow_s / (slow_s + normal_s)
        at_s = 0.0
        while at_s < until_s:
            yield Change(at_s=at_s, cell=cell, slow=slowed if is_slow else HEALTHY)
            at_s += rng.expovariate(1 / (slow_s if is_slow else normal_s))
            is_slow = not is_slow


def _slow_site(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The first site at 0.55 x throughout."""
    for cell, site in enumerate(sites):
        if site == sites[0]:
            yield Change(at_s=0.0, cell=cell, slow=uniform(0.55))


def _one_slow(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The first cell at 0.5 x from 60 s to 120 s."""
    yield Change(at_s=60.0, cell=0, slow=uniform(0.5))
    yield Change(at_s=120.0, cell=0, slow=HEALTHY)


def _pcie(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """A busy PCIe link on the first cell from 30 s on: host work x 4, ingest x 2."""
    yield Change(at_s=30.0, cell=0, slow=SlowDown(a0=4.0, c=4.0, ingest=2.0))


PROFILES: dict[str, Draw] = {
    "clean": _clean,
    "D": _transient,
    "slow-site": _slow_site,
    "one-slow": _one_slow,
    "pcie": _pcie,
}


def changes(profile: str, rng: random.Random, *, sites: Sequence[str], until_s: float) -> list[Change]:
    """All changes of a run in order of time. Raises KeyError for an unknown profile."""
    return sorted(PROFILES[profile](rng, sites, until_s), key=lambda change: (change.at_s, change.cell))
