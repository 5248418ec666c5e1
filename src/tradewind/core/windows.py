"""Rates and quantiles from counters that reset, flip between workers, and arrive with odd buckets."""

import math
from collections import deque
from dataclasses import dataclass, field
from operator import le, sub

from tradewind.core.numbers import known
from tradewind.model.telemetry import EngineReading, Histogram


def counter_delta(old: float | None, new: float | None) -> float | None:
    """Growth of a counter; a fall is a reset, so the new value is the growth. Never negative; None if unknown."""
    old, new = known(old), known(new)
    if old is None or new is None or new < 0:
        return None
    return new - old if new >= old else new


def tidy_histogram(histogram: Histogram | None) -> Histogram | None:
    """Ascending finite bounds, monotone counts, a last bucket that holds all; None when it cannot be read so."""
    if histogram is None or not histogram.counts:
        return None
    counts = [value for value in histogram.counts if math.isfinite(value) and value >= 0]
    if len(counts) != len(histogram.counts) or len(counts) - len(histogram.bounds) not in (0, 1):
        return None
    pairs = sorted(
        {bound: count for bound, count in zip(histogram.bounds, counts, strict=False) if math.isfinite(bound)}.items()
    )
    bounds: list[float] = []
    tidy: list[float] = []
    top = 0.0
    for bound, count in pairs:
        top = max(top, count)
        bounds.append(bound)
        tidy.append(top)
    tidy.append(max(top, counts[-1]))
    return Histogram(bounds=tuple(bounds), counts=tuple(tidy), total=histogram.total)


def histogram_delta(old: Histogram | None, new: Histogram | None) -> Histogram | None:
    """What was observed between two readings; None when nothing was, or nothing can be said.

    A total that falls is a reset: the new histogram is the growth. Different bounds: only the common ones.
    """
    new = tidy_histogram(new)
    if new is None:
        return None
    old = tidy_histogram(old)
    if old is None:
        return None
    growth = new if new.counts[-1] < old.counts[-1] else _difference(old, new)
    return growth if growth is not None and growth.counts[-1] > 0 else None


def _difference(old: Histogram, new: Histogram) -> Histogram | None:
    if old.bounds == new.bounds:
        bounds, before, after = new.bounds, old.counts, new.counts
    else:
        was = dict(zip(old.bounds, old.counts, strict=False))
        common = [(bound, count) for bound, count in zip(new.bounds, new.counts, strict=False) if bound in was]
        if not common:
            return None
        bounds = tuple(bound for bound, _ in common)
        before = (*(was[bound] for bound in bounds), old.counts[-1])
        after = (*(count for _, count in common), new.counts[-1])
    counts: list[float] = []
    top = 0.0
    total = after[-1] - before[-1]
    for earlier, later in zip(before, after, strict=True):
        top = min(total, max(top, later - earlier))
        counts.append(top)
    counts[-1] = total
    return Histogram(bounds=bounds, counts=tuple(counts))


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile in the histogram's unit. `at_least`: it lies above the highest finite bound, which is given."""

    value: float
    at_least: bool = False


def quantile(histogram: Histogram | None, q: float) -> Quantile | None:
    """The q-quantile by linear interpolation within its bucket; None without samples or finite bounds."""
    if histogram is None or not histogram.bounds or histogram.counts[-1] <= 0:
        return None
    rank = q * histogram.counts[-1]
    low_bound, low_count = min(0.0, histogram.bounds[0]), 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        if count >= rank and count > low_count:
            share = min(1.0, max(0.0, (rank - low_count) / (count - low_count)))
            return Quantile(min(bound, low_bound + (bound - low_bound) * share))
        low_bound, low_count = bound, count
    return Quantile(histogram.bounds[-1], at_least=True)


def ttft_quantile(old: Histogram | None, new: Histogram | None, q: float) -> Quantile | None:
    """The q-quantile of what was observed between two readings; None without observations."""
    if old is None or new is None:
        return None
    if old.bounds == new.bounds and len(old.counts) == len(new.counts) == len(new.bounds) + 1:
        total = new.counts[-1] - old.counts[-1]
        growth = tuple(map(sub, new.counts, old.counts))
        if total > 0 and all(map(le, growth, growth[1:])) and growth[0] >= 0:  # False for any NaN
            return quantile(Histogram(bounds=new.bounds, counts=growth), q)
    return quantile(histogram_delta(old, new), q)


def _lower(old: float | None, new: float | None) -> bool:
    return old is not None and new is not None and new < old


