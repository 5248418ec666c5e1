"""How fast a cell really works: engine work per wall second against its class, and its SM clock (recipe line 8)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tradewind.core.numbers import clip, known, median
from tradewind.core.settings import SpeedSettings
from tradewind.core.windows import EngineWindow, counter_delta
from tradewind.model.telemetry import EngineReading, GpuReading

MIN_BUSY = 0.1  # of the window: with less, the estimate would be all noise


class StepLaw(NamedTuple):
    """Milliseconds of engine time: per step, per step's weights, per prompt token, per sequence, per KV token.

    Only ratios within one class matter, since speed is compared with the class median.
    """

    a0: float
    w: float
    b: float
    c: float
    d: float


# Coefficients: the step-time study, table 3.3 (a 70B model in 4-bit weights; the last row is a fast small one).
_LAWS = (
    ("rtxpro6000", StepLaw(3.5, 24.0, 0.50, 0.10, 2.3e-4)),
    ("h200", StepLaw(9.0, 11.2, 0.30, 0.06, 0.9e-4)),
    ("h100", StepLaw(9.0, 15.0, 0.30, 0.06, 1.2e-4)),
    ("l40s", StepLaw(5.0, 10.0, 0.10, 0.05, 2e-5)),
)
_DEFAULT_LAW = StepLaw(2.0, 3.0, 0.02, 0.02, 1e-5)


def step_law(hardware: str | None) -> StepLaw:
    """The law of a hardware class by its name, e.g. "rtx-pro-6000" or "NVIDIA H100 80GB HBM3"."""
    name = "".join(character for character in (hardware or "").lower() if character.isalnum())
    for key, law in _LAWS:
        if key in name:
            return law
    return _DEFAULT_LAW


def work_rate(
    window: EngineWindow, law: StepLaw, kv_capacity_tokens: int | None, settings: SpeedSettings
) -> float | None:
    """Nominal engine seconds done per busy second; None unless the engine was busy at both ends of the window."""
    span = window.since(settings.window_s)
    if span is None:
        return None
    seconds, start, end = span
    running = (known(start.running_requests), known(end.running_requests))
    steps = counter_delta(start.steps_total, end.steps_total)
    if steps is None or steps < settings.min_steps or not running[0] or not running[1]:
        return None
    computed = counter_delta(start.prompt_computed_tokens_total, end.prompt_computed_tokens_total)
    if computed is None:
        computed = counter_delta(start.prompt_tokens_total, end.prompt_tokens_total)
    if computed is None:
        return None
    sequences = 0.5 * (running[0] + running[1])
    fill = known(end.kv_fill_ratio) or 0.0
    kv_tokens = clip(fill, 0.0, 1.0) * (kv_capacity_tokens or 0)
    work_ms = computed * law.b + steps * (law.a0 + law.w + law.c * sequences + law.d * kv_tokens)
    return work_ms / 1e3 / _busy_s(start, end, steps, seconds)


def _busy_s(start: EngineReading, end: EngineReading, steps: float, seconds: float) -> float:
    """Seconds of the window in which the engine worked: steps times the mean inter-token time, where that is known.

    A lightly loaded engine idles between two requests and is not slow for that. The mean, not a quantile: quantiles
    jump with the bucket bounds.
    """
    if start.itl_s is None or end.itl_s is None or not start.itl_s.counts or not end.itl_s.counts:
        return seconds
    tokens = counter_delta(start.itl_s.counts[-1], end.itl_s.counts[-1])
    waited_s = counter_delta(start.itl_s.total, end.itl_s.total)
    if not tokens or waited_s is None or waited_s <= 0:
        return seconds
    return clip(steps * waited_s / tokens, MIN_BUSY * seconds, seconds)


@dataclass(slots=True)
class WorkSpeed:
    """s_work of one cell: 1 unless it is clearly slower than its class; relaxes to 1 while nothing is known."""

    rate: float | None = None  # newest work rate; None while idle
    value: float = 1.0

    def update(self, class_rate: float | None, settings: SpeedSettings, dt_s: float) -> float:
        """The factor against the median rate of the class."""
        if self.rate is None or not class_rate:
            self.value = min(1.0, self.value + settings.relax_per_s * dt_s)
            return self.value
        share = self.rate / class_rate
        self.value = max(settings.min_speed, share) if share < 1.0 / settings.tolerance else 1.0
        return self.value


@dataclass(slots=True)
class ClockSpeed:
    """s_clk of one cell: SM clock against its own loaded baseline."""

    baseline_hz: float | None = None
    samples: int = 0
    ratio: float = 1.0  # newest clock over baseline, unfloored
    read_s: float = -math.inf

    def update(
        self, gpu: GpuReading, *, loaded: bool, interval_s: float | None, settings: SpeedSettings, now_s: float
    ) -> None:
        """Takes one GPU reading. An idle GPU clocks down for no fault, so only loaded ones count."""
        clock_hz = known(gpu.sm_clock_hz)
        if clock_hz is None or clock_hz <= 0 or not loaded or (interval_s or 0.0) > settings.clock_stale_s:
            return
        if self.baseline_hz is None:
            self.baseline_hz = clock_hz
        self.ratio = clock_hz / self.baseline_hz
        if self.ratio >= settings.clock_floor:
            self._learn(clock_hz, settings, now_s)
        self.read_s = now_s

    def _learn(self, clock_hz: float, settings: SpeedSettings, now_s: float) -> None:
        assert self.baseline_hz is not None
        self.samples += 1
        slow = min(1.0, max(0.0, now_s - self.read_s) / settings.clock_baseline_s)
        share = max(1.0 / self.samples, slow) if clock_hz <= self.baseline_hz else max(1.0 / self.samples, 0.2)
        self.baseline_hz += share * (clock_hz - self.baseline_hz)

    def value(self, settings: SpeedSettings, now_s: float) -> float:
        """The factor at `now_s`; 1 when the clock is normal or not freshly known."""
        if now_s - self.read_s > settings.clock_stale_s or self.ratio >= settings.clock_floor:
            return 1.0
        return max(settings.min_speed, self.ratio)


def class_medians(members: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    """Median work rate of each class over the cells that have one."""
    groups: dict[str, list[float]] = {}
    for name, rate in members:
        if rate is not None and rate > 0:
            groups.setdefault(name, []).append(rate)
    return {name: value for name, rates in groups.items() if (value := median(rates)) is not None}
