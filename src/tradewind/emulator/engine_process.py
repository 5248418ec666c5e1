"""One emulated engine as a process: listeners, engine model, GPU, faults by control socket, SIGTERM as vLLM's."""

import asyncio
import contextlib
import logging
import random
import signal
import socket
import time

import msgspec
import uvloop

from tradewind.config.schema import EmulatedKvEventsConfig
from tradewind.emulator.faults import EngineFaults, PathFault
from tradewind.emulator.http import HttpServer
from tradewind.emulator.kv_events import KvEventLog, KvPublisher, sources
from tradewind.emulator.live import HUNG, LiveEngine
from tradewind.emulator.live_gpu import TICK_S, LiveGpu
from tradewind.emulator.plan import EngineSettings
from tradewind.emulator.shared import Board
from tradewind.emulator.supervisor import APPLIED
from tradewind.emulator.vllm_app import VllmApp
from tradewind.emulator.vllm_metrics import CacheConfig, VllmMetrics
from tradewind.emulator.vllm_pages import ServedModel
from tradewind.emulator.wan import Listener, Path, Wan
from tradewind.engine.gpu import GpuModel
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits, EngineModel, StepOutcome, StepPlan

log = logging.getLogger(__name__)

REFUSED_SHARE = 0.6  # of a start delay: the port refuses; for the rest /health is 503
COLD_FIRST_STEP_S = 0.5
LAST_WORDS_S = 2.0  # how long a terminating engine lets its last bytes travel


