"""Counts what became of requests: per cell for control, the last minute for people, histograms for Prometheus."""

from collections import Counter, deque
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as MetricCounter
from prometheus_client import Histogram as MetricHistogram

from tradewind.model.outcome import Outcome

WINDOW_S = 60.0
MAX_RECENT = 60_000  # outcomes kept for the last-minute summary; beyond it the oldest leave early
MAX_LABELS = 64  # cells and models with series of their own; the rest share OTHER
OTHER = "other"
NO_CELL = "none"

TTFT_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 120.0)
E2E_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 600.0)

# Envoy response flags that say the engine or the path to it failed, not the client and not a limit of ours.
FAILURE_FLAGS = frozenset({"UF", "UC", "UR", "LR", "UT", "UPE", "URX", "NC", "SI"})


def flag_set(flags: str) -> frozenset[str]:
    """Envoy's "UF,URX" as a set."""
    return frozenset(flag for flag in flags.split(",") if flag and flag != "-")


def proves_life(outcome: Outcome) -> bool:
    """True when an engine answered: a refusal or a "too busy" is an answer too."""
    if outcome.cell_id is None or outcome.client_cancelled or flag_set(outcome.flags) & FAILURE_FLAGS:
        return False
    return 200 <= outcome.status < 500 and outcome.stream_error_code is None


def proves_failure(outcome: Outcome) -> bool:
    """True when an engine or the path to it failed this request; backpressure (429, 503 of its own) is neither."""
    if outcome.cell_id is None or outcome.client_cancelled:
        return False
    if flag_set(outcome.flags) & FAILURE_FLAGS or outcome.stream_error_code is not None:
        return True
    return outcome.status in (500, 502, 504) or outcome.status == 0


@dataclass(slots=True)
class CellTally:
    """Requests of one cell since the gateway started."""

    succeeded: int = 0
    failed: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class _Recent:
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

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cells: dict[str, CellTally] = {}
        self._recent: deque[_Recent] = deque(maxlen=MAX_RECENT)
        self._metrics = _OutcomeMetrics(registry)

    def add(self, outcome: Outcome, *, known_models: frozenset[str], now_s: float) -> None:
        """Count one outcome of a client's request. `known_models` bounds the model label."""
        if outcome.cell_id is not None:
            tally = self.cells.setdefault(outcome.cell_id, CellTally())
            tally.requests += 1
            tally.succeeded += proves_life(outcome)
            tally.failed += proves_failure(outcome)
        self._recent.append(_Recent(now_s, outcome.cell_id or NO_CELL, outcome.status, outcome.ttft_s))
        self._metrics.observe(outcome, model=outcome.model if outcome.model in known_models else None)

    def keep_only(self, cell_ids: frozenset[str]) -> None:
        """Forget cells that left the grid: their counters and their series."""
        for cell_id in sorted(self.cells.keys() - cell_ids):
            del self.cells[cell_id]
        self._metrics.keep_only(cell_ids)

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


class _OutcomeMetrics:
    """Prometheus series of outcomes; label values come from bounded sets only."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = MetricCounter(
            "tradewind_gateway_requests",
            "Requests finished, by the cell that answered last and the class of the status",
            ["cell", "status_class"],
            registry=registry,
        )
        self._cell_ttft = MetricHistogram(
            "tradewind_gateway_cell_ttft_seconds",
            "Request start to first response body byte, by cell",
            ["cell"],
            buckets=TTFT_BUCKETS_S,
            registry=registry,
        )
        self._cell_e2e = MetricHistogram(
            "tradewind_gateway_cell_e2e_seconds",
            "Request start to end, by cell",
            ["cell"],
            buckets=E2E_BUCKETS_S,
            registry=registry,
        )
        self._model_ttft = MetricHistogram(
            "tradewind_gateway_model_ttft_seconds",
            "Request start to first response body byte, by model",
            ["model"],
            buckets=TTFT_BUCKETS_S,
            registry=registry,
        )
        self._model_e2e = MetricHistogram(
            "tradewind_gateway_model_e2e_seconds",
            "Request start to end, by model",
            ["model"],
            buckets=E2E_BUCKETS_S,
            registry=registry,
        )
        self._cells: set[str] = set()
        self._models: set[str] = set()
        self._statuses: set[tuple[str, str]] = set()

    def observe(self, outcome: Outcome, *, model: str | None) -> None:
        """One outcome; `model` None is an unknown one."""
        cell = _bounded(self._cells, outcome.cell_id) if outcome.cell_id else NO_CELL
        model = _bounded(self._models, model) if model else OTHER
        status = f"{outcome.status // 100}xx" if 100 <= outcome.status < 600 else "none"
        self._statuses.add((cell, status))
        self._requests.labels(cell, status).inc()
        self._cell_e2e.labels(cell).observe(outcome.duration_s)
        self._model_e2e.labels(model).observe(outcome.duration_s)
        if outcome.ttft_s is not None:
            self._cell_ttft.labels(cell).observe(outcome.ttft_s)
            self._model_ttft.labels(model).observe(outcome.ttft_s)

    def keep_only(self, cell_ids: frozenset[str]) -> None:
        """Drop the series of cells that left."""
        for cell in sorted(self._cells - cell_ids):
            self._cells.discard(cell)
            for histogram in (self._cell_ttft, self._cell_e2e):
                histogram.remove(cell)
        gone = {(cell, status) for cell, status in self._statuses if cell not in self._cells | {OTHER, NO_CELL}}
        for cell, status in sorted(gone):
            self._requests.remove(cell, status)
        self._statuses -= gone


def _bounded(labels: set[str], label: str) -> str:
    """The label itself while there is room, OTHER beyond."""
    if label in labels:
        return label
    if len(labels) >= MAX_LABELS:
        return OTHER
    labels.add(label)
    return label
