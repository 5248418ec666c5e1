"""`tradewind up`: a whole grid on one machine, as supervised processes that read one settled file."""

import asyncio
import contextlib
import dataclasses
import fcntl
import math
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tradewind.config.check import check
from tradewind.config.resolve import load_checked, resolve, write_resolved
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.lab.locate import settled_before
from tradewind.lab.policyfiles import check_policy_files
from tradewind.lab.ports import wait_until_free
from tradewind.lab.processes import envoy_spec, process_specs, worker_name, worker_spec
from tradewind.lab.reload import Reloader
from tradewind.lab.watch import routable
from tradewind.runtime.readiness import http_status, port_open
from tradewind.runtime.supervise import StartFailed, Supervisor, signalled

Say = Callable[[str], None]

POLL_S = 0.2
ROUTABLE_TIMEOUT_S = 60.0
SAY_WAITING_S = 3.0  # with a control that answers an Envoy serves within one


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a running grid can be reached."""

    grid: str
    gateways: dict[str, str]  # gateway id -> base URL for clients
    control: str  # admin URL of the first control
    dashboard: str
    state_dir: str
    models: list[str]


def run_up(file: Path, *, say: Say, ready: Callable[[Places], None], baseline: str = "") -> int:
    """Run a grid until SIGINT or SIGTERM; returns the exit code. Raises ConfigError, StartFailed, OSError."""

    def override(grid: GridConfig) -> GridConfig:
        return with_baseline(grid, baseline, source=str(file))

    grid = override(check_policy_files(load_checked(file), source=str(file)))
    with _only_one(grid):
        grid = with_free_ports(grid)
        path = write_resolved(grid)
        return asyncio.run(_up(file, grid, path, override, say, ready))


def with_free_ports(grid: GridConfig) -> GridConfig:
    """The grid on the ports that it had before, or on new ones where those have been taken. Raises StartFailed."""
    kept = resolve(grid, keep=settled_before(grid))
    try:
        wait_until_free(kept)
    except StartFailed:
        kept = resolve(grid)
        wait_until_free(kept, patience_s=0)
    return kept


def with_baseline(grid: GridConfig, baseline: str, *, source: str = "grid.yaml") -> GridConfig:
    """The grid with every gateway on a baseline; "" changes nothing. Raises ConfigError."""
    if not baseline:
        return grid
    return check(
        replace(grid, gateways=[replace(gateway, baseline=baseline) for gateway in grid.gateways]), source=source
    )


@contextlib.contextmanager
def _only_one(grid: GridConfig) -> Iterator[None]:
    """Two supervisors of one state_dir would fight for its ports. Raises StartFailed."""
    lock = Path(grid.state_dir) / "up.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartFailed(f"this grid is up already: {lock} is held; `tradewind status` shows it") from error
        held.write(str(os.getpid()))
        held.flush()
        yield


async def _up(
    file: Path,
    grid: GridConfig,
    path: Path,
    override: Callable[[GridConfig], GridConfig],
    say: Say,
    ready: Callable[[Places], None],
) -> int:
    async with signalled() as stop, Supervisor(Path(grid.state_dir)) as supervisor:
        for spec in process_specs(grid, path):
            supervisor.add(spec)
        if not await unless(stop, _start(supervisor, grid, say)):
            return 0
        ready(places(grid))
        reloader = Reloader(file, grid, supervisor, override=override, say=say)
        await unless(stop, reloader.run())
        say("stopping")
    return 0


async def _start(supervisor: Supervisor, grid: GridConfig, say: Say) -> None:
    await supervisor.start_all(say)
    if grid.cells:
        await until_routable(grid, say)


async def unless(stop: asyncio.Event, work: Coroutine[object, object, None]) -> bool:
    """Run work until it ends (True) or `stop` is set (False, and work is cancelled); its errors pass through."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for waiting in (task, stopped):
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting


async def until_routable(grid: GridConfig, say: Say, *, timeout_s: float = ROUTABLE_TIMEOUT_S) -> None:
    """Wait until every gateway routes to all cells, or to some of them when time is up. Raises StartFailed for none."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    told = ""
    while True:
        missing, any_cell = await routable(grid)
        if not missing:
            return
        if missing != told:
            say(f"waiting: {missing}")
            told = missing
        if loop.time() > deadline_s:
            if any_cell:
                say(f"going on without waiting longer: {missing}")
                return
            raise StartFailed(f"no cell takes traffic after {timeout_s:g} s: {missing}; logs: {grid.state_dir}/logs")
        await asyncio.sleep(POLL_S)


def places(grid: GridConfig) -> Places:
    """Where the parts of a settled grid answer."""
    models = {engine.model for engine in grid.emulation.engines} if grid.emulation else set()
    return Places(
        grid=grid.grid,
        gateways={gateway.id: f"http://{gateway.listen}" for gateway in grid.gateways},
        control=f"http://{grid.controls[0].admin}" if grid.controls else "",
        dashboard=f"http://{grid.dashboard}" if grid.dashboard else "",
        state_dir=grid.state_dir,
        models=sorted({*grid.models, *models}),
    )


def run_gateway(grid: GridConfig, path: Path, gateway: GatewayConfig, *, say: Say) -> int:
    """Run one gateway and its Envoy until SIGINT or SIGTERM. Raises StartFailed, OSError."""
    wait_until_free(grid, within=f"$.gateways[{grid.gateways.index(gateway)}].")

    async def main() -> int:
        async with signalled() as stop, Supervisor(Path(grid.state_dir)) as supervisor:
            supervisor.add(worker_spec(gateway, path))
            # Envoy is up; whether it has something to serve is another question, and waits for as long as it must.
            supervisor.add(dataclasses.replace(envoy_spec(grid, gateway), ready=port_open(gateway.envoy_admin)))
            if await unless(stop, supervisor.start_all(say)) and await unless(stop, _serving(grid, gateway, say)):
                await stop.wait()
        return 0

    return asyncio.run(main())


async def _serving(grid: GridConfig, gateway: GatewayConfig, say: Say) -> None:
    """Wait until Envoy serves: where no control answers and no view was saved there is nothing yet, and that passes."""
    loop = asyncio.get_running_loop()
    say_at_s = loop.time() + SAY_WAITING_S
    while await http_status(gateway.admin, "/readyz") != 200:  # Envoy says ready, too, once it has waited long enough
        if loop.time() > say_at_s:
            say_at_s = math.inf
            controls = ", ".join(control.listen for control in grid.controls) or "a control"
            log = f"{grid.state_dir}/logs/{worker_name(gateway)}.log"
            say(f"gateway {gateway.id} waits for its first view: none was saved, none came from {controls}; see {log}")
        await asyncio.sleep(POLL_S)
    say(f"gateway {gateway.id} serves on http://{gateway.listen}")
