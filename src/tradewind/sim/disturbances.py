"""Declared disturbances: what happens to which cell when. Published figures name the profile they ran under.

Profiles: simulation.md 3.6, 5 and 6. `D` (transient slow-downs, each cell on its own) was chosen so that the published
gains of pressure weights appear; it is an assumption about impairment, not a measurement.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from tradewind.engine.board import Contention, Heat
from tradewind.engine.law import HEALTHY, SlowDown
from tradewind.sim.faults import Change, Contended, Effect, Foreign, Heated, Host, Noise, Slow
from tradewind.workload.arrivals import poisson

_JITTER_S = 0.020


def uniform(speed: float) -> SlowDown:
    """Every term of a step at `speed` (1 = healthy); ingest is the host's and stays."""
    factor = 1.0 / speed
    return SlowDown(w=factor, b=factor, c=factor, d=factor, e=factor, a0=factor)


Draw = Callable[
    [random.Random, Sequence[str], float], Iterator[Change]
]  # chance, site of each cell, horizon -> changes


def _clean(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """Nothing."""
    yield from ()


def _transient(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """0.4 x for 15 s, normal for 60 s, both exponential and independent per cell; begins in the steady state."""
    slow_s, normal_s, slowed = 15.0, 60.0, uniform(0.4)
    for cell in range(len(sites)):
        is_slow = rng.random() < slow_s / (slow_s + normal_s)
        at_s = 0.0
        while at_s < until_s:
            yield Change(at_s=at_s, cell=cell, effect=Slow(slow=slowed if is_slow else HEALTHY))
            at_s += rng.expovariate(1 / (slow_s if is_slow else normal_s))
            is_slow = not is_slow


def _slow_site(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The first site at 0.55 x throughout."""
    yield from _site(0, sites, at_s=0.0, effect=Slow(slow=uniform(0.55)))


def _one_slow(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The first cell at 0.5 x from 60 s to 120 s."""
    yield Change(at_s=60.0, cell=0, effect=Slow(slow=uniform(0.5)))
    yield Change(at_s=120.0, cell=0, effect=Slow(slow=HEALTHY))


def _background(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """Foreign requests of 1,024 prompt and 128 output tokens, 0.6/s by Poisson, on each cell of the first site."""
    for cell, site in enumerate(sites):
        if site == sites[0]:
            for at_s in poisson(rng, rate_per_s=0.6, for_s=until_s):
                yield Change(at_s=at_s, cell=cell, effect=Foreign(prompt_tokens=1_024, output_tokens=128))


def _jitter(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """Messages to and from the second site late by the positive part of N(0, 20 ms), throughout."""
    yield from _site(1, sites, at_s=0.0, effect=Noise(deviation_s=_JITTER_S))


def _thermal(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The first cell's cooling fails at 30 s: up to 45 degrees more (time constant 8 s), clock down to 0.35."""
    yield Change(at_s=30.0, cell=0, effect=Heated(heat=Heat()))


def _pcie(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """A busy PCIe link on the first cell from 30 s on: host work x 4, ingest x 2, within 3 s."""
    yield Change(at_s=30.0, cell=0, effect=Contended(contention=Contention()))


def _regional_outage(rng: random.Random, sites: Sequence[str], until_s: float) -> Iterator[Change]:
    """The second site loses power at 60 s, has it again at 120 s, and loads its engines for 20 s."""
    yield from _site(1, sites, at_s=60.0, effect=Host(up=False))
    yield from _site(1, sites, at_s=120.0, effect=Host(up=True))


def _site(number: int, sites: Sequence[str], *, at_s: float, effect: Effect) -> Iterator[Change]:
    """The effect on every cell of a site, counted in order of appearance; the only site if there is one."""
    names = list(dict.fromkeys(sites))
    for cell, site in enumerate(sites):
        if site == names[min(number, len(names) - 1)]:
            yield Change(at_s=at_s, cell=cell, effect=effect)


PROFILES: dict[str, Draw] = {
    "clean": _clean,
    "D": _transient,
    "slow-site": _slow_site,
    "one-slow": _one_slow,
    "background": _background,
    "jitter": _jitter,
    "thermal": _thermal,
    "pcie": _pcie,
    "regional-outage": _regional_outage,
}


def described(profile: str) -> str:
    """The profile in one line."""
    return (PROFILES[profile].__doc__ or "").strip()


def changes(profile: str, rng: random.Random, *, sites: Sequence[str], until_s: float) -> list[Change]:
    """All changes of a run in order of time. Raises KeyError for an unknown profile."""
    return sorted(PROFILES[profile](rng, sites, until_s), key=lambda change: (change.at_s, change.cell))
