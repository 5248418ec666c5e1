"""The declared grids of the comparison of pickers: S1 to S6, clean and disturbed.

S1 is like GORGO's set-up (three 2 x L40S cells far apart, ART-like trace), S2 a fleet of nine equal GPUs in three
near sites, S3 three classes of hardware, S4 a hot prefix on S2's fleet, S5 two gateways on S1 and S2, S6 real
conversations on twelve H200. What is assumed and in no publication: S3's slow class, the sessions of S3, and
disturbance D.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, permutations

from tradewind.engine.profiles import PROFILES, Profile
from tradewind.engine.scheduler import EngineLimits
from tradewind.sim.scenario import CellSpec, Delays, Load, Scenario
from tradewind.sim.wan import PRIVATE, PUBLIC
from tradewind.workload.art import art_trace
from tradewind.workload.classes import BLOCK_TOKENS, baseline_mixed, hot_prefix
from tradewind.workload.conversations import conversations
from tradewind.workload.mooncake import BLOCK_TOKENS as ART_BLOCK_TOKENS
from tradewind.workload.mooncake import Trace
from tradewind.workload.sessions import CHAT, MULTITURN, sessions

ART_FOR_S = 900.0  # of trace time
S1_KV_TOKENS = 983_040
CAPPED: Profile = replace(  # its class table is that of the uncapped board: the picker must find out
    PROFILES["rtx-pro-6000"],
    name="rtx-pro-6000-capped",
    w_s=42e-3,
    b_s=0.80e-3,
    source="assumed: power-capped boards, S3's slow class",
)


def _cells(site: str, profile: Profile, count: int, *, first: int = 0, limits: EngineLimits) -> tuple[CellSpec, ...]:
    return tuple(
        CellSpec(cell_id=f"{site}-{index}", site=site, profile=profile, limits=limits)
        for index in range(first, first + count)
    )


_ART_LIMITS = EngineLimits(max_num_seqs=64, block_size_tokens=ART_BLOCK_TOKENS, kv_capacity_tokens=S1_KV_TOKENS)
_LIMITS = EngineLimits(block_size_tokens=BLOCK_TOKENS)
_L40S_CELLS = (
    *_cells("a-near", PROFILES["2xl40s"], 1, limits=_ART_LIMITS),
    *_cells("b-middle", PROFILES["2xl40s"], 1, limits=_ART_LIMITS),
    *_cells("c-far", PROFILES["2xl40s"], 1, limits=_ART_LIMITS),
)
_RTX_CELLS = tuple(
    cell
    for site in ("a-near", "b-middle", "c-far")
    for cell in _cells(site, PROFILES["rtx-pro-6000"], 3, limits=_LIMITS)
)
_MIXED_CELLS = (
    *_cells("a-near", CAPPED, 2, limits=_LIMITS),
    *_cells("b-middle", PROFILES["h100"], 2, limits=_LIMITS),
    *_cells("c-far", PROFILES["h200"], 2, limits=_LIMITS),
)
_H200_CELLS = tuple(
    cell
    for site in ("a-near", "b-middle", "c-far")
    for cell in _cells(site, PROFILES["h200"], 4, limits=EngineLimits(block_size_tokens=ART_BLOCK_TOKENS))
)
_L40S_RTTS_S = (0.032, 0.120, 0.218)
_RTX_RTTS_S = (0.008,) * 3 + (0.022,) * 3 + (0.038,) * 3
_MIXED_RTTS_S = (0.008,) * 2 + (0.022,) * 2 + (0.038,) * 2
_H200_RTTS_S = (0.008,) * 4 + (0.022,) * 4 + (0.038,) * 4


def _art(time_scale: float) -> Load:
    return lambda rng: art_trace(rng, for_s=ART_FOR_S, time_scale=time_scale)


def _s1(time_scale: int) -> Scenario:
    return Scenario(
        name=f"S1-ts{time_scale}",
        title=f"3 x (2 x L40S), RTT 32/120/218 ms, ART-like trace, time scale {time_scale}",
        cells=_L40S_CELLS,
        rtts_s=(_L40S_RTTS_S,),
        load=_art(time_scale),
        for_s=ART_FOR_S * time_scale,
        wan=PUBLIC,
    )


def _rtx(
    name: str, title: str, load: Callable[[random.Random, float, float], Trace], *, rate: float, for_s: float
) -> Scenario:
    return Scenario(
        name=name,
        title=f"9 x RTX PRO 6000, RTT 8/22/38 ms, {title}, {rate:g}/s",
        cells=_RTX_CELLS,
        rtts_s=(_RTX_RTTS_S,),
        load=lambda rng: load(rng, rate, for_s),
        for_s=for_s,
        wan=PRIVATE,
        disturbance="D" if "D" in name.split("-") else "clean",
    )


def _base(rng: random.Random, rate_per_s: float, for_s: float) -> Trace:
    return baseline_mixed(rng, rate_per_s=rate_per_s, for_s=for_s)


def _multiturn(rng: random.Random, rate_per_s: float, for_s: float) -> Trace:
    return sessions(rng, MULTITURN, rate_per_s=rate_per_s, for_s=for_s)


def _hot(rng: random.Random, rate_per_s: float, for_s: float) -> Trace:
    return hot_prefix(rng, rate_per_s=rate_per_s, for_s=for_s)


def _s3(name: str, *, rate: float) -> Scenario:
    return Scenario(
        name=name,
        title=f"2 x capped RTX + 2 x H100 + 2 x H200, RTT 8/22/38 ms, chat sessions, {rate:g}/s",
        cells=_MIXED_CELLS,
        rtts_s=(_MIXED_RTTS_S,),
        load=lambda rng: sessions(rng, CHAT, rate_per_s=rate, for_s=300.0),
        for_s=300.0,
        disturbance="D" if name.endswith("-D") else "clean",
    )


def _s6() -> Scenario:
    for_s, scale = 600.0, 1.5
    return Scenario(
        name="S6",
        title="12 x H200, RTT 8/22/38 ms, Mooncake's conversations up to 32k tokens, time scale 1.5",
        cells=_H200_CELLS,
        rtts_s=(_H200_RTTS_S,),
        load=lambda rng: conversations(rng, for_s=for_s, most_prompt_tokens=32_768, time_scale=scale),
        for_s=for_s,
    )


def _two_gateways(of: Scenario, name: str, sync_s: float | None) -> Scenario:
    return replace(
        of,
        name=name,
        title=f"{of.title}; two gateways, {'no exchange' if sync_s is None else f'exchange every {sync_s:g} s'}",
        rtts_s=of.rtts_s * 2,
        delays=replace(Delays(), sync_s=sync_s),
    )


def _all() -> dict[str, Scenario]:
    art = [_s1(scale) for scale in (1, 2, 3)]
    disturbed = _rtx("S2-D", "baseline_mixed", _base, rate=14.0, for_s=180.0)
    alone = [
        *art,
        _rtx("S2", "baseline_mixed", _base, rate=22.0, for_s=150.0),
        disturbed,
        _rtx("S2-multiturn", "multiturn", _multiturn, rate=4.0, for_s=240.0),
        _rtx("S2-multiturn-D", "multiturn", _multiturn, rate=3.5, for_s=240.0),
        _s3("S3", rate=4.0),
        _s3("S3-D", rate=3.2),
        _rtx("S4", "40 % with a hot prefix of 6k", _hot, rate=17.0, for_s=150.0),
        _rtx("S4-D", "40 % with a hot prefix of 6k", _hot, rate=13.0, for_s=180.0),
        _s6(),
    ]
    exchanged = [("250ms", 0.25), ("1s", 1.0), ("3s", 3.0), ("never", None)]
    pairs = [
        _two_gateways(of, f"{name}-{label}", sync_s)
        for of, name in ((art[0], "S5"), (disturbed, "S5b"))
        for label, sync_s in exchanged
    ]
    return {scenario.name: scenario for scenario in (*alone, *pairs)}


SCENARIOS: dict[str, Scenario] = _all()


def scenario_named(name: str) -> Scenario:
    """The scenario. Raises KeyError with the known names."""
    if name not in SCENARIOS:
        raise KeyError(f"unknown scenario {name!r}; known: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def permuted(scenario: Scenario, number: int) -> Scenario:
    """The same with each gateway's paths in another order over the cells; 0 is the declared one.

    Where cells are equal, nothing changes but which of them is near: what a hash, a name or a tie decides.
    """
    count = len(scenario.cells)
    order = next(islice(permutations(range(count)), number, None))
    return replace(scenario, rtts_s=tuple(tuple(rtts[place] for place in order) for rtts in scenario.rtts_s))
