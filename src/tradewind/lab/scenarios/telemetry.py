"""Telemetry that goes away under load: dead GPU exporters (item 4), an agent cut off from control (item 5)."""

import asyncio
import os
import signal
from collections.abc import Sequence

from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import (
    failures_text,
    moved_ratio,
    poisson_plan,
    request_share,
    success_ratio,
    under_load,
    weight_share,
)

FLAG = "dcgm_fallback"
FLAG_WITHIN_S = 1.0
SHARE_MOVES_AT_MOST = 0.2
KEEPS_SHARE = 0.8


async def exporters_die(
    grid: LiveGrid,
    *,
    sites: Sequence[str],
    rate_per_s: float = 10.0,
    dead_s: float = 10.0,
    rest_s: float = 6.0,
    seed: int = 1,
) -> list[Check]:
    """The exporter process of each site is killed in turn and comes back; every cell of the site loses its GPU page."""
    cells_of = {site: [cell.id for cell in grid.grid.cells if cell.site == site] for site in sites}
    for_s = rest_s + len(sites) * (dead_s + rest_s)
    plan = poisson_plan(seed=seed, rate_per_s=rate_per_s, for_s=for_s, prefix=f"exporter-{seed}")

    async def script(observer: Observer) -> dict[str, float]:
        died: dict[str, float] = {}
        for site in sites:
            await asyncio.sleep(rest_s)
            fault = await grid.inject("exporter_dead", site=site)
            died[site] = observer.now_s
            await asyncio.sleep(dead_s)
            await grid.clear(fault)
        return died

    loaded = await under_load(grid, plan, script, every_s=0.05)
    flags_s: dict[str, float | None] = {}
    moves: dict[str, float | None] = {}
    for site, at_s in loaded.result.items():
        for cell in cells_of[site]:
            flags_s[cell] = _flag_after_s(loaded.observer, cell, at_s)
            before = weight_share(loaded.observer.between(at_s - rest_s / 2, at_s), cell)
            moves[cell] = moved_ratio(before, weight_share(loaded.observer.between(at_s + 1.0, at_s + dead_s), cell))
    return [
        at_least("exporter death: success", success_ratio(loaded.records), 1.0, note=failures_text(loaded.records)),
        at_most("exporter death: flag after, slowest", _worst(flags_s), FLAG_WITHIN_S, unit="s", note=_each(flags_s)),
        at_most("exporter death: share moved, worst cell", _worst(moves), SHARE_MOVES_AT_MOST, note=_each(moves)),
    ]


def _flag_after_s(observer: Observer, cell: str, at_s: float) -> float | None:
    sample = observer.first_sample(at_s, lambda cells: cell in cells and FLAG in cells[cell].flags)
    return None if sample is None else sample.at_s - at_s


def _worst(values: dict[str, float | None]) -> float | None:
    """The largest, or None when any is unknown."""
    known = [value for value in values.values() if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _each(values: dict[str, float | None]) -> str:
    return " ".join("?" if value is None else f"{value:.2f}" for value in values.values())


async def agent_cut(
    grid: LiveGrid,
    *,
    agent: str,
    cell: str,
    rate_per_s: float = 10.0,
    warm_s: float = 12.0,
    cut_s: float = 20.0,
    seed: int = 1,
) -> list[Check]:
    """The agent that owns `cell` alone is frozen, as a cut link would silence it, while the engine serves."""
    plan = poisson_plan(seed=seed, rate_per_s=rate_per_s, for_s=warm_s + cut_s, prefix=f"agent-{seed}")

    async def script(observer: Observer) -> float:
        await asyncio.sleep(warm_s)
        pid = grid.pid(agent)
        assert pid is not None, f"{agent} does not run"
        os.kill(pid, signal.SIGSTOP)
        cut_at_s = observer.now_s
        try:
            await asyncio.sleep(cut_s)
        finally:
            os.kill(pid, signal.SIGCONT)
        return cut_at_s

    loaded = await under_load(grid, plan, script)
    at_s = loaded.result
    before = weight_share(loaded.observer.between(at_s - 5.0, at_s), cell)
    after = weight_share(loaded.observer.between(at_s + 1.0, at_s + cut_s), cell)
    blind = loaded.observer.first_sample(at_s, lambda cells: cells[cell].silent)
    served = request_share(loaded.records, cell, at_s + 1.0, at_s + cut_s)
    note = f"requests: {100 * (served or 0):.1f} % of all"
    return [
        at_least(
            "agent cut off: share kept",
            after / before if before and after is not None else None,
            KEEPS_SHARE,
            note=note,
        ),
        at_least("agent cut off: success", success_ratio(loaded.records), 1.0, note=failures_text(loaded.records)),
        at_most("agent cut off: seen as blind after", None if blind is None else blind.at_s - at_s, 2.0, unit="s"),
    ]
