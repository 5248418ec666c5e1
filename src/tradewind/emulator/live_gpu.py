"""An engine's GPU in real time: books steps, ramps faults, publishes to the exporter, slows the engine down."""

import math

from tradewind.emulator.faults import EngineFaults
from tradewind.emulator.shared import Board, Slot
from tradewind.engine.gpu import DEFAULT_CLOCK_FLOOR, GpuModel, Occupancy
from tradewind.engine.law import SlowDown, clock_slow_down
from tradewind.engine.scheduler import EngineModel, StepPlan

TICK_S = 0.25


class LiveGpu:
    """The GPU of one engine process; `tick` every TICK_S."""

    def __init__(self, *, model: GpuModel, engine: EngineModel, board: Board, slot: int, now_s: float) -> None:
        self._model = model
        self._engine = engine
        self._board = board
        self._slot = slot
        self._ticked_s = now_s
        self._booked_s = now_s
        self._step_end_s = now_s
        self._step_prefill = False
        self._step_tensor = 0.0
        self._prefill_s = 0.0
        self._decode_s = 0.0
        self._tensor_s = 0.0
        self._pcie_ramp = 0.0

    def on_plan(self, plan: StepPlan, start_s: float, end_s: float) -> None:
        """A step begins."""
        self._book(start_s)
        self._booked_s = start_s
        self._step_end_s = end_s
        self._step_prefill = plan.load.prefill_tokens > 0
        self._step_tensor = plan.tensor_share

    def tick(self, faults: EngineFaults, now_s: float) -> None:
        """Lets time pass up to now and publishes."""
        self._book(now_s)
        dt_s = max(1e-6, now_s - self._ticked_s)
        self._ticked_s = now_s
        self._ramp_heat(faults, dt_s)
        self._model.advance(
            Occupancy(
                dt_s=dt_s,
                prefill_s=min(self._prefill_s, dt_s),
                decode_s=min(self._decode_s, dt_s),
                tensor_s=min(self._tensor_s, dt_s),
            )
        )
        self._prefill_s = self._decode_s = self._tensor_s = 0.0
        self._engine.slow = self._slow_down(faults, dt_s)
        self._publish(now_s)

    def _book(self, until_s: float) -> None:
        """Books the step under way up to `until_s`; a hung step keeps the GPU as idle as a dead one does."""
        spent_s = min(until_s, self._step_end_s) - self._booked_s
        if spent_s <= 0.0:
            return
        self._booked_s += spent_s
        if self._step_prefill:
            self._prefill_s += spent_s
            self._tensor_s += spent_s * self._step_tensor
        else:
            self._decode_s += spent_s

    def _ramp_heat(self, faults: EngineFaults, dt_s: float) -> None:
        thermal = faults.thermal
        target_c = thermal.heat_c if thermal else 0.0
        tau_s = thermal.tau_s if thermal else 8.0
        self._model.clock_floor = thermal.floor if thermal else DEFAULT_CLOCK_FLOOR
        kept = math.exp(-dt_s / tau_s)
        self._model.ambient_extra_c = target_c + (self._model.ambient_extra_c - target_c) * kept

    def _slow_down(self, faults: EngineFaults, dt_s: float) -> SlowDown:
        slow = SlowDown(**faults.slow).times(clock_slow_down(self._model.clock_ratio))
        pcie = faults.pcie
        if pcie is None:
            self._pcie_ramp = self._model.pcie_extra_bytes_per_s = 0.0
            return slow
        self._pcie_ramp = min(1.0, self._pcie_ramp + dt_s / max(dt_s, pcie.ramp_s))
        self._model.pcie_extra_bytes_per_s = pcie.bytes_per_s * self._pcie_ramp
        grown = SlowDown(a0=1.0 + (pcie.a0 - 1.0) * self._pcie_ramp, ingest=1.0 + (pcie.ingest - 1.0) * self._pcie_ramp)
        return slow.times(grown)

    def _publish(self, now_s: float) -> None:
        model = self._model
        self._board.write(
            self._slot,
            Slot(
                at_s=now_s,
                alive=1.0,
                temperature_c=model.temperature_c,
                power_w=model.power_w,
                clock_ratio=model.clock_ratio,
                throttle_bits=float(model.throttle_bits),
                xid=0.0,
                pcie_replays=0.0,
                die_c=model.die_c,
                counters=model.counters,
            ),
        )
