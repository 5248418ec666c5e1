"""Counts what became of requests: per cell for control, the last minute for people, histograms for Prometheus."""

from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tradewind.core.outcomes import Kind, kind_of
from tradewind.model.outcome import Outcome

WINDOW_S = 60.0
MAX_RECENT = 60_000  # outcomes kept for the last-minute summary; beyond it the oldest leave early
MAX_LABELS = 64  # cells and models with series of their own; the rest share OTHER
OTHER = "other"
NO_CELL = "none"

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0)
E2E_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 600.0)

_LIFE = (Kind.SERVED, Kind.REFUSAL, Kind.BACKPRESSURE)
_FAILURE = (Kind.FAILURE, Kind.UNREACHED)


def proves_life(outcome: Outcome) -> bool:
    """True when an engine answered: a refusal or a "too busy" is an answer too."""
    return kind_of(outcome) in _LIFE


def proves_failure(outcome: Outcome) -> bool:
    """True when an engine or the path to it failed this request."""
    return kind_of(outcome) in _FAILURE


class Spread:
    """A histogram of seconds, cheap to feed."""

    __slots__ = ("bounds", "counts", "total_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # per bucket, not cumulative; the last one is beyond all bounds
        self.total_s = 0.0

    def add(self, value_s: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value_s)] += 1
        self.total_s += value_s


@dataclass(slots=True)
class Series:
    """What Prometheus is told of one cell or one model."""

    ttft_s: Spread = field(default_factory=lambda: Spread(TTFT_BUCKETS_S))
    e2e_s: Spread = field(default_factory=lambda: Spread(E2E_BUCKETS_S))
    statuses: dict[str, int] = field(default_factory=dict)  # "2xx" -> requests

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        kind = _CLASSES.get(outcome.status // 100, "none")
        self.statuses[kind] = self.statuses.get(kind, 0) + 1
        self.e2e_s.add(outcome.duration_s)
        if outcome.ttft_s is not None:
            self.ttft_s.add(outcome.ttft_s)


_CLASSES = {hundreds: f"{hundreds}xx" for hundreds in range(1, 6)}


@dataclass(slots=True)
class CellTally:
    """Requests of one cell since the gateway started."""

    succeeded: int = 0
    failed: int = 0
    requests: int = 0


class _Recent(NamedTuple):
    at_s: float
    cell_id: str
    status: int
    ttft_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One cell over the last minute; seconds, None without samples."""

    requests: int
    succeeded: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All requests over the last minute."""

    window_s: float
    requests: int
    statuses: dict[str, int] = field(default_factory=dict)  # status code -> count; "0" is no response
    cells: dict[str, CellSummary] = field(default_factory=dict)
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None


class OutcomeBook:
    """Takes outcomes one by one; every memory it has is bounded."""

    def __init__(self) -> None:
        self.cells: dict[str, CellTally] = {}
        self.cell_series: dict[str, Series] = {}
        self.model_series: dict[str, Series] = {}
        self._recent: deque[_Recent] = deque(maxlen=MAX_RECENT)

    def add(self, outcome: Outcome, *, known_models: frozenset[str], now_s: float) -> None:
        """Count one outcome of a client's request. `known_models` bounds the model label."""
        if outcome.cell_id is not None:
            tally = self.cells.get(outcome.cell_id)
            if tally is None:
                tally = self.cells[outcome.cell_id] = CellTally()
            kind = kind_of(outcome)
            tally.requests += 1
            tally.succeeded += kind in _LIFE
            tally.failed += kind in _FAILURE
        cell_id = outcome.cell_id or NO_CELL
        self._recent.append(_Recent(now_s, cell_id, outcome.status, outcome.ttft_s))
        _series(self.cell_series, cell_id).add(outcome)
        _series(self.model_series, outcome.model if outcome.model in known_models else OTHER).add(outcome)

    def keep_only(self, cell_ids: frozenset[str]) -> None:
        """Forget cells that left the grid: their counters and their series."""
        for cell_id in sorted(self.cells.keys() - cell_ids):
            del self.cells[cell_id]
        for cell_id in sorted(self.cell_series.keys() - cell_ids - {OTHER, NO_CELL}):
            del self.cell_series[cell_id]

    def summary(self, *, now_s: float) -> Summary:
        """What the last minute looked like."""
        while self._recent and now_s - self._recent[0].at_s > WINDOW_S:
            self._recent.popleft()
        by_cell: dict[str, list[_Recent]] = {}
        for item in self._recent:
            by_cell.setdefault(item.cell_id, []).append(item)
        statuses = Counter(str(item.status) for item in self._recent)
        p50, p95, p99 = _percentiles(list(self._recent))
        return Summary(
            window_s=WINDOW_S,
            requests=len(self._recent),
            statuses=dict(sorted(statuses.items())),
            cells={cell_id: _cell_summary(items) for cell_id, items in sorted(by_cell.items())},
            ttft_p50_s=p50,
            ttft_p95_s=p95,
            ttft_p99_s=p99,
        )


def _cell_summary(items: list[_Recent]) -> CellSummary:
    p50, p95, p99 = _percentiles(items)
    succeeded = sum(200 <= item.status < 300 for item in items)
    return CellSummary(requests=len(items), succeeded=succeeded, ttft_p50_s=p50, ttft_p95_s=p95, ttft_p99_s=p99)


def _percentiles(items: list[_Recent]) -> tuple[float | None, float | None, float | None]:
    """Nearest-rank TTFT percentiles of the answered requests."""
    ttfts = sorted(item.ttft_s for item in items if item.ttft_s is not None and 200 <= item.status < 300)
    if not ttfts:
        return None, None, None
    p50, p95, p99 = (ttfts[min(len(ttfts) - 1, int(len(ttfts) * q))] for q in (0.50, 0.95, 0.99))
    return p50, p95, p99


def _series(held: dict[str, Series], label: str | None) -> Series:
    """The series of a label while there is room, that of OTHER beyond."""
    found = held.get(label or OTHER)
    if found is None:
        label = label if label and len(held) < MAX_LABELS else OTHER
        found = held.setdefault(label, Series())
    return found
