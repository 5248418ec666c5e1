"""Counts what became of requests: per cell for control, the last minute for people, histograms for Prometheus."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from tradewind.core.outcomes import Kind, kind_of
from tradewind.model.outcome import Outcome

WINDOW_S = 60.0
MAX_RECENT = 60_000  # outcomes kept for the last-minute summary; beyond it the oldest leave early
MAX_LABELS = 64  # cells and models with series of their own; the rest share OTHER
OTHER = "other"
NO_CELL = "none"

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0)
E2E_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 600.0)

STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")

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

    def merge(self, other: "Spread") -> None:
        """Count all values of `other`, which has the same bounds."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s


class Series:
    """What Prometheus is told of the requests of one cell, one model, or one of each."""

    __slots__ = ("e2e_s", "statuses", "ttft_s")

    def __init__(self) -> None:
        self.ttft_s = Spread(TTFT_BUCKETS_S)
        self.e2e_s = Spread(E2E_BUCKETS_S)
        self.statuses = [0] * len(STATUS_CLASSES)

    def add(self, outcome: Outcome) -> None:
        """Count one outcome."""
        hundreds = outcome.status // 100
        self.statuses[hundreds if hundreds < 6 else 0] += 1
        self.e2e_s.add(outcome.duration_s)
        ttft_s = outcome.ttft_s
        if ttft_s is not None:
            self.ttft_s.add(ttft_s)

    def merge(self, other: "Series") -> None:
        """Count all that `other` has counted."""
        self.ttft_s.merge(other.ttft_s)
        self.e2e_s.merge(other.e2e_s)
        self.statuses = [ours + theirs for ours, theirs in zip(self.statuses, other.statuses, strict=True)]


@dataclass(slots=True)
class CellTally:
    """Requests of one cell since the gateway started."""

    succeeded: int = 0
    failed: int = 0
    requests: int = 0


_Recent: TypeAlias = tuple[float, str, int, float | None]  # at_s, cell, status, ttft_s


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
        self._series: dict[tuple[str, str], Series] = {}  # by cell and model: a request is counted once
        self._left: dict[str, Series] = {}  # model -> what cells that left the grid did for it
        self._recent: deque[_Recent] = deque(maxlen=MAX_RECENT)

    def add(self, outcome: Outcome, *, known_models: frozenset[str], now_s: float) -> None:
        """Count one outcome of a client's request. `known_models` bounds the model label."""
        cell_id, model = outcome.cell_id, outcome.model
        if cell_id is None:
            cell_id = NO_CELL
        else:
            tally = self.cells.get(cell_id)
            if tally is None:
                tally = self.cells[cell_id] = CellTally()
            kind = kind_of(outcome)
            tally.requests += 1
            if kind in _LIFE:
                tally.succeeded += 1
            elif kind in _FAILURE:
                tally.failed += 1
        self._recent.append((now_s, cell_id, outcome.status, outcome.ttft_s))
        label = model if model in known_models and model is not None else OTHER
        series = self._series.get((cell_id, label)) or self._series_of(cell_id, label)
        series.add(outcome)

    def _series_of(self, cell: str, model: str) -> Series:
        """The series of a cell and a model while there is room, that of OTHER beyond."""
        cells = {label for label, _ in self._series}
        models = {label for _, label in self._series} | self._left.keys()
        cell = cell if cell in cells or len(cells) < MAX_LABELS else OTHER
        model = model if model in models or len(models) < MAX_LABELS else OTHER
        return self._series.setdefault((cell, model), Series())

    def by_cell(self) -> list[tuple[str, Series]]:
        """What Prometheus is told of each cell, by name."""
        return _merged((cell, series) for (cell, _), series in self._series.items())

    def by_model(self) -> list[tuple[str, Series]]:
        """What Prometheus is told of each model, by name."""
        present = [(model, series) for (_, model), series in self._series.items()]
        return _merged([*present, *self._left.items()])

    def keep_only(self, cell_ids: frozenset[str]) -> None:
        """Forget cells that left the grid: their counters and their series; what their models served stays."""
        for cell_id in sorted(self.cells.keys() - cell_ids):
            del self.cells[cell_id]
        for cell, model in sorted(self._series):
            if cell not in cell_ids and cell not in (OTHER, NO_CELL):
                self._left.setdefault(model, Series()).merge(self._series.pop((cell, model)))

    def summary(self, *, now_s: float) -> Summary:
        """What the last minute looked like."""
        while self._recent and now_s - self._recent[0][0] > WINDOW_S:
            self._recent.popleft()
        by_cell: dict[str, list[_Recent]] = {}
        for item in self._recent:
            by_cell.setdefault(item[1], []).append(item)
        statuses = Counter(str(status) for _, _, status, _ in self._recent)
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
    succeeded = sum(200 <= status < 300 for _, _, status, _ in items)
    return CellSummary(requests=len(items), succeeded=succeeded, ttft_p50_s=p50, ttft_p95_s=p95, ttft_p99_s=p99)


def _percentiles(items: list[_Recent]) -> tuple[float | None, float | None, float | None]:
    """Nearest-rank TTFT percentiles of the answered requests."""
    ttfts = sorted(ttft_s for _, _, status, ttft_s in items if ttft_s is not None and 200 <= status < 300)
    if not ttfts:
        return None, None, None
    p50, p95, p99 = (ttfts[min(len(ttfts) - 1, int(len(ttfts) * q))] for q in (0.50, 0.95, 0.99))
    return p50, p95, p99


def _merged(parts: Iterable[tuple[str, Series]]) -> list[tuple[str, Series]]:
    whole: dict[str, Series] = {}
    for label, series in parts:
        whole.setdefault(label, Series()).merge(series)
    return sorted(whole.items())
