"""The control process: composition root. Builds the parts, serves gRPC and the admin API, ticks until stopped."""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tradewind import __version__
from tradewind.config.addresses import is_loopback
from tradewind.config.check_tuner import box_of, start_of
from tradewind.config.errors import ConfigError, Problem
from tradewind.config.schema import ControlConfig, GridConfig, TunerConfig
from tradewind.control import metrics
from tradewind.control.admin import Admin
from tradewind.control.api import StateRow, StatusRow
from tradewind.control.events import EventRing
from tradewind.control.grid import Grid
from tradewind.control.guard import TOKEN_VARIABLE
from tradewind.control.saver import Saver
from tradewind.control.service import GridService, serve_grid
from tradewind.control.ticking import tick
from tradewind.control.tuning import TunerPlan, Tuning
from tradewind.core.tuner.named import tuner_named
from tradewind.core.tuner.tuner import Tuner
from tradewind.runtime.log import log_event, setup_logging
from tradewind.runtime.loop import LoopLag, run_until_signal
from tradewind.runtime.onlyone import only_one
from tradewind.runtime.web import parse_address, serve_app

log = logging.getLogger(__name__)

EXIT_CONFIG = 2
EXIT_FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Where a running control answers, and its parts for whoever embeds it."""

    grpc_address: str
    admin_address: str
    grid: Grid
    saver: Saver


def run(config: GridConfig, control_id: str) -> int:
    """Run one control until SIGTERM or SIGINT. Returns its exit code: 0, 1 (cannot serve), 2 (configuration)."""
    setup_logging(control_id)
    try:
        return run_until_signal(_main(config, control_id))
    except ConfigError as error:
        log_event(log, "control.bad_config", level=logging.ERROR, problem=error)
        return EXIT_CONFIG
    except OSError as error:
        log_event(log, "control.cannot_serve", level=logging.ERROR, error=error)
        return EXIT_FAILED


async def _main(config: GridConfig, control_id: str) -> int:
    async with serve(config, control_id):
        await asyncio.get_running_loop().create_future()  # until cancelled
    return 0


@asynccontextmanager
async def serve(
    config: GridConfig, control_id: str, *, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Running]:
    """Serve one control until the block ends. Raises ConfigError, and OSError when an address cannot be bound."""
    control = _section(config, control_id)
    token = _token(control)
    incarnation = secrets.token_hex(8)
    events = EventRing(time.time)
    tuning = None
    if config.tuner is not None:
        driver = f"{control_id}.{incarnation[:8]}"
        plan = tuner_plan(config.tuner)
        tuning = Tuning(plan, driver=driver, events=events, clock=clock, unix_clock=time.time)
    grid = Grid(
        name=config.grid,
        control_id=control_id,
        incarnation=incarnation,
        expected=frozenset(cell.id for cell in config.cells),
        ttl_s=control.heartbeat_ttl_s,
        events=events,
        clock=clock,
        unix_clock=time.time,
        draw_key=lambda: secrets.randbits(64),
        tuning=tuning,
    )
    path = Path(config.state_dir) / f"control-{control_id}.sqlite"
    saver = Saver(path, incarnation=incarnation, snapshot=grid.saved, found_late=grid.found_late)
    async with AsyncExitStack() as stack:
        stack.enter_context(only_one(path.with_suffix(".lock"), what=f"control {control_id!r}"))
        saved = await saver.load()
        grid.start(saved, saver)
        await stack.enter_async_context(_background(saver.run()))
        if tuning is not None:
            await stack.enter_async_context(_background(tuning.run()))
        lag = await stack.enter_async_context(LoopLag().watch())
        service = GridService(grid, clock)
        await stack.enter_async_context(_background(tick(grid, clock)))
        grpc_address = await stack.enter_async_context(serve_grid(service, control.listen))
        started_s = clock()
        collector = metrics.ControlCollector(
            grid=grid, saver=saver, lag=lag, agent_streams=lambda: service.agent_streams
        )
        admin = Admin(
            grid=grid,
            saver=saver,
            metrics=metrics.registry(collector),
            status=lambda: _status(grid, saver, lag, clock() - started_s),
            version=__version__,
        )
        admin_address = await stack.enter_async_context(serve_app(admin.app(token=token), control.admin))
        log_event(log, "control.serving", grpc=grpc_address, admin=admin_address, incarnation=incarnation)
        yield Running(grpc_address=grpc_address, admin_address=admin_address, grid=grid, saver=saver)
    log_event(log, "control.stopped", control=control_id)


def tuner_plan(config: TunerConfig) -> TunerPlan:
    """What to run."""
    start, box = start_of(config), box_of(config)

    def make(driver: str) -> Tuner:
        return tuner_named(config.kind, driver=driver, seed=config.seed, start=start, box=box)

    return TunerPlan(kind=config.kind, make=make, start=start, box=box)


def _section(config: GridConfig, control_id: str) -> ControlConfig:
    for control in config.controls:
        if control.id == control_id:
            return control
    known = ", ".join(control.id for control in config.controls)
    raise ConfigError(
        "grid", [Problem(where="$.controls", what=f"no control {control_id!r}", write=f"one of: {known}")]
    )


def _token(control: ControlConfig) -> str:
    """The token that callers must send; "" on loopback. Raises ConfigError when one is needed and not set."""
    if is_loopback(parse_address(control.admin)[0]):
        return ""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        what = f"{control.admin} is not loopback, so callers must send a token, and {TOKEN_VARIABLE} is not set"
        write = f"a loopback address, or set {TOKEN_VARIABLE}"
        raise ConfigError("grid", [Problem(where="$.controls[].admin", what=what, write=write)])
    return token


def _status(grid: Grid, saver: Saver, lag: LoopLag, uptime_s: float) -> StatusRow:
    return StatusRow(
        control_id=grid.control_id,
        incarnation=grid.incarnation,
        version=__version__,
        uptime_s=uptime_s,
        publishing=grid.publishing,
        holding_back_because=grid.holding_back_because,
        cells=grid.cells_by_state(),
        gateways=len(grid.gateways()),
        state=StateRow(
            path=str(saver.path),
            saved=not saver.problem,
            problem=saver.problem,
            started_empty_because=saver.started_empty_because,
            failures=saver.failures,
        ),
        loop_lag_s=lag.lag_s,
        loop_lag_worst_s=lag.worst_s,
        counters=dict(sorted(grid.counters.items())),
    )


@asynccontextmanager
async def _background(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run work beside the block and end it after. Work that fails cancels the block, and its error is raised."""
    owner = asyncio.current_task()
    task = asyncio.create_task(work)

    def failed(done: asyncio.Task[None]) -> None:
        if owner is not None and not done.cancelled() and done.exception() is not None:
            owner.cancel()

    task.add_done_callback(failed)
    try:
        yield
    finally:
        task.remove_done_callback(failed)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
