"""The GPU signal model: from the share of time in prefill and decode to what a DCGM exporter would show.

Formulas: the project's simulation reference, section 5. With p and d the shares of time in steps with and without
prefill: GPU_UTIL p + d, SM .92p + .80d, tensor .80p * (bT / sqrt(w^2 + (bT)^2)) + .10d, DRAM .20p + .80d, power
idle + (TDP - idle)(.95p + .6d), temperature two-pole (die 60 % with 4 s, heat sink 40 % with 60 s), clock 1 up to
83 degrees and linear down to its floor at 92.
"""

import math
from dataclasses import dataclass

import msgspec

from tradewind.engine.profiles import Gpu

THROTTLE_FROM_C = 83.0
FLOOR_AT_C = 92.0
VRAM_USED_RATIO = 0.90
BIT_IDLE = 0x1
BIT_HW_SLOWDOWN = 0x8
BIT_SW_THERMAL = 0x20
BIT_HW_THERMAL = 0x40
DEFAULT_CLOCK_FLOOR = 0.35

_AMBIENT_C = 30.0
_RISE_AT_TDP_C = 48.0
_DIE_SHARE = 0.6
_DIE_TAU_S = 4.0
_SINK_TAU_S = 60.0
_PCIE_IDLE_BYTES_PER_S = 2e6
_PCIE_BUSY_BYTES_PER_S = 40e6


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """How a stretch of `dt_s` seconds was spent."""

    dt_s: float
    prefill_s: float = 0.0
    decode_s: float = 0.0
    tensor_s: float = 0.0  # prefill time weighted with its tensor share


@dataclass(slots=True, kw_only=True)
class GpuCounters:
    """Cumulative since start; rates come from differences."""

    busy_s: float = 0.0
    sm_s: float = 0.0
    tensor_s: float = 0.0
    dram_s: float = 0.0
    energy_j: float = 0.0
    pcie_tx_bytes: float = 0.0
    pcie_rx_bytes: float = 0.0
    thermal_violation_s: float = 0.0

    def copy(self) -> "GpuCounters":
        """As they are now; `dataclasses.replace` takes three times as long."""
        return GpuCounters(
            busy_s=self.busy_s,
            sm_s=self.sm_s,
            tensor_s=self.tensor_s,
            dram_s=self.dram_s,
            energy_j=self.energy_j,
            pcie_tx_bytes=self.pcie_tx_bytes,
            pcie_rx_bytes=self.pcie_rx_bytes,
            thermal_violation_s=self.thermal_violation_s,
        )


class GpuSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What an exporter shows for one interval; ratios 0..1."""

    util_ratio: float
    sm_active_ratio: float
    tensor_active_ratio: float
    dram_active_ratio: float
    pcie_tx_bytes_per_s: float
    pcie_rx_bytes_per_s: float


class GpuModel:
    """One board. Deterministic; time comes in as lengths."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.counters = GpuCounters()
        self.clock_floor = DEFAULT_CLOCK_FLOOR
        self.ambient_extra_c = 0.0
        self.pcie_extra_bytes_per_s = 0.0
        self.power_w = gpu.idle_w
        idle_rise_c = self._rise_c(gpu.idle_w)
        self.die_c = _DIE_SHARE * idle_rise_c
        self.sink_c = (1.0 - _DIE_SHARE) * idle_rise_c

    @property
    def temperature_c(self) -> float:
        """Of the die."""
        return _AMBIENT_C + self.ambient_extra_c + self.die_c + self.sink_c

    @property
    def clock_ratio(self) -> float:
        """SM clock over its maximum."""
        over = (self.temperature_c - THROTTLE_FROM_C) / (FLOOR_AT_C - THROTTLE_FROM_C)
        return 1.0 - (1.0 - self.clock_floor) * min(1.0, max(0.0, over))

    @property
    def throttle_bits(self) -> int:
        """NVML's clocks-event reasons."""
        if self.temperature_c >= FLOOR_AT_C:
            return BIT_HW_SLOWDOWN | BIT_SW_THERMAL | BIT_HW_THERMAL
        if self.temperature_c > THROTTLE_FROM_C:
            return BIT_SW_THERMAL
        return BIT_IDLE if self.power_w <= self.gpu.idle_w * 1.05 else 0

    def advance(self, spent: Occupancy) -> None:
        """Lets a stretch of time pass."""
        if spent.dt_s <= 0.0:
            return
        prefill, decode, tensor = spent.prefill_s, spent.decode_s, spent.tensor_s
        load = min(1.0, (0.95 * prefill + 0.6 * decode) / spent.dt_s)
        self.power_w = self.gpu.idle_w + (self.gpu.tdp_w - self.gpu.idle_w) * load * self.clock_ratio
        rise_c = self._rise_c(self.power_w)
        self.die_c = _approach(self.die_c, _DIE_SHARE * rise_c, spent.dt_s / _DIE_TAU_S)
        self.sink_c = _approach(self.sink_c, (1.0 - _DIE_SHARE) * rise_c, spent.dt_s / _SINK_TAU_S)
        counters = self.counters
        counters.busy_s += prefill + decode
        counters.sm_s += 0.92 * prefill + 0.80 * decode
        counters.tensor_s += 0.80 * tensor + 0.10 * decode
        counters.dram_s += 0.20 * prefill + 0.80 * decode
        counters.energy_j += self.power_w * spent.dt_s
        busy_bytes = _PCIE_BUSY_BYTES_PER_S * (prefill + decode) + _PCIE_IDLE_BYTES_PER_S * spent.dt_s
        extra_bytes = self.pcie_extra_bytes_per_s * spent.dt_s
        counters.pcie_tx_bytes += busy_bytes + extra_bytes
        counters.pcie_rx_bytes += busy_bytes * 0.5 + extra_bytes
        if self.temperature_c > THROTTLE_FROM_C:
            counters.thermal_violation_s += spent.dt_s

    def _rise_c(self, power_w: float) -> float:
        return _RISE_AT_TDP_C * power_w / self.gpu.tdp_w


def signals(before: GpuCounters, after: GpuCounters, dt_s: float) -> GpuSignals:
    """Rates over an interval of `dt_s` > 0 seconds."""
    assert dt_s > 0

    def ratio(earlier: float, later: float) -> float:
        return min(1.0, max(0.0, (later - earlier) / dt_s))

    return GpuSignals(
        util_ratio=ratio(before.busy_s, after.busy_s),
        sm_active_ratio=ratio(before.sm_s, after.sm_s),
        tensor_active_ratio=ratio(before.tensor_s, after.tensor_s),
        dram_active_ratio=ratio(before.dram_s, after.dram_s),
        pcie_tx_bytes_per_s=max(0.0, (after.pcie_tx_bytes - before.pcie_tx_bytes) / dt_s),
        pcie_rx_bytes_per_s=max(0.0, (after.pcie_rx_bytes - before.pcie_rx_bytes) / dt_s),
    )


def _approach(value: float, target: float, time_constants: float) -> float:
    return target + (value - target) * math.exp(-time_constants)
