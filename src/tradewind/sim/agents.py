"""An agent in virtual time: what it believes of one engine and one exporter, in the words of its heartbeats.

Holds and the watch for frozen values are the live agent's own; what it reads comes from the simulated cell.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Literal

from tradewind.core.frozen import FrozenWatch
from tradewind.core.hold import Hold
from tradewind.core.prefix.horizon import CacheHorizon
from tradewind.model.cell import Cell
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import EngineReading, GpuReading, Telemetry
from tradewind.sim.cell import Condition, SimCell

DCGM_FALLBACK = "dcgm_fallback"
GPU_FROZEN = "gpu_frozen"
ENGINE_METRICS_STALE = "engine_metrics_stale"

_READY = Evidence(reachable=True, model_listed=True, warmed_up=True)
_WARMING = Evidence(reachable=True, model_listed=True, warmed_up=False, reason="warming up")
_DEAD = Evidence(reachable=False, reason="connection refused")


class SimAgent:
    """One agent beside one cell."""

    def __init__(self, cell: SimCell, described: Cell, *, scrape_s: float, kv_events: bool) -> None:
        self.exporter: Literal["ok", "dead", "frozen"] = "ok"
        self.silent = False  # without power, or cut off from every control
        self._cell = cell
        self._described = described
        self._scrape_s = scrape_s
        self._kv_events = kv_events
        self._starts = 0
        self._begin()

    def _begin(self) -> None:
        stale_after_s = 3.0 * self._scrape_s + 0.5
        self._sequence = 0
        self._engine: Hold[EngineReading] = Hold(stale_after_s)
        self._gpu: Hold[GpuReading] = Hold(stale_after_s)
        self._frozen = FrozenWatch()
        self._steps: float | None = None
        self._horizon = CacheHorizon() if self._kv_events else None
        if self._horizon is not None:
            self._cell.listen(self._horizon)

    def restart(self) -> None:
        """A new process: nothing is known to it."""
        self._starts += 1
        self._begin()

    def scrape(self, now_s: float) -> None:
        """Read the engine's page and the exporter's."""
        worked = False
        if self._cell.condition is Condition.SERVING:
            reading = self._cell.reading()
            worked = self._steps is not None and reading.steps_total != self._steps
            self._steps = reading.steps_total
            self._engine.hit(reading, now_s)
        else:
            self._engine.miss("connection refused")
        self._read_exporter(now_s, worked=worked)

    def engine_ended(self) -> None:
        """Nothing read from the old process holds for the next one."""
        self._engine.forget("the engine has ended")
        self._steps = None
        if self._horizon is not None:
            self._horizon.cleared()  # the next process counts its messages from the beginning

    def _read_exporter(self, now_s: float, *, worked: bool) -> None:
        if self.exporter == "dead":
            self._gpu.miss("exporter: connection refused")
            return
        reading = self._cell.gpu_reading()
        old = self._gpu.read(now_s).value
        if self.exporter == "frozen" and old is not None:
            reading = old
        self._frozen.look(hash(_values(reading)), engine_worked=worked, now_s=now_s)
        self._gpu.hit(reading, now_s)

    def exporter_lost(self) -> None:
        """The connection broke, and a look at once found nobody."""
        self._gpu.miss("exporter: connection refused")

    def heartbeat(self, now_s: float) -> Heartbeat:
        """What it has to say now."""
        self._sequence += 1
        return Heartbeat(
            cell=self._described,
            incarnation=f"sim-{self._starts}" if self._starts else "sim",
            sequence=self._sequence,
            evidence=self._evidence(),
            telemetry=self._telemetry(now_s),
        )

    def _evidence(self) -> Evidence:
        match self._cell.condition:
            case Condition.SERVING:
                return _READY
            case Condition.WARMING:
                return _WARMING
            case Condition.DOWN:
                return _DEAD

    def _telemetry(self, now_s: float) -> Telemetry:
        engine, gpu = self._engine.read(now_s), self._gpu.read(now_s)
        flags: tuple[str, ...] = ()
        if engine.value is None and self._engine.missed:
            flags += (ENGINE_METRICS_STALE,)
        if self._gpu.missed:
            flags += (DCGM_FALLBACK,)
        telemetry = Telemetry(
            engine=engine.value,
            engine_age_s=engine.age_s,
            gpu=gpu.value,
            gpu_age_s=gpu.age_s,
            gpu_interval_s=self._frozen.interval_s,
            flags=tuple(sorted(flags)),
            cache=None if self._horizon is None else self._horizon.reading(now_s),
        )
        if self._frozen.is_frozen:
            flags = tuple(sorted({*flags, DCGM_FALLBACK, GPU_FROZEN}))
            return replace(telemetry, gpu=None, gpu_age_s=None, flags=flags)
        return telemetry


def _values(reading: GpuReading) -> Hashable:
    """What moves while a GPU works."""
    return (
        reading.power_w, reading.sm_clock_hz, reading.util_ratio, reading.temperature_c,
        reading.sm_active_ratio, reading.tensor_active_ratio, reading.dram_active_ratio,
    )  # fmt: skip
