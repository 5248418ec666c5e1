"""How fast a cell really works: engine work per wall second against its class, and its SM clock (recipe line 8)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.core.numbers import clip, known, median
from tradewind.core.settings import SpeedSettings
from tradewind.core.steplaw import StepLaw
from tradewind.core.windows import EngineWindow, counter_delta
from tradewind.model.telemetry import EngineReading, GpuReading

LONG_PROMPT_S = 0.5  # nominal prefill of a mean prompt from which on 4 s are too short a window
MIN_BUSY = 0.1  # of the window: with less, the estimate would be all noise
MAX_BUSY = 3.0  # of the window: a long step may have begun well before it


def work_rate(
    window: EngineWindow, law: StepLaw, kv_capacity_tokens: int | None, settings: SpeedSettings
) -> float | None:
    """Nominal engine seconds done per busy second; None unless the engine was busy over the window.

    The best of the last 2, 4 and 8 seconds. An engine counts a prompt when its last chunk is done, so a short window
    may miss the work of a long prompt; a real slow-down shows in 2 s of the 4 s window as well. Windows with fewer than
    `min_steps` steps (long steps, or little to do) say nothing, 8 s speak only where prompts are long or steps few.
    """
    best: float | None = None
    spans_s = [settings.window_s, 2 * settings.window_s]
    for span_s in (*spans_s, 4 * settings.window_s):
        if best is not None and span_s not in spans_s:
            break
        span = window.since(span_s)
        if span is None or not known(span[1].running_requests) or not known(span[2].running_requests):
            continue
        steps = counter_delta(span[1].steps_total, span[2].steps_total)
        if steps is None or steps < settings.min_steps:
            continue
        rate, prompt_s = _rate(span, steps, law, kv_capacity_tokens)
        if rate is not None and (best is None or rate > best):
            best = rate
        if prompt_s > LONG_PROMPT_S:
            spans_s.append(4 * settings.window_s)
    return best


def _rate(
    span: tuple[float, EngineReading, EngineReading], steps: float, law: StepLaw, kv_capacity_tokens: int | None
) -> tuple[float | None, float]:
    """(work per busy second, nominal seconds of a mean prompt)."""
    seconds, start, end = span
    computed = counter_delta(start.prompt_computed_tokens_total, end.prompt_computed_tokens_total)
    if computed is None:
        computed = counter_delta(start.prompt_tokens_total, end.prompt_tokens_total)
    if computed is None:
        return None, 0.0
    sequences = 0.5 * ((known(start.running_requests) or 0.0) + (known(end.running_requests) or 0.0))
    kv_tokens = clip(known(end.kv_fill_ratio) or 0.0, 0.0, 1.0) * (kv_capacity_tokens or 0)
    prefill_s = computed * law.b / 1e3
    decode_s = steps * (law.a0 + law.weights(max(1.0, sequences)) + law.c * sequences + law.d * kv_tokens) / 1e3
    busy_s = _busy_s(start, end, steps, prefill_s, seconds)
    return (prefill_s + decode_s) / busy_s, prefill_s / max(1.0, _prompts(start, end))


def _prompts(start: EngineReading, end: EngineReading) -> float:
    """Prompts whose computing ended within the window: their first tokens, not their last ones.

    While an engine slows down, fewer requests end than begin: by those, its prompts would seem long.
    """
    if start.ttft_s is not None and end.ttft_s is not None and start.ttft_s.counts and end.ttft_s.counts:
        return counter_delta(start.ttft_s.counts[-1], end.ttft_s.counts[-1]) or 0.0
    return counter_delta(start.finished_total, end.finished_total) or 0.0


def _busy_s(start: EngineReading, end: EngineReading, steps: float, prefill_s: float, seconds: float) -> float:
    """Seconds that the finished steps of the window took; the whole window where the engine has no ITL sums.

    Steps times the mean inter-token time: a lightly loaded engine idles between two requests, and one in the middle of
    a long step has not counted it yet; neither is slow for that. A prefill that meets no decode shows in no
    inter-token time, so it is added at its nominal length with the chance of that, exp(-mean decodes). The mean, not a
    quantile: quantiles jump with the bucket bounds.
    """
    if start.itl_s is None or end.itl_s is None or not start.itl_s.counts or not end.itl_s.counts:
        return seconds
    tokens = counter_delta(start.itl_s.counts[-1], end.itl_s.counts[-1])
    waited_s = counter_delta(start.itl_s.total, end.itl_s.total)
    if not tokens or waited_s is None or waited_s <= 0:
        return seconds
    alone = math.exp(-waited_s / seconds)
    return clip(steps * waited_s / tokens + alone * prefill_s, MIN_BUSY * seconds, MAX_BUSY * seconds)


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
