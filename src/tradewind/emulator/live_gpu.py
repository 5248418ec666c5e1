"""An engine's GPU in real time: its board, published to the exporter, and the engine slowed down by it."""

from tradewind.emulator.faults import EngineFaults
from tradewind.emulator.shared import Board, Slot
from tradewind.engine.board import EngineBoard
from tradewind.engine.gpu import GpuModel
from tradewind.engine.law import SlowDown
from tradewind.engine.scheduler import EngineModel, StepPlan

TICK_S = 0.25


class LiveGpu:
    """The GPU of one engine process; `tick` every TICK_S."""

    def __init__(self, *, model: GpuModel, engine: EngineModel, board: Board, slot: int, now_s: float) -> None:
        self._gpu = EngineBoard(model, now_s=now_s)
        self._engine = engine
        self._board = board
        self._slot = slot

    def on_plan(self, plan: StepPlan, start_s: float, end_s: float) -> None:
        """A step begins."""
        self._gpu.on_step(start_s, end_s, prefill=plan.load.prefill_tokens > 0, tensor_share=plan.tensor_share)

    def tick(self, faults: EngineFaults, now_s: float) -> None:
        """Lets time pass up to now and publishes."""
        self._gpu.heat, self._gpu.contention = faults.thermal, faults.pcie
        self._engine.slow = SlowDown(**faults.slow).times(self._gpu.advance(now_s))
        self._publish(now_s)

    def _publish(self, now_s: float) -> None:
        model = self._gpu.model
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
