"""What both run: three cells far apart under conversations, as a grid of processes and as a scenario."""

import random
from collections.abc import Sequence

from msgspec.structs import replace

from tradewind.config.schema import GridConfig
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits
from tradewind.lab.grids import FAR_WAN_MS, emulated_grid
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.wan import WanProfile
from tradewind.workload.art import art_trace, shape_for
from tradewind.workload.mooncake import BLOCK_TOKENS, Trace, TracedRequest
from tradewind.workload.streams import stream

SITES = ("near", "middle", "far")
PROFILE = "2xl40s"
MAX_NUM_SEQS = 64
RATE_PER_S = 4.0
POLICIES = ("round_robin", "least_request:N", "cache_aware", "cost")
CAPTURE = "picks.ndjson"  # in the gateway's folder


def trace_of(seed: int, *, for_s: float) -> Trace:
    """Conversations of as many users as it takes for each to ask as often as in the whole ART-like window."""
    return art_trace(stream(seed, "validate-grid"), shape=shape_for(rate_per_s=RATE_PER_S, for_s=for_s))


def live_grid(policy: str, *, seed: int, state_dir: str) -> GridConfig:
    """One gateway, three emulated cells behind 32, 120 and 218 ms; the picker's tape is kept."""
    grid = emulated_grid(
        sites=SITES, cells_per_site=1, profile=PROFILE, wan_ms=FAR_WAN_MS, exporters=False, policy=policy,
        max_num_seqs=MAX_NUM_SEQS, seed=seed, state_dir=state_dir, name="validate",
    )  # fmt: skip
    gateway = grid.gateways[0]
    pick = replace(gateway.pick, capture=CAPTURE)
    return replace(grid, gateways=[replace(gateway, pick=pick)])


def scenario_of(requests: Sequence[TracedRequest], *, for_s: float) -> Scenario:
    """The same grid in virtual time, under requests at the times at which a live client sent them."""
    limits = EngineLimits(max_num_seqs=MAX_NUM_SEQS, block_size_tokens=BLOCK_TOKENS)
    paths = sorted(zip(SITES, FAR_WAN_MS, strict=True))
    cells = [CellSpec(cell_id=f"{site}-0", site=site, profile=PROFILES[PROFILE], limits=limits) for site, _ in paths]
    trace = Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)

    def load(_rng: random.Random) -> Trace:
        return trace

    return Scenario(
        name="validate-grid",
        title="3 x (2 x L40S), RTT 32/120/218 ms, ART-like conversations, as a live client sent them",
        cells=tuple(cells),
        rtts_s=(tuple(rtt_ms / 1e3 for _, (rtt_ms, _jitter_ms) in paths),),
        load=load,
        for_s=for_s,
        # The emulated path's jitter has mean 0; a connection opens in a round trip there too.
        wan=WanProfile(connect_rtts=1.0),
    )
