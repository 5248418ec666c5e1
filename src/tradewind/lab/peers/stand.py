"""One router in front of emulated cells, up and ready: a peer alone, or the whole of Tradewind."""

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tradewind.config.check import check
from tradewind.config.resolve import resolve, write_resolved
from tradewind.config.schema import GridConfig
from tradewind.lab.client import LoadClient, Target
from tradewind.lab.emulated import EmulatedCells
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.lab.peers.specs import Peer, Place
from tradewind.lab.peers.workers import workers_of
from tradewind.lab.processes import EMULATOR, QUIET, emulator_spec
from tradewind.runtime.readiness import http_ok
from tradewind.runtime.supervise import ProcessSpec, StartFailed, Supervisor
from tradewind.workload.plan import Planned

ROUTER = "router"
READY_WITHIN_S = 30.0
ANSWER_WITHIN_S = 20.0
ASK_AGAIN_S = 0.2
SETTLE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Where the load goes, what is behind it, and the processes that route."""

    target: Target
    grid: GridConfig  # settled
    cells: EmulatedCells
    router_pids: tuple[int, ...]


@asynccontextmanager
async def emulated_front(peer: Peer, *, folder: Path, seed: int) -> AsyncIterator[Front]:
    """The peer before nine emulated cells in three sites, 8, 22 and 38 ms away. Raises StartFailed, OSError."""
    shutil.rmtree(folder, ignore_errors=True)  # what an earlier run learned would be evidence from elsewhere
    policy = "cost" if peer.policy == "pick" else ""
    config = emulated_grid(state_dir=str(folder), policy=policy, seed=seed, name="peers")
    async with front(peer, config, folder=folder) as up:
        yield up


@asynccontextmanager
async def front(peer: Peer, config: GridConfig, *, folder: Path) -> AsyncIterator[Front]:
    """The peer before the cells of a grid file. Raises StartFailed, OSError."""
    if peer.argv is None:
        async with LiveGrid(config) as live:
            pids = tuple(pid for name in (live.envoy, live.worker) if (pid := live.pid(name)) is not None)
            yield Front(target=live.target(model=MODEL), grid=live.grid, cells=live.emulated, router_pids=pids)
        return
    grid = resolve(check(config))
    path = write_resolved(grid)
    port, admin_port = free_ports(2)
    place = Place(workers=workers_of(grid), port=port, admin_port=admin_port, folder=folder)
    async with Supervisor(folder) as supervisor:
        if grid.emulation is not None:
            supervisor.add(emulator_spec(grid, path))
        address = f"127.0.0.1:{port}"
        after = (EMULATOR,) if grid.emulation is not None else ()
        spec = ProcessSpec(
            name=ROUTER,
            argv=peer.argv(place),
            env=QUIET,
            ready=http_ok(address, peer.ready_path),
            ready_timeout_s=READY_WITHIN_S,
            after=after,
        )
        supervisor.add(spec)
        await supervisor.start_all()
        pid = supervisor.pid(ROUTER)
        assert pid is not None, "it was ready a moment ago"
        target = Target(address=address, model=MODEL)
        await _until_it_serves(target)
        yield Front(target=target, grid=grid, cells=EmulatedCells(grid), router_pids=(pid,))


async def _until_it_serves(target: Target) -> None:
    """Some routers are ready before they have found their engines. Raises StartFailed."""
    client = LoadClient(target)
    asked = Planned(request_id="is-it-there", at_s=0.0, prompt_tokens=16, output_tokens=1)
    deadline_s = time.monotonic() + ANSWER_WITHIN_S
    while not (record := await client.send(asked)).ok:
        if time.monotonic() > deadline_s:
            raise StartFailed(f"{ROUTER}: no answer through it within {ANSWER_WITHIN_S:g} s: {record.detail[:200]}")
        await asyncio.sleep(ASK_AGAIN_S)
    await asyncio.sleep(SETTLE_S)  # the rest of the engines: no two routers tell alike whom they know


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, no two the same."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
