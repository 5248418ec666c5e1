"""One emulated DCGM exporter as a process: samples the GPUs of its site at its interval, serves the last sample."""

import asyncio
import contextlib
import math
import socket
import time
from dataclasses import replace

import msgspec
import uvloop

from tradewind.emulator.dcgm import GpuRow, render
from tradewind.emulator.faults import ExporterFaults
from tradewind.emulator.http import Exchange, HttpServer
from tradewind.emulator.plan import ExporterGpu, ExporterSettings
from tradewind.emulator.shared import Board, Slot
from tradewind.emulator.supervisor import APPLIED
from tradewind.emulator.wan import Listener
from tradewind.engine.gpu import GpuModel, signals
from tradewind.engine.profiles import PROFILES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COOLING_TAU_S = 60.0


def run_exporter(settings: ExporterSettings, control: socket.socket, board: Board) -> int:
    """Runs until the other end of `control` closes or the process is killed. Returns the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(settings, control, board))
    return 0


async def _main(settings: ExporterSettings, control: socket.socket, board: Board) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    exporter = Exporter(settings, board)
    server = HttpServer(exporter, loop)
    control.setblocking(False)

    def on_control() -> None:
        message = control.recv(1 << 20)
        if message:
            exporter.faults = msgspec.json.decode(message, type=ExporterFaults)
            with contextlib.suppress(BrokenPipeError):  # the supervisor has just gone; the next read says so
                control.send(APPLIED)
        else:
            loop.remove_reader(control.fileno())
            ended.set()

    loop.add_reader(control.fileno(), on_control)
    listener = Listener(address=settings.address, factory=server.factory(), loop=loop)
    while not ended.is_set():
        exporter.sample(time.monotonic())
        try:
            await asyncio.wait_for(ended.wait(), settings.interval_s)
        except TimeoutError:
            continue
    listener.close()


class Exporter:
    """The page of one site."""

    def __init__(self, settings: ExporterSettings, board: Board) -> None:
        self.faults = ExporterFaults()
        self._settings = settings
        self._board = board
        self._seen: dict[str, Slot] = {}
        self._sampled_s: float | None = None
        self._cooling_c: dict[str, float] = {}
        self._rows: tuple[GpuRow, ...] = ()

    def sample(self, now_s: float) -> None:
        """Takes one sample; frozen, it keeps the old one."""
        if self.faults.mode == "frozen" and self._rows:
            return
        dt_s = max(1e-3, now_s - self._sampled_s) if self._sampled_s is not None else self._settings.interval_s
        self._sampled_s = now_s
        self._rows = tuple(self._row(gpu, dt_s) for gpu in self._settings.gpus)

    def handle(self, exchange: Exchange) -> None:
        """GET /metrics and /health."""
        path = exchange.request.path
        if path == "/metrics":
            rows = [row for row in self._rows if row.uuid not in self.faults.missing_gpus]
            mode = self.faults.mode
            new_names = self._settings.new_names
            body = b"" if mode == "empty" else render(rows, new_names=new_names, sentinels=mode == "sentinels")
            _respond(exchange, 200, body, CONTENT_TYPE)
        elif path == "/health":
            _respond(exchange, 200, b"KO" if not self._rows else b"OK", "text/plain; charset=utf-8")
        else:
            _respond(exchange, 404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _row(self, gpu: ExporterGpu, dt_s: float) -> GpuRow:
        slot = self._board.read(gpu.slot)
        before = self._seen.get(gpu.uuid, slot)
        if slot.counters.energy_j < before.counters.energy_j:  # the engine has restarted and counts from 0
            before = replace(slot)
        self._seen[gpu.uuid] = slot
        board = PROFILES[gpu.profile].gpu
        idle = GpuModel(board)
        alive = slot.alive > 0
        temperature_c = slot.temperature_c if alive else self._cooled(gpu.uuid, idle.temperature_c, dt_s)
        if alive:
            self._cooling_c[gpu.uuid] = temperature_c
        return GpuRow(
            index=gpu.index,
            uuid=gpu.uuid,
            hostname=f"{self._settings.site}-gpu-host",
            gpu=board,
            # The engine's own time between the two readings: it writes a few times a second, not when asked.
            signals=signals(before.counters, slot.counters, slot.at_s - before.at_s or dt_s),
            temperature_c=temperature_c,
            power_w=slot.power_w if alive else board.idle_w,
            clock_ratio=slot.clock_ratio if alive else 1.0,
            throttle_bits=int(slot.throttle_bits) if alive else 1,
            energy_j=slot.counters.energy_j,
            thermal_violation_s=slot.counters.thermal_violation_s,
            xid=int(slot.xid),
            pcie_replays=int(slot.pcie_replays),
            loaded=alive,
        )

    def _cooled(self, uuid: str, idle_c: float, dt_s: float) -> float:
        """A board whose engine is gone cools down to its idle temperature."""
        kept = math.exp(-dt_s / _COOLING_TAU_S)
        cooled_c = idle_c + (self._cooling_c.get(uuid, idle_c) - idle_c) * kept
        self._cooling_c[uuid] = cooled_c
        return cooled_c


def _respond(exchange: Exchange, status: int, body: bytes, content_type: str) -> None:
    exchange.respond(status, body, (("content-length", str(len(body))), ("content-type", content_type)))
