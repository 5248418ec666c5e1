"""Live forms of experiments on the nine cells: grids for policies by their simulated names, a kill, an untold limit."""

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import uvloop
from msgspec.structs import replace

from tradewind.config.schema import GridConfig
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import MISMATCH, poisson_plan, under_load
from tradewind.lab.simulated.nine import (
    AS_PUBLISHED,
    CELLS,
    COST,
    LEAST_OF_ALL,
    LEAST_REQUEST,
    ROUND_ROBIN,
    WEIGHTS,
)
from tradewind.measure.record import Record

Result = TypeVar("Result")
LIVE_POLICIES = (ROUND_ROBIN, LEAST_REQUEST, WEIGHTS, COST)
_BASELINES = {
    ROUND_ROBIN: "round-robin",
    LEAST_REQUEST: "least-request",
    LEAST_OF_ALL: f"least-request:{CELLS}",
}
FAULTED = "cell.faulted"
KILL_TOLD_WITHIN_S = 5.0


def live_grid(policy: str, *, gate: bool, seed: int, state_dir: str) -> GridConfig:
    """The live counterpart of a simulated policy; a name that is no baseline of Envoy's is a picker's."""
    picks = "" if policy in (*_BASELINES, WEIGHTS, AS_PUBLISHED) else policy
    grid = emulated_grid(
        state_dir=state_dir,
        baseline=_BASELINES.get(policy, ""),
        policy=picks,
        seed=seed,
        gate="auto" if gate else "none",
        name="live",
    )
    if policy != AS_PUBLISHED:
        return grid
    return replace(grid, gateways=[replace(gateway, scoring="published") for gateway in grid.gateways])


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What clients saw of a kill. Times on the load's clock."""

    records: Sequence[Record]
    cell: str
    at_s: float
    faulted_after_s: float | None  # until control said so; None: it did not in time


def kill_live(
    policy: str, *, gate: bool, cell: int, rate_per_s: float, loss_s: float, for_s: float, seed: int
) -> Killed:
    """`baseline_mixed` at a steady rate; the engine of the `cell`-th cell is killed at `loss_s`. Raises StartFailed."""

    async def load(grid: LiveGrid) -> Killed:
        name = grid.cell_ids[cell]
        plan = poisson_plan(seed=seed, rate_per_s=rate_per_s, for_s=for_s, prefix=f"failover-{seed}")
        loaded = await under_load(grid, plan, lambda observer: _kill(grid, observer, name, loss_s))
        at_s = loaded.result
        event = loaded.observer.first_event(
            at_s - KILL_TOLD_WITHIN_S, lambda event: event.name == FAULTED and event.cell == name
        )
        out_s = None if event is None else max(0.0, event.at_s - at_s)
        return Killed(records=loaded.records, cell=name, at_s=at_s, faulted_after_s=out_s)

    return on_grid(policy, load, gate=gate, seed=seed)


async def _kill(grid: LiveGrid, observer: Observer, cell: str, at_s: float) -> float:
    await asyncio.sleep(max(0.0, at_s - observer.now_s))
    pid = await grid.engine_pid(cell)
    assert pid is not None, f"{cell} has no engine to kill"
    os.kill(pid, signal.SIGKILL)
    return observer.now_s


def limit_live(
    policy: str, *, cell: int, tokens: int, rate_per_s: float, for_s: float, seed: int
) -> tuple[Sequence[Record], str]:
    """30 % long prompts while one cell refuses what is longer than `tokens`, untold; the records and that cell."""

    async def load(grid: LiveGrid) -> tuple[Sequence[Record], str]:
        name = grid.cell_ids[cell]
        await grid.inject("max_model_len", cell=name, params={"tokens": tokens, "advertise": False})
        plan = poisson_plan(seed=seed, rate_per_s=rate_per_s, for_s=for_s, mix=MISMATCH, prefix=f"mismatch-{seed}")
        return (await under_load(grid, plan, _nothing)).records, name

    return on_grid(policy, load, gate=True, seed=seed)


async def _nothing(_observer: Observer) -> None:
    """No script beside the load."""


def on_grid(policy: str, load: Callable[[LiveGrid], Awaitable[Result]], *, gate: bool, seed: int) -> Result:
    """Run a load on a grid of its own, in this process's main thread. Raises StartFailed, OSError."""

    async def whole(folder: str) -> Result:
        async with LiveGrid(live_grid(policy, gate=gate, seed=seed, state_dir=folder)) as grid:
            return await load(grid)

    with (
        tempfile.TemporaryDirectory(prefix="tw-live-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(whole(folder))
