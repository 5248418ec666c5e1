"""Signs that a cell is about to slow down or fail, each with its cause; they drain before users notice (17-18)."""

import math
from collections import deque
from dataclasses import dataclass, field

from tradewind.core.numbers import clip, ewma, known
from tradewind.core.residual import TensorResidual
from tradewind.core.settings import AlertSettings
from tradewind.model.telemetry import EngineReading, GpuReading

# NVML clocks-event reasons (bit values of the public NVML header).
SW_POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SW_THERMAL = 0x20
HW_THERMAL = 0x40
POWER_BRAKE = 0x80
THERMAL_BITS = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL

# XIDs that tell of the application, not of the GPU: an engine bug must not condemn the hardware.
_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68})


@dataclass(slots=True)
class LearnedMaximum:
    """The largest value in about the last week of normal running; usable after a day of it."""

    value: float | None = None
    since_s: float | None = None
    read_s: float = 0.0

    def update(self, value: float, *, memory_s: float, now_s: float) -> None:
        """Takes a value from normal running; the maximum fades slowly towards it."""
        if self.value is None or self.since_s is None:
            self.value, self.since_s = value, now_s
        elif value >= self.value:
            self.value = value
        else:
            self.value -= (self.value - value) * min(1.0, (now_s - self.read_s) / memory_s)
        self.read_s = now_s

    def usable(self, *, learn_s: float, now_s: float) -> float | None:
        """The maximum once it has been learned for `learn_s`."""
        return self.value if self.since_s is not None and now_s - self.since_s >= learn_s else None


@dataclass(slots=True)
class Streak:
    """Seconds for which a condition has held without a break."""

    since_s: float | None = None

    def update(self, *, holds: bool, now_s: float) -> float:
        """The length of the streak at `now_s`; 0 when it does not hold."""
        if not holds:
            self.since_s = None
            return 0.0
        if self.since_s is None:
            self.since_s = now_s
        return now_s - self.since_s


@dataclass(frozen=True, slots=True)
class Symptom:
    """A cause that is present now."""

    cause: str  # "thermal" | "foreign-load" | "clock" | "pcie" | "kv" | "xid" | "ecc"
    detail: str


@dataclass(slots=True)
class Alert:
    """An alert in force on one cell: it clears `clear_s` after its last symptom."""

    cause: str
    detail: str
    since_s: float
    symptom_s: float
    promised: bool = True  # False: GPU values change too rarely for lead


