"""What one simulated grid is: cells, gateways, paths, load and disturbance."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tradewind.engine.profiles import Profile
from tradewind.engine.scheduler import EngineLimits
from tradewind.sim.faults import Change
from tradewind.sim.wan import PRIVATE, WanProfile
from tradewind.workload.mooncake import Trace, TracedRequest

Load = Callable[[random.Random], Trace]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSpec:
    """One cell. Its block size must be that of the load: a block of the trace is a block of the engine."""

    cell_id: str
    site: str
    profile: Profile
    limits: EngineLimits

    @property
    def kv_capacity_tokens(self) -> int:
        """What the engine states at registration."""
        return self.limits.kv_capacity_tokens or self.profile.kv_capacity_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How late a gateway learns things, in seconds."""

    first_token_s: float = 0.0  # after the first body byte has passed the gateway
    outcome_s: float = 0.05  # Envoy buffers the access log so long
    scrape_s: float = 1.0  # period of an agent's scrape
    heartbeat_s: float = 0.5  # period of heartbeats
    view_s: float = 0.1  # from agent by way of control to gateway
    probe_s: float = 1.0  # period of RTT probes
    sync_s: float | None = 0.1  # period in which gateways exchange outstanding work while it changes; None = never


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything but the policy and the seed."""

    name: str
    title: str
    cells: tuple[CellSpec, ...]
    rtts_s: tuple[tuple[float, ...], ...]  # per gateway, per cell
    load: Load
    for_s: float  # the load lasts so long
    wan: WanProfile = PRIVATE
    disturbance: str = "clean"  # a declared profile
    changes: tuple[Change, ...] = ()  # and what happens beside
    gate: bool = True  # the first-token gate, see docs/concepts/first-token-gate.md
    kv_events: bool = False  # agents listen to what their engines' caches store and drop
    delays: Delays = Delays()
    # Whose client a request is; None: any gateway's, by chance.
    gateway_of: Callable[[TracedRequest], int] | None = None
    warm_up_ratio: float = 0.1  # of the load's time: requests that arrive in it are not counted
    # By what each cell's paths draw their chance, so that one cell more changes nothing for the others; () = place.
    numbers: tuple[int, ...] = ()
    ties: str = ""  # another text draws near ties otherwise, and nothing else: what chance alone does to a policy

    def __post_init__(self) -> None:
        assert all(len(rtts) == len(self.cells) for rtts in self.rtts_s), "each gateway needs a path to each cell"
        assert not self.numbers or len(set(self.numbers)) == len(self.cells), "each cell needs a number of its own"
        ids = [cell.cell_id for cell in self.cells]
        assert ids == sorted(set(ids)), "cells must be unique and sorted by id"
