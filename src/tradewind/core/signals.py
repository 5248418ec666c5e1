"""One cell's readings as ten numbers in 0..1, higher meaning more pressure; None where unknown (recipe lines 1-4)."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from tradewind.core.numbers import clip, known, ratio
from tradewind.core.settings import SignalSettings
from tradewind.core.windows import EngineWindow, ttft_quantile
from tradewind.model.telemetry import EngineReading, GpuReading
from tradewind.model.view import PathReading


class EngineSignals(NamedTuple):
    """What the engine's own page says."""

    queue: float | None = None
    ttft: float | None = None
    kv: float | None = None


class GpuSignals(NamedTuple):
    """What the GPU exporter says."""

    tensor: float | None = None
    sm: float | None = None
    dram: float | None = None
    util: float | None = None
    vram: float | None = None


class PathSignals(NamedTuple):
    """What this gateway measures of the network."""

    rtt: float | None = None
    jitter: float | None = None


SIGNAL_NAMES = (*EngineSignals._fields, *GpuSignals._fields, *PathSignals._fields)


@dataclass(slots=True)
class TtftTrack:
    """P95 TTFT as a share of the SLO; fades while nobody asks, since no news is not a queue."""

    sample: float | None = None
    sampled_s: float = -math.inf
    at_least: bool = False  # the quantile lies above the engine's highest bucket bound

    def take(self, window: EngineWindow, settings: SignalSettings) -> None:
        """Reads the newest window; without observations the last sample stays and ages."""
        span = window.since(settings.ttft_window_s)
        found = ttft_quantile(span[1].ttft_s, span[2].ttft_s, 0.95) if span else None
        if found is not None and math.isfinite(found.value):
            self.sample = clip(found.value / settings.slo_ttft_s, 0.0, 1.0)
            self.at_least, self.sampled_s = found.at_least, window.newest_s

    def value(self, window: EngineWindow, settings: SignalSettings, now_s: float) -> float | None:
        """The signal at `now_s`, 0..1; None before the first sample."""
        if self.sample is None or self.sampled_s == window.newest_s:
            return self.sample
        return self.sample * math.exp(-max(0.0, now_s - self.sampled_s) / settings.ttft_decay_s)


def queue_signal(reading: EngineReading, settings: SignalSettings) -> float | None:
    """Waiting requests against a full queue."""
    queue = known(reading.queue_requests)
    return None if queue is None or queue < 0 else min(1.0, queue / settings.queue_full_requests)


def gpu_signals(gpu: GpuReading, settings: SignalSettings) -> GpuSignals:
    """Utilisations against what full means for each; the caller has checked age and freezing."""
    vram = ratio(known(gpu.vram_ratio))
    if vram is not None:
        vram = max(0.0, (vram - settings.vram_floor_ratio) / (1.0 - settings.vram_floor_ratio))
    return GpuSignals(
        tensor=_share(gpu.tensor_active_ratio, settings.tensor_full_ratio),
        sm=_share(gpu.sm_active_ratio, settings.sm_full_ratio),
        dram=_share(gpu.dram_active_ratio, settings.dram_full_ratio),
        util=ratio(known(gpu.util_ratio)),
        vram=vram,
    )


def _share(value: float | None, full: float) -> float | None:
    value = ratio(known(value))
    return None if value is None else min(1.0, value / full)


@dataclass(slots=True)
class PathTrack:
    """Smoothed RTT and jitter of one path, from the gateway's own readings."""

    rtt_s: float | None = None
    jitter_s: float | None = None
    read_s: float = -math.inf

    def update(self, reading: PathReading, settings: SignalSettings, now_s: float) -> None:
        """Folds one reading in; unknown and senseless values change nothing."""
        rtt_s, jitter_s = known(reading.rtt_s), known(reading.jitter_s)
        if rtt_s is not None and rtt_s >= 0:
            self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + settings.rtt_alpha * (rtt_s - self.rtt_s)
            self.read_s = now_s
        if jitter_s is not None and jitter_s >= 0:
            self.jitter_s = jitter_s

    def signals(self, settings: SignalSettings) -> PathSignals:
        """RTT and jitter in 0..1."""
        return PathSignals(
            rtt=None if self.rtt_s is None else min(1.0, self.rtt_s / settings.rtt_full_s),
            jitter=None if self.jitter_s is None else min(1.0, self.jitter_s / settings.jitter_full_s),
        )


@dataclass(slots=True)
class FrozenWatch:
    """Finds GPU values that stand still while the engine works: an exporter alive with dead numbers."""

    values: tuple[float | int | None, ...] = ()
    steps: float | None = None  # engine steps when the values last moved
    moved_s: float = -math.inf
    frozen: bool = field(default=False)

    def update(
        self, gpu: GpuReading, *, steps: float | None, interval_s: float | None, settings: SignalSettings, now_s: float
    ) -> bool:
        """True while frozen. `steps`: the engine's step counter, which must have advanced meanwhile."""
        values = (
            gpu.power_w, gpu.sm_clock_hz, gpu.util_ratio, gpu.temperature_c,
            gpu.sm_active_ratio, gpu.tensor_active_ratio, gpu.dram_active_ratio,
        )  # fmt: skip
        if values != self.values:
            self.values, self.steps, self.moved_s, self.frozen = values, steps, now_s, False
            return False
        limit_s = settings.frozen_unknown_interval_s
        if interval_s is not None:
            limit_s = max(settings.frozen_s, settings.frozen_intervals * interval_s)
        worked = steps is not None and self.steps is not None and steps != self.steps
        self.frozen = worked and now_s - self.moved_s > limit_s
        return self.frozen
