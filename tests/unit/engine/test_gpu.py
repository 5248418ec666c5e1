"""The GPU signal model: what load, heat and a dead engine look like to DCGM."""

from dataclasses import replace

import pytest

from tradewind.engine.gpu import (
    BIT_HW_SLOWDOWN,
    BIT_IDLE,
    BIT_SW_THERMAL,
    GpuModel,
    GpuSignals,
    Occupancy,
    signals,
)
from tradewind.engine.profiles import PROFILES

RTX = PROFILES["rtx-pro-6000"].gpu


def after(
    model: GpuModel, seconds: float, *, prefill: float = 0.0, decode: float = 0.0, tensor: float = 1.0
) -> GpuSignals:
    before = replace(model.counters)
    for _ in range(round(seconds * 4)):
        model.advance(
            Occupancy(dt_s=0.25, prefill_s=0.25 * prefill, decode_s=0.25 * decode, tensor_s=0.25 * prefill * tensor)
        )
    return signals(before, model.counters, seconds)


def test_an_idle_gpu() -> None:
    model = GpuModel(RTX)
    shown = after(model, 10)
    assert shown.util_ratio == shown.tensor_active_ratio == shown.dram_active_ratio == 0.0
    assert model.power_w == RTX.idle_w
    assert model.throttle_bits == BIT_IDLE
    assert model.clock_ratio == 1.0


def test_ratios_follow_the_reference() -> None:
    shown = after(GpuModel(RTX), 10, prefill=0.3, decode=0.7, tensor=0.95)
    assert shown.util_ratio == pytest.approx(1.0)
    assert shown.sm_active_ratio == pytest.approx(0.92 * 0.3 + 0.80 * 0.7)
    assert shown.tensor_active_ratio == pytest.approx(0.80 * 0.3 * 0.95 + 0.10 * 0.7)
    assert shown.dram_active_ratio == pytest.approx(0.20 * 0.3 + 0.80 * 0.7)


def test_util_saturates_while_tensor_tells_the_load() -> None:
    light = after(GpuModel(RTX), 10, prefill=0.1, decode=0.9)
    heavy = after(GpuModel(RTX), 10, prefill=0.8, decode=0.2)
    assert light.util_ratio == heavy.util_ratio == pytest.approx(1.0)
    assert heavy.tensor_active_ratio > 3 * light.tensor_active_ratio
    assert heavy.dram_active_ratio < light.dram_active_ratio


def test_full_load_stays_below_the_throttle() -> None:
    model = GpuModel(RTX)
    after(model, 600, prefill=1.0)
    assert 70 < model.temperature_c < 83
    assert model.power_w == pytest.approx(0.95 * (RTX.tdp_w - RTX.idle_w) + RTX.idle_w)
    assert model.throttle_bits == 0


def test_the_die_warms_up_faster_than_the_heat_sink() -> None:
    model = GpuModel(RTX)
    cold_c = model.temperature_c
    after(model, 8, prefill=1.0)
    quick_c = model.temperature_c
    after(model, 300, prefill=1.0)
    assert quick_c - cold_c > 0.5 * (model.temperature_c - cold_c)
    assert model.temperature_c > quick_c + 5


def test_a_cooling_failure_throttles_and_heals() -> None:
    model = GpuModel(RTX)
    after(model, 60, prefill=0.3, decode=0.7)
    model.ambient_extra_c = 45.0
    after(model, 5, prefill=0.3, decode=0.7)
    assert model.clock_ratio == pytest.approx(model.clock_floor)
    assert model.throttle_bits & BIT_HW_SLOWDOWN
    assert model.counters.thermal_violation_s > 4
    model.ambient_extra_c = 30.0
    after(model, 5, prefill=0.3, decode=0.7)
    assert model.clock_floor < model.clock_ratio < 1.0
    assert model.throttle_bits == BIT_SW_THERMAL
    model.ambient_extra_c = 0.0
    after(model, 5, prefill=0.3, decode=0.7)
    assert model.clock_ratio == 1.0


def test_pcie_contention_shows_on_both_directions() -> None:
    model = GpuModel(RTX)
    model.pcie_extra_bytes_per_s = 20e9
    shown = after(model, 4)
    assert shown.pcie_tx_bytes_per_s > 19e9
    assert shown.pcie_rx_bytes_per_s > 19e9


def test_counters_only_grow() -> None:
    model = GpuModel(RTX)
    energy_j = 0.0
    for _ in range(20):
        model.advance(Occupancy(dt_s=0.25, decode_s=0.1))
        assert model.counters.energy_j > energy_j
        energy_j = model.counters.energy_j
    model.advance(Occupancy(dt_s=0.0))
    assert model.counters.energy_j == energy_j
