"""The gateway process: one Worker, its links, probers, servers and files, in one task group."""

import asyncio
import contextlib
import gc
import logging
import random
import signal
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from tradewind.config.check_pick import MAX_BODY_BYTES
from tradewind.config.errors import ConfigError, Problem
from tradewind.config.resolve import resolved_path
from tradewind.config.schema import ControlConfig, GatewayConfig, GridConfig
from tradewind.gateway.accesslog import AccessLogServer
from tradewind.gateway.admin import Reloaded, admin_app
from tradewind.gateway.ads import AdsEvent, AdsServer
from tradewind.gateway.describe import Describer
from tradewind.gateway.envoy import executable
from tradewind.gateway.epp.server import EppServer, TlsFiles
from tradewind.gateway.events import EventRow
from tradewind.gateway.files import find_gateway, gateway_dir, pick_socket_path, prepare, socket_path
from tradewind.gateway.gate.choice import Findings
from tradewind.gateway.gate.probe import find_out
from tradewind.gateway.link import ControlLink
from tradewind.gateway.metrics import StateCollector
from tradewind.gateway.outcomes import Summary
from tradewind.gateway.paths import PathKeeper, Spawn
from tradewind.gateway.pick.epp import DeskPickService
from tradewind.gateway.pick.explain import Explanation, explain
from tradewind.gateway.pick.server import PickServer
from tradewind.gateway.reload import ConfigWatch
from tradewind.gateway.shapeprobe import ShapeProber
from tradewind.gateway.sockets import keep_sockets
from tradewind.gateway.status import GatewayStatus
from tradewind.gateway.worker import Worker
from tradewind.model.routing import ProbeOrder
from tradewind.runtime.log import log_event, setup_logging
from tradewind.runtime.loop import LoopLag, run_until_signal
from tradewind.runtime.onlyone import only_one
from tradewind.runtime.web import serve_app
from tradewind.telemetry.fetch import sleep_or
from tradewind.xds import types
from tradewind.xds.snapshot import Snapshot

log = logging.getLogger(__name__)

TICK_S = 1.0
COALESCE_S = 0.01  # several causes within this time make one tick
MAX_TICK_SHARE = 0.2  # of the loop's time: a grid so large that ticks are slow ticks less often
FLUSH_S = 0.5
SAVE_S = 1.0
LEARNED_S = 60.0  # error rates reach the disk so often, verdicts at once
WATCH_S = 1.0
EPP_GRACE_S = 1.0
GC_YOUNG = 20_000  # allocations between two collections of the youngest generation


class CannotStart(Exception):
    """The gateway cannot run here; the message says which address or file is in the way."""


