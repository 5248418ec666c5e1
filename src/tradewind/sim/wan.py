"""One WAN path: a base round trip, slow wander (Ornstein-Uhlenbeck), and rare spikes; per-message jitter comes on top.

Model and constants: simulation.md 6. The path is a function of time alone, drawn from its own stream of chance, so that
every policy meets the same network.
"""

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WanProfile:
    """What all paths of a scenario have in common."""

    wander_ratio: float = 0.0  # standard deviation of the wander over the base round trip
    wander_tau_s: float = 120.0
    jitter_s: float = 0.0  # mean of the exponential delay that each request adds
    connect_rtts: float = 0.0  # round trips that a new connection takes before its request can leave
    spike_every_s: float = 0.0  # mean gap between spikes; 0 = none
    spike_factor: tuple[float, float] = (1.5, 3.0)
    spike_s: tuple[float, float] = (20.0, 60.0)


PRIVATE = WanProfile(wander_ratio=0.04, jitter_s=1e-3)
PUBLIC = WanProfile(wander_ratio=0.15, jitter_s=3e-3)

_GRID_S = 1.0  # the wander is drawn once a second and held
_LEAST_RATIO = 0.3  # of the base: light does not get faster


class WanPath:
    """The round trip of one path at any time."""

    def __init__(self, *, base_s: float, profile: WanProfile, rng: random.Random) -> None:
        self.base_s = base_s
        self.factor = 1.0  # of every round trip, as things are now
        self._profile = profile
        self._rng = rng
        self._keep = math.exp(-_GRID_S / profile.wander_tau_s)
        self._spread = profile.wander_ratio * math.sqrt(1.0 - self._keep * self._keep)
        self._wander = [rng.gauss(0.0, profile.wander_ratio)]
        self._spikes: list[tuple[float, float, float]] = []  # start, end, factor

    def rtt_s(self, at_s: float) -> float:
        """Round trip without jitter; any order of times is fine."""
        rtt_s = self.factor * self.base_s * max(_LEAST_RATIO, 1.0 + self._wander_at(at_s))
        return rtt_s * self._spike_at(at_s) if self._spikes else rtt_s

    def connect_s(self, at_s: float) -> float:
        """What a new connection takes before its request can leave."""
        return self._profile.connect_rtts * self.rtt_s(at_s)

    def _wander_at(self, at_s: float) -> float:
        index = int(at_s / _GRID_S)
        wander = self._wander
        while len(wander) <= index:
            wander.append(wander[-1] * self._keep + self._rng.gauss(0.0, self._spread))
        return wander[index]

    def _spike_at(self, at_s: float) -> float:
        return max((factor for start_s, end_s, factor in self._spikes if start_s <= at_s < end_s), default=1.0)

    def draw_spikes(self, rng: random.Random, *, until_s: float) -> None:
        """Fix the spikes of the whole run beforehand."""
        if not self._profile.spike_every_s:
            return
        start_s = rng.expovariate(1 / self._profile.spike_every_s)
        while start_s < until_s:
            end_s = start_s + rng.uniform(*self._profile.spike_s)
            self._spikes.append((start_s, end_s, rng.uniform(*self._profile.spike_factor)))
            start_s = end_s + rng.expovariate(1 / self._profile.spike_every_s)
