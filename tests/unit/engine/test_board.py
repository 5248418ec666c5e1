"""One engine's GPU under stress: what is booked, what grows, and what it costs the engine."""

import pytest

from tradewind.engine.board import Contention, EngineBoard, Heat
from tradewind.engine.gpu import GpuModel
from tradewind.engine.law import HEALTHY
from tradewind.engine.profiles import PROFILES


def board() -> EngineBoard:
    return EngineBoard(GpuModel(PROFILES["rtx-pro-6000"].gpu), now_s=0.0)


def test_steps_are_booked_as_far_as_they_ran() -> None:
    gpu = board()
    gpu.on_step(0.0, 4.0, prefill=True, tensor_share=0.5)
    gpu.advance(1.0)
    gpu.ends(2.0)  # cut short
    gpu.on_step(3.0, 3.5, prefill=False, tensor_share=0.0)
    gpu.advance(4.0)
    counters = gpu.model.counters
    assert counters.busy_s == pytest.approx(2.5)
    assert counters.sm_s == pytest.approx(0.92 * 2.0 + 0.80 * 0.5)
    assert counters.tensor_s == pytest.approx(0.80 * 0.5 * 2.0 + 0.10 * 0.5)


def test_heat_throttles_the_clock_and_passes() -> None:
    gpu = board()
    assert gpu.advance(0.25) == HEALTHY
    gpu.heat = Heat(heat_c=70.0, tau_s=2.0)
    for tick in range(2, 100):
        slow = gpu.advance(0.25 * tick)
    assert gpu.model.temperature_c > 92.0
    assert slow.b == pytest.approx(1 / 0.35)
    assert slow.w == 1.0
    gpu.heat = None
    for tick in range(100, 400):
        slow = gpu.advance(0.25 * tick)
    assert slow == HEALTHY


def test_contention_ramps_and_shows() -> None:
    gpu = board()
    gpu.contention = Contention(a0=4.0, ingest=2.0, terms=2.0, ramp_s=2.0)
    half = gpu.advance(1.0)
    assert (half.a0, half.ingest, half.b) == pytest.approx((2.5, 1.5, 1.5))
    full = gpu.advance(2.0)
    assert (full.a0, full.ingest, full.b) == pytest.approx((4.0, 2.0, 2.0))
    assert gpu.model.counters.pcie_tx_bytes == pytest.approx(10e9, rel=0.01)  # of the second before
    gpu.contention = None
    assert gpu.advance(3.0) == HEALTHY


def test_a_look_at_the_same_moment_changes_nothing() -> None:
    gpu = board()
    gpu.on_step(0.0, 1.0, prefill=True, tensor_share=1.0)
    gpu.advance(1.0)
    power_w = gpu.model.power_w
    assert power_w > 500.0
    gpu.advance(1.0)
    assert gpu.model.power_w == power_w
