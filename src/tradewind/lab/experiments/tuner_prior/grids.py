"""The declared grids and loads: S1's three far cells under four loads, and what else a tuner may meet."""

from dataclasses import dataclass, replace

from tradewind.sim.faults import Change, Noise
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import SCENARIOS
from tradewind.workload.art import art_trace

NOISE_S = 0.050  # deviation of every message on every path, probes too
UNBOUNDED = ";index=unbounded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One grid under one load. `scale` multiplies every gap of the trace; below 1 is more load."""

    scale: float
    twice: bool = False  # each cell is there twice
    noisy: bool = False
    suffix: str = ""  # of every written policy


SCALES = ("scale 3", "scale 2", "scale 1", "scale 0.7")
SIX, NOISY, OVER = "six cells", "noisy paths", "index predicts too much"
PROFILES: dict[str, Profile] = {
    "scale 3": Profile(scale=3.0),
    "scale 2": Profile(scale=2.0),
    "scale 1": Profile(scale=1.0),
    "scale 0.7": Profile(scale=0.7),
    SIX: Profile(scale=0.5, twice=True),
    NOISY: Profile(scale=1.0, noisy=True),
    OVER: Profile(scale=1.0, suffix=UNBOUNDED),
}


def grid(name: str, *, trace_s: float) -> Scenario:
    """The first `trace_s` seconds of the trace, about four requests in each, on this profile's cells."""
    profile, far = PROFILES[name], SCENARIOS["S1-ts1"]
    copies = ("a", "b") if profile.twice else ("",)
    cells = tuple(replace(cell, cell_id=f"{cell.cell_id}{copy}") for cell in far.cells for copy in copies)
    noise = [Change(at_s=0.0, cell=cell, effect=Noise(deviation_s=NOISE_S)) for cell in range(len(cells))]
    return replace(
        far,
        name=f"tuner-prior {name}",
        title=name,
        cells=cells,
        rtts_s=tuple(tuple(rtt_s for rtt_s in rtts_s for _ in copies) for rtts_s in far.rtts_s),
        load=lambda rng: art_trace(rng, for_s=trace_s, time_scale=profile.scale),
        for_s=trace_s * profile.scale,
        changes=tuple(noise) if profile.noisy else (),
    )