def _fell(old: EngineReading, new: EngineReading) -> bool:
    if (
        _lower(old.generation_tokens_total, new.generation_tokens_total)
        or _lower(old.steps_total, new.steps_total)
        or _lower(old.prompt_tokens_total, new.prompt_tokens_total)
        or _lower(old.finished_total, new.finished_total)
    ):
        return True
    if old.ttft_s is None or new.ttft_s is None or not old.ttft_s.counts or not new.ttft_s.counts:
        return False
    return new.ttft_s.counts[-1] < old.ttft_s.counts[-1]


def _zeroed(reading: EngineReading) -> EngineReading:
    """What a process that has just started would have shown: every counter of `reading` at 0."""
    return EngineReading(
        running_requests=reading.running_requests,
        kv_fill_ratio=reading.kv_fill_ratio,
        ttft_s=_zero_histogram(reading.ttft_s),
        itl_s=_zero_histogram(reading.itl_s),
        prompt_tokens_total=_zero(reading.prompt_tokens_total),
        prompt_computed_tokens_total=_zero(reading.prompt_computed_tokens_total),
        generation_tokens_total=_zero(reading.generation_tokens_total),
        steps_total=_zero(reading.steps_total),
        prefix_query_tokens_total=_zero(reading.prefix_query_tokens_total),
        prefix_hit_tokens_total=_zero(reading.prefix_hit_tokens_total),
        finished_total=_zero(reading.finished_total),
        server_errors_total=_zero(reading.server_errors_total),
        start_time_s=reading.start_time_s,
    )


def _zero_histogram(histogram: Histogram | None) -> Histogram | None:
    if histogram is None:
        return None
    total = None if histogram.total is None else 0.0
    return Histogram(bounds=histogram.bounds, counts=(0.0,) * len(histogram.counts), total=total)


def _zero(counter: float | None) -> float | None:
    return None if counter is None else 0.0


@dataclass(slots=True)
class EngineWindow:
    """The last readings of one engine, in order of time, without the jumps of restarts and worker flip-flop.

    A fall of the counters is a restart when the process start time changed, another worker's page when it did not,
    and undecided without one: then the next reading decides (back up: flip-flop; still low: restart).
    """

    span_s: float
    readings: deque[tuple[float, EngineReading]] = field(default_factory=lambda: deque(maxlen=64))
    newest_s: float = -math.inf  # when the newest page was read, used or not
    newest: EngineReading | None = None  # its gauges are always good
    restarts: int = 0
    doubtful: tuple[float, EngineReading] | None = None

    def add(self, at_s: float, reading: EngineReading) -> bool:
        """Takes a page read at `at_s` (own clock); False when it is the one already held."""
        if reading is self.newest or (at_s - self.newest_s < 0.2 and reading == self.newest):
            return False
        self.newest_s = max(at_s, self.newest_s + 1e-3)
        self.newest = reading
        if not self.readings:
            self.readings.append((self.newest_s, reading))
            return True
        last = self.readings[-1][1]
        if not _fell(last, reading):
            if _restarted(last, reading):
                self._restart(self.newest_s, reading)
            self.doubtful = None
            self.readings.append((self.newest_s, reading))
        elif _restarted(last, reading) or (self.doubtful is not None and not _fell(self.doubtful[1], reading)):
            first = self.doubtful or (self.newest_s, reading)
            self._restart(*first)
            if first[1] is not reading:
                self.readings.append(first)
            self.readings.append((self.newest_s, reading))
        elif last.start_time_s is None or reading.start_time_s is None:
            self.doubtful = (self.newest_s, reading)
        self._trim()
        return True

    def _restart(self, at_s: float, reading: EngineReading) -> None:
        previous_s = self.readings[-1][0]
        self.readings.clear()
        self.readings.append((min(previous_s, at_s - 1e-3), _zeroed(reading)))
        self.doubtful = None
        self.restarts += 1

    def _trim(self) -> None:
        floor_s = self.newest_s - self.span_s
        while len(self.readings) > 2 and self.readings[1][0] <= floor_s:
            self.readings.popleft()

    def since(self, span_s: float) -> tuple[float, EngineReading, EngineReading] | None:
        """(seconds, oldest, newest) over about the last `span_s`; None before there are two readings."""
        if len(self.readings) < 2:
            return None
        end_s, end = self.readings[-1]
        start_s, start = self.readings[-2]
        for index in range(len(self.readings) - 3, -1, -1):
            at_s, reading = self.readings[index]
            if end_s - at_s > span_s * 1.25:
                break
            start_s, start = at_s, reading
        return (end_s - start_s, start, end) if end_s > start_s and start is not end else None


def _restarted(old: EngineReading, new: EngineReading) -> bool:
    return old.start_time_s is not None and new.start_time_s is not None and old.start_time_s != new.start_time_s