class Shell:
    """Owns the tasks and sockets of one gateway; the Worker decides."""

    def __init__(
        self,
        config: GridConfig,
        gateway: GatewayConfig,
        *,
        spawn: Spawn,
        rng: random.Random,
        lag: LoopLag,
        grid_file: Path,
        findings: Findings,
    ) -> None:
        clock = time.monotonic
        self._spawn = spawn
        self._rng = rng
        self._wake = asyncio.Event()
        self._save_now = asyncio.Event()
        self._links: dict[str, ControlLink] = {}
        self._link_tasks: dict[str, asyncio.Task[None]] = {}
        self._watch = ConfigWatch(grid_file, config)
        self._worker = Worker(
            config, gateway, effects=self, clock=clock, unix_clock=time.time, rng=rng, findings=findings
        )
        self._paths = PathKeeper(self._worker.on_path, spawn=spawn, clock=clock)
        self._prober = ShapeProber(
            address_of=self._worker.address_of,
            api_key_env_of=self._worker.api_key_env_of,
            on_result=self._worker.on_probe,
            spawn=spawn,
            clock=clock,
            rng=rng,
        )
        access_log = AccessLogServer(self._worker.cell_at, self._worker.on_outcome)
        socket = str(socket_path(config, gateway.id))
        self._ads = AdsServer(socket, self._on_ads, handlers=(access_log.handler(),), clock=clock)
        self._picker = PickServer(
            str(pick_socket_path(config, gateway.id)),
            self._worker.on_question,
            max_body_bytes=MAX_BODY_BYTES,
            on_unheard=self._worker.on_unheard,
        )
        self._epp = self._make_epp()
        self._describer = Describer(
            self._worker,
            ads=self._ads.state,
            links=self._links,
            watch=self._watch,
            prober=self._prober,
            picker=self._picker,
            epp=self._epp,
            lag=lag,
            clock=clock,
        )
        self.registry = CollectorRegistry()
        self.registry.register(StateCollector(self.status, lambda: self._worker.ring.counts, self._worker.book))

    async def run(self) -> None:
        """Serve until cancelled. Raises CannotStart before anything that a twin of this process owns is touched."""
        worker = self._worker
        async with contextlib.AsyncExitStack() as stack:
            try:
                admin = await stack.enter_async_context(serve_app(admin_app(self), worker.gateway.admin))
            except OSError as error:
                raise CannotStart(f"admin address {worker.gateway.admin}: {error.strerror or error}") from error
            restored = worker.restore()
            try:
                await self._ads.start()  # before any pick: the outcome of each comes over the same socket
                await self._picker.start()
            except OSError as error:
                raise CannotStart(f"its sockets in {gateway_dir(worker.config, worker.gateway.id)}: {error}") from error
            await self._start_epp()
            self._sync_links()
            sockets = keep_sockets(worker, self._ads, self._picker)
            for task in (self._save(), self._flush(), self._watch_config(), sockets):
                self._spawn(task)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
            collect_less_often()
            log_event(log, "gateway.up", admin=admin, listen=worker.gateway.listen, restored=restored)
            self._log_gate()
            await self._tick()

    async def close(self) -> None:
        """After the tasks have ended: keep what is worth keeping, close what is open."""
        self._worker.not_saved()  # what was learned since the last push is worth a write
        state = self._worker.state_to_save()
        if state is not None:
            self._worker.saved.store(state)
        self._worker.request_log.write(self._worker.request_log.take())
        if self._worker.desk is not None and self._worker.desk.capture is not None:
            self._worker.desk.capture.write(self._worker.desk.capture.take())
        await self._picker.stop()
        if self._epp is not None:
            await self._epp.stop(grace_s=EPP_GRACE_S)
        await self._ads.stop()
        await self._prober.close()

    def _make_epp(self) -> EppServer | None:
        """The server for foreign proxies; a change of its section needs a restart of this process."""
        worker, epp = self._worker, self._worker.gateway.epp
        if not epp.listen:
            return None
        service = DeskPickService(
            lambda: worker.desk,
            clock=time.monotonic,
            cell_at=worker.cell_at,
            address_of=worker.address_of,
            on_outcome=worker.on_outcome,
        )
        clients = Path(epp.tls_clients) if epp.tls_clients else None
        tls = TlsFiles(certificate=Path(epp.tls_certificate), key=Path(epp.tls_key), clients=clients)
        return EppServer(
            epp.listen,
            service,
            ready=lambda: worker.steering.in_force is not None,
            tls=tls if epp.tls_certificate else None,
        )

    async def _start_epp(self) -> None:
        if self._epp is None:
            return
        try:
            await self._epp.start()
        except OSError as error:
            where = self._worker.gateway.epp.listen
            raise CannotStart(f"endpoint picker {where}: {error.strerror or error}") from error

    # --- Effects ----------------------------------------------------------------------------------------------

    def publish(self, snapshot: Snapshot) -> None:
        """Hand a snapshot to Envoy and have it saved soon."""
        self._ads.publish(snapshot)
        self._worker.on_refused(self._ads.refused_addresses())
        self._save_now.set()

    def probe(self, order: ProbeOrder) -> None:
        """Send a synthetic request of a refused shape."""
        self._prober.send(order)

    def sync_cells(self, addresses: dict[str, str]) -> None:
        """Keep exactly these cells' probers."""
        self._paths.sync(addresses)
        self._prober.keep_only(frozenset(addresses))

    def unreachable(self) -> frozenset[str]:
        """Cells that this gateway cannot reach."""
        return self._paths.unreachable()

    def tick_soon(self) -> None:
        """Have a scoring tick within some 10 ms."""
        self._wake.set()

    def save_soon(self) -> None:
        """Something was learned that must not be lost."""
        self._save_now.set()

    def report_soon(self) -> None:
        """Tell every control at once."""
        for link in self._links.values():
            link.report_soon()

    # --- Answers ----------------------------------------------------------------------------------------------

    def status(self) -> GatewayStatus:
        """The state of this moment."""
        return self._describer.status()

    def events_after(self, sequence: int, *, limit: int) -> list[EventRow]:
        """Events newer than `sequence`."""
        return self._worker.ring.after(sequence, limit=limit)

    def summary(self) -> Summary:
        """Outcomes of the last minute."""
        return self._worker.book.summary(now_s=time.monotonic())

    def explain(self, request_id: str) -> Explanation:
        """Why a request went where it went."""
        worker = self._worker
        return explain(worker.desk, request_id, gateway_id=worker.gateway.id, now_s=time.monotonic())

    def reload(self) -> Reloaded:
        """Read the grid file now."""
        return self._take_config(force=True)

    # --- tasks ------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._wake.clear()
            started_s = time.perf_counter()
            self._worker.tick()
            cost_s = time.perf_counter() - started_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            await asyncio.sleep(max(COALESCE_S, cost_s * (1 / MAX_TICK_SHARE - 1)))

    async def _save(self) -> None:
        while True:
            if not await sleep_or(self._save_now, LEARNED_S):
                self._worker.not_saved()
            state = self._worker.state_to_save()
            if state is not None and not await asyncio.to_thread(self._worker.saved.store, state):
                self._worker.not_saved()
            await asyncio.sleep(SAVE_S)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            lines = self._worker.request_log.take()
            if lines:
                await asyncio.to_thread(self._worker.request_log.write, lines)
            desk = self._worker.desk
            if desk is not None and desk.capture is not None:
                await asyncio.to_thread(desk.capture.write, desk.capture.take())

    async def _watch_config(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            self._take_config(force=False)

    def _take_config(self, *, force: bool) -> Reloaded:
        config = self._watch.poll(force=force)
        if config is None:
            return Reloaded(applied=False, error=self._watch.last_error)
        error = self._worker.apply(config)
        if error:
            self._watch.refuse(error)
        self._sync_links()
        return Reloaded(applied=not error, error=error)

    def _sync_links(self) -> None:
        """One link per configured control; a changed address is a new link."""
        wanted = {control.id: control for control in self._worker.config.controls}
        for control_id, link in list(self._links.items()):
            if control_id not in wanted or wanted[control_id].listen != link.address:
                self._links.pop(control_id)
                self._link_tasks.pop(control_id).cancel()
                self._worker.on_control_lost(control_id)
        for control_id in sorted(wanted.keys() - self._links.keys()):
            link = self._make_link(wanted[control_id])
            self._links[control_id] = link
            self._link_tasks[control_id] = self._spawn(link.run())

    def _make_link(self, control: ControlConfig) -> ControlLink:
        worker = self._worker
        return ControlLink(
            control_id=control.id,
            address=control.listen,
            make_report=lambda: worker.report(control.id),
            on_delta=lambda delta: worker.on_delta(control.id, delta),
            on_lost=lambda: worker.on_control_lost(control.id),
            hurry=lambda: worker.desk.sharing.hurry(control.id) if worker.desk is not None else None,
            rng=self._rng,
        )

    def _on_ads(self, event: AdsEvent) -> None:
        self._worker.on_refused(self._ads.refused_addresses())
        detail = " ".join(part for part in (event.type, event.version[:12], event.detail) if part)
        self._worker.ring.add(f"envoy.{event.name}", None, detail)
        if event.name == "nack" and event.type == types.SHORT[types.CLUSTER]:
            gate = self._worker.gate
            self._worker.on_gate_refused(event.detail)
            if self._worker.gate is not gate:
                self._log_gate()

    def _log_gate(self) -> None:
        gate = self._worker.gate
        level = logging.WARNING if gate.missing else logging.INFO
        log_event(log, "gateway.gate", level=level, mode=gate.mode, wanted=gate.wanted, why=gate.why)


def collect_less_often() -> None:
    """What lives now lives long, so later collections skip it; a view makes many young objects at once."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, 20, 50)


def run(config: GridConfig, gateway_id: str, *, grid_file: Path | None = None) -> int:
    """Run one gateway until SIGTERM or SIGINT; returns the exit code.

    `grid_file` is watched for changes; by default the resolved file in state_dir. Raises ConfigError when the file
    has no such gateway or its baseline cannot be read.
    """
    gateway = find_gateway(config, gateway_id)
    if gateway is None:
        known = ", ".join(item.id for item in config.gateways) or "none"
        raise ConfigError(
            "grid", [Problem(where="$.gateways", what=f"no gateway {gateway_id!r}", write=f"one of {known}")]
        )
    setup_logging(f"gateway/{gateway_id}")
    folder = gateway_dir(config, gateway.id)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_one(folder / "gateway.lock", what=f"gateway {gateway_id!r}"))
            prepare(config, gateway)
            findings = find_out(gateway, executable(), folder)
        except OSError as error:
            log_event(log, "gateway.cannot_start", level=logging.ERROR, reason=error)
            return 1
        return run_until_signal(serve(config, gateway, grid_file=grid_file or resolved_path(config), findings=findings))


async def serve(config: GridConfig, gateway: GatewayConfig, *, grid_file: Path, findings: Findings) -> int:
    """Run one gateway inside a running loop until cancelled."""
    rng = random.Random()
    shell: Shell | None = None
    code = 0
    try:
        async with LoopLag().watch() as lag, asyncio.TaskGroup() as group:
            shell = Shell(
                config, gateway, spawn=group.create_task, rng=rng, lag=lag, grid_file=grid_file, findings=findings
            )
            await shell.run()
    except* CannotStart as reasons:
        log_event(log, "gateway.cannot_start", level=logging.ERROR, reason=reasons.exceptions[0])
        code = 1
    finally:
        if shell is not None:
            await shell.close()
    return code