def run_engine(settings: EngineSettings, control: socket.socket, board: Board) -> int:
    """Runs until SIGTERM, or until the other end of `control` closes. Returns the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(settings, control, board))
    return 0


async def _main(settings: EngineSettings, control: socket.socket, board: Board) -> None:
    process = EngineProcess(settings, control, board, asyncio.get_running_loop())
    await process.run()


class EngineProcess:
    """Composition root of one engine."""

    def __init__(
        self, settings: EngineSettings, control: socket.socket, board: Board, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._settings = settings
        self._control = control
        self._loop = loop
        self._faults = EngineFaults()
        self._ended = asyncio.Event()
        profile = PROFILES[settings.profile]
        limits = EngineLimits(
            max_num_seqs=settings.max_num_seqs,
            block_size_tokens=settings.block_size_tokens,
            kv_capacity_tokens=settings.kv_capacity_tokens,
        )
        self._model = EngineModel(profile=profile, limits=limits)
        self._publisher = self._publish(settings.kv_events)
        self._live = LiveEngine(model=self._model, loop=loop, on_step=self._on_step, on_plan=self._on_plan)
        self._metrics = VllmMetrics(
            engine=self._model,
            model_name=settings.names[0],
            cache=CacheConfig(settings.block_size_tokens, self._model.pool.blocks, settings.max_model_len),
        )
        served = ServedModel(
            names=settings.names,
            max_model_len=settings.max_model_len,
            max_num_queued_reqs=settings.max_num_queued_reqs,
            block_size_tokens=settings.block_size_tokens,
            kv_event_sources=sources(settings.kv_events),
        )
        self._app = VllmApp(served=served, metrics=self._metrics, engine=self._live)
        self._gpu = LiveGpu(
            model=GpuModel(profile.gpu), engine=self._model, board=board, slot=settings.slot, now_s=time.monotonic()
        )
        self._server = HttpServer(self._app, loop)
        rng = random.Random(settings.seed)
        self._paths = {site: Path(wan=wan, rng=rng, loop=loop) for site, (_, wan) in settings.paths.items()}
        self._listeners: dict[str, Listener] = {}

    def _publish(self, kv_events: EmulatedKvEventsConfig | None) -> KvPublisher | None:
        if kv_events is None:
            return None
        listener = KvEventLog(block_size_tokens=self._settings.block_size_tokens, arrays=kv_events.encoding == "array")
        self._model.pool.listener = listener
        return KvPublisher(kv_events, listener)

    async def run(self) -> None:
        """Starts, serves, ends."""
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._on_control)
        self._loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        self._tick()
        await self._start()
        await self._ended.wait()
        deadline_s = self._loop.time() + LAST_WORDS_S
        while self._server.connections and self._loop.time() < deadline_s:  # noqa: ASYNC110 -- no event per connection
            await asyncio.sleep(0.02)

    # -- start --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        delay_s = self._settings.start_delay_s
        await self._wait_or_end(delay_s * REFUSED_SHARE)
        if self._ended.is_set():
            return
        self._app.loading = delay_s > 0
        self._listen()
        await self._wait_or_end(delay_s * (1 - REFUSED_SHARE))
        self._app.loading = False
        self._live.first_step_extra_s = COLD_FIRST_STEP_S if delay_s > 0 else 0.0

    async def _wait_or_end(self, wait_s: float) -> None:
        if wait_s > 0:
            try:
                await asyncio.wait_for(self._ended.wait(), wait_s)
            except TimeoutError:
                return

    def _listen(self) -> None:
        addresses = {"": self._settings.address} | {
            site: address for site, (address, _) in self._settings.paths.items()
        }
        for site, address in addresses.items():
            factory = self._server.factory(self._paths.get(site))
            self._listeners[site] = Listener(address=address, factory=factory, loop=self._loop)
        self._apply_paths()

    # -- run ----------------------------------------------------------------------------------------------------------

    def _on_step(self, outcome: StepOutcome) -> None:
        self._app.on_step(outcome)
        if self._publisher is not None:
            self._publisher.publish()

    def _on_plan(self, plan: StepPlan, start_s: float, end_s: float) -> None:
        self._gpu.on_plan(plan, start_s, end_s)

    def _tick(self) -> None:
        self._loop.call_later(TICK_S, self._tick)
        self._gpu.tick(self._faults, time.monotonic())

    # -- faults and end -----------------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        message = self._control.recv(1 << 20)
        if not message:
            self._loop.remove_reader(self._control.fileno())
            self._end()  # the supervisor is gone
            return
        self._apply(msgspec.json.decode(message, type=EngineFaults))
        with contextlib.suppress(BrokenPipeError):  # the supervisor has just gone; the next read says so
            self._control.send(APPLIED)

    def _apply(self, faults: EngineFaults) -> None:
        self._faults = faults
        self._app.set_faults(faults)
        self._metrics.hold_gauges(faults.hang)
        if self._publisher is not None:
            self._publisher.silent = faults.kv_events_silent
        if faults.hang:
            self._live.hold(HUNG)
        else:
            self._live.release(HUNG)
        self._gpu.tick(faults, time.monotonic())
        self._apply_paths()

    def _apply_paths(self) -> None:
        for site, path in self._paths.items():
            fault = self._faults.paths.get(site, PathFault())
            path.wan = _faulty(self._settings.paths[site][1], fault)
            path.set_cut(fault.cut, reset_after_s=fault.reset_after_s)
            if site in self._listeners:
                self._listeners[site].set_cut(fault.cut)

    def _on_terminate(self) -> None:
        timeout_s = self._faults.shutdown_timeout_s
        if timeout_s > 0 and self._app.in_flight > 0 and not self._app.draining:
            self._app.draining = True
            self._app.on_idle = self._end
            self._loop.call_later(timeout_s, self._end)
        else:
            self._end()

    def _end(self) -> None:
        if self._ended.is_set():
            return
        for listener in self._listeners.values():
            listener.close()
        self._app.fail_all()
        self._server.close_idle()
        if self._publisher is not None:
            self._publisher.close()
        self._ended.set()


def _faulty(wan: Wan, fault: PathFault) -> Wan:
    return Wan(
        rtt_s=wan.rtt_s if fault.rtt_ms is None else fault.rtt_ms / 1e3,
        jitter_s=wan.jitter_s if fault.jitter_ms is None else fault.jitter_ms / 1e3,
        bytes_per_s=wan.bytes_per_s if fault.mbit_per_s is None else fault.mbit_per_s * 1e6 / 8,
    )