@dataclass(slots=True)
class AlertTrack:
    """All watches of one cell."""

    hardware: float | None = None  # EWMA of the hardware group
    residual: TensorResidual = field(default_factory=TensorResidual)
    temperatures: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    temperature_max: LearnedMaximum = field(default_factory=LearnedMaximum)
    pcie_max: LearnedMaximum = field(default_factory=LearnedMaximum)
    pcie: Streak = field(default_factory=Streak)
    clock: Streak = field(default_factory=Streak)
    thermal_bits: int = 0  # consecutive readings with a thermal bit
    xid: tuple[int | None, float | None] | None = None
    xid_until_s: float = -math.inf
    ecc: float | None = None
    ecc_until_s: float = -math.inf
    read_s: float = -math.inf
    first_s: float | None = None
    alert: Alert | None = None

    def settle(self, found: list[Symptom], *, promised: bool, settings: AlertSettings, now_s: float) -> str:
        """Raises, keeps or clears the alert by the symptoms of now; "raised", "cleared" or ""."""
        if found:
            if self.alert is None:
                self.alert = Alert(found[0].cause, found[0].detail, now_s, now_s, promised)
                return "raised"
            self.alert.symptom_s = now_s
            return ""
        if self.alert is not None and now_s - self.alert.symptom_s >= settings.clear_s:
            self.alert = None
            return "cleared"
        return ""

    def on_gpu(
        self,
        gpu: GpuReading,
        *,
        engine: EngineReading | None,
        rates: tuple[float, float] | None,
        clock_ratio: float | None,
        settings: AlertSettings,
        now_s: float,
    ) -> list[Symptom]:
        """Judges one fresh GPU reading. `rates`: (prompt, generated) tokens/s over the last few seconds."""
        self.first_s = now_s if self.first_s is None else self.first_s
        found = [*self._faults(gpu, settings, now_s), *self._heat(gpu, settings, now_s)]
        found += self._foreign_load(gpu, engine, rates, settings, now_s)
        found += self._clock(gpu, clock_ratio, settings, now_s)
        found += self._pcie(gpu, settings, now_s)
        self.read_s = now_s
        return found

    def _learned(self, settings: AlertSettings, now_s: float) -> bool:
        return self.first_s is not None and now_s - self.first_s >= settings.learn_s

    def _faults(self, gpu: GpuReading, settings: AlertSettings, now_s: float) -> list[Symptom]:
        """XID and ECC by edge: both keep their last value for ever."""
        xid = (gpu.xid, known(gpu.xid_count))
        # A counted series begins with its first XID: that it was not there is what it said before.
        looked = self.xid is not None or (self.read_s > -math.inf and bool(xid[1]))
        if looked and xid != self.xid and gpu.xid and gpu.xid not in _APPLICATION_XIDS:
            self.xid_until_s = now_s + settings.xid_window_s
        if gpu.xid is not None or gpu.xid_count is not None:
            self.xid = xid
        ecc = known(gpu.ecc_uncorrected_total)
        if ecc is not None:
            if self.ecc is not None and ecc > self.ecc:
                self.ecc_until_s = now_s + settings.xid_window_s
            self.ecc = ecc
        found = []
        if now_s < self.xid_until_s:
            found.append(Symptom("xid", f"XID {gpu.xid}"))
        if now_s < self.ecc_until_s:
            found.append(Symptom("ecc", f"uncorrected ECC errors {ecc}"))
        return found

    def _heat(self, gpu: GpuReading, settings: AlertSettings, now_s: float) -> list[Symptom]:
        found = []
        thermal = bool((gpu.throttle_bits or 0) & THERMAL_BITS)
        self.thermal_bits = self.thermal_bits + 1 if thermal else 0
        if self.thermal_bits >= 2:
            found.append(Symptom("thermal", f"throttle bits 0x{gpu.throttle_bits:x}"))
        celsius = known(gpu.temperature_c)
        if celsius is None or not -20.0 < celsius < 150.0:
            return found
        self.temperatures.append((now_s, celsius))
        limit_c = settings.temperature_slow_c
        learned = self.temperature_max.usable(learn_s=settings.learn_s, now_s=now_s)
        if learned is not None:
            limit_c = min(limit_c, learned + settings.temperature_margin_c)
        if self.alert is not None:  # hysteresis: it clears only well below
            limit_c *= 1.0 - settings.clear_margin
        ahead_limit_c = settings.temperature_slow_c + settings.temperature_ahead_margin_c
        ahead_c = celsius
        if self._learned(settings, now_s):
            ahead_c += settings.temperature_ahead_s * self._slope(settings, now_s)
        if celsius >= limit_c:
            found.append(Symptom("thermal", f"{celsius:.0f} C, limit {limit_c:.1f} C"))
        elif ahead_c >= ahead_limit_c:
            found.append(Symptom("thermal", f"{celsius:.0f} C heading for {ahead_c:.0f} C"))
        elif not thermal:
            self.temperature_max.update(celsius, memory_s=settings.memory_s, now_s=now_s)
        return found

    def _slope(self, settings: AlertSettings, now_s: float) -> float:
        """Rise per second between the means of the newest 5 s and of the 5 s that lie 30 s back."""
        newest = [value for at_s, value in self.temperatures if now_s - at_s <= 5.0]
        oldest = [value for at_s, value in self.temperatures if 25.0 <= now_s - at_s <= 35.0]
        if not newest or not oldest:
            return 0.0
        rise = sum(newest) / len(newest) - sum(oldest) / len(oldest)
        return clip(rise / 30.0, 0.0, settings.slope_max_c_per_s)

    def _foreign_load(
        self,
        gpu: GpuReading,
        engine: EngineReading | None,
        rates: tuple[float, float] | None,
        settings: AlertSettings,
        now_s: float,
    ) -> list[Symptom]:
        parts = (
            (known(gpu.util_ratio), 0.1),
            (known(gpu.sm_active_ratio), 0.3),
            (known(gpu.tensor_active_ratio), 0.4),
            (known(gpu.dram_active_ratio), 0.2),
        )
        if any(value is None for value, _ in parts):
            return []
        group = sum(value * share for value, share in parts if value is not None)
        dt_s = now_s - self.read_s
        self.hardware = ewma(self.hardware, group, dt_s=dt_s, half_life_s=settings.hardware_half_life_s)
        tensor = gpu.tensor_active_ratio
        running = known(engine.running_requests) if engine is not None else None
        if tensor is None or rates is None or running is None:
            return []
        z = self.residual.update(
            tensor=tensor, prompt_rate=rates[0], token_rate=rates[1], running=running, alpha=settings.residual_alpha
        )
        if not self._learned(settings, now_s) or self.hardware <= settings.hardware_full or z <= settings.residual_z:
            return []
        return [Symptom("foreign-load", f"hardware {self.hardware:.2f}, unexplained z {z:.1f}")]

    def _clock(
        self, gpu: GpuReading, clock_ratio: float | None, settings: AlertSettings, now_s: float
    ) -> list[Symptom]:
        capped = bool((gpu.throttle_bits or 0) & (SW_POWER_CAP | POWER_BRAKE))
        slow = clock_ratio is not None and clock_ratio < settings.clock_ratio and not capped
        lasted_s = self.clock.update(holds=slow, now_s=now_s)
        if lasted_s < settings.clock_s or not self._learned(settings, now_s):
            return []
        return [Symptom("clock", f"SM clock at {clock_ratio:.3f} of its baseline")]

    def _pcie(self, gpu: GpuReading, settings: AlertSettings, now_s: float) -> list[Symptom]:
        rate = known(gpu.pcie_bytes_per_s)
        if rate is None:
            return []
        learned = self.pcie_max.usable(learn_s=settings.learn_s, now_s=now_s)
        busy = learned is not None and rate > settings.pcie_ratio * learned
        if self.pcie.update(holds=busy, now_s=now_s) >= settings.pcie_s:
            return [Symptom("pcie", f"{rate:.3g} B/s, own maximum {learned:.3g}")]
        if not busy:
            self.pcie_max.update(rate, memory_s=settings.memory_s, now_s=now_s)
        return []
