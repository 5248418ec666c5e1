"""Prometheus metrics of control, read from its state at scrape time: a cell that is gone leaves no series behind."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from tradewind.control.grid import CellStatus, Grid
from tradewind.control.metrics_tuner import tuner_families
from tradewind.control.saver import Saver
from tradewind.model.cell import CellState
from tradewind.runtime.loop import LoopLag

MAX_CELL_LABELS = 200  # the rest are told as one series, cell="other"
OTHER = "other"
PREFIX = "tradewind_control_"


class ControlCollector:
    """Turns the state of one control process into metric families."""

    def __init__(self, *, grid: Grid, saver: Saver, lag: LoopLag, agent_streams: Callable[[], int]) -> None:
        self._grid = grid
        self._saver = saver
        self._lag = lag
        self._agent_streams = agent_streams

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are not checked against other collectors, so no state is read at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        statuses = self._grid.statuses(telemetry=False)
        yield from _cell_families(statuses)
        yield from self._stream_families()
        yield from self._counter_families()
        yield from self._state_families()
        if self._grid.tuning is not None:
            yield from tuner_families(self._grid.tuning)
        yield _gauge("loop_lag_seconds", "How late the event loop ran its newest timer", self._lag.lag_s)
        yield _gauge("loop_lag_worst_seconds", "The worst event-loop lag of the last minute", self._lag.worst_s)

    def _stream_families(self) -> Iterator[Metric]:
        yield _gauge("agent_streams", "Heartbeat streams open", self._agent_streams())
        yield _gauge("gateway_streams", "View streams open", len(self._grid.feeds))
        waiting = GaugeMetricFamily(
            PREFIX + "gateway_waiting_cells", "Cells a gateway has not been told of yet", labels=("gateway",)
        )
        for status in self._grid.gateways():
            waiting.add_metric((status.report.gateway_id,), status.waiting_cells)
        yield waiting

    def _counter_families(self) -> Iterator[Metric]:
        for name, value in sorted(self._grid.counters.items()):
            help_text = f"Since control started: {name.replace('_', ' ')}"
            yield CounterMetricFamily(PREFIX + name, help_text, value=value)

    def _state_families(self) -> Iterator[Metric]:
        yield _gauge("publishing_ratio", "1 while grid views are published, 0 while held back", self._grid.publishing)
        yield _gauge("state_saved_ratio", "1 while the state file is in step with memory", not self._saver.problem)
        empty = bool(self._saver.started_empty_because)
        yield _gauge("state_started_empty_ratio", "1 if the saved state could not be used at start", empty)
        yield CounterMetricFamily(
            PREFIX + "state_failures", "Failures to read or write the state file", value=self._saver.failures
        )


def registry(collector: ControlCollector) -> CollectorRegistry:
    """A registry of this process's own: nothing global."""
    made = CollectorRegistry()
    made.register(collector)
    ProcessCollector(registry=made)
    return made


def _cell_families(statuses: Sequence[CellStatus]) -> Iterator[Metric]:
    cells = GaugeMetricFamily(PREFIX + "cells", "Cells by life-cycle state", labels=("state",))
    counts = Counter(status.view.state for status in statuses)
    for state in CellState:
        cells.add_metric((state.value,), counts[state])
    yield cells
    ready = GaugeMetricFamily(
        PREFIX + "cell_ready_ratio",
        "1 if the cell is READY; of 'other' cells, the share that is",
        labels=("cell", "site"),
    )
    age = GaugeMetricFamily(
        PREFIX + "cell_heartbeat_age_seconds",
        "Since the cell's last heartbeat; of 'other' cells, the oldest",
        labels=("cell", "site"),
    )
    for status in statuses[:MAX_CELL_LABELS]:
        labels = (status.view.cell.cell_id, status.view.cell.site)
        ready.add_metric(labels, status.view.state is CellState.READY)
        if status.heartbeat_age_s is not None:
            age.add_metric(labels, status.heartbeat_age_s)
    rest = statuses[MAX_CELL_LABELS:]
    if rest:
        ages_s = [status.heartbeat_age_s for status in rest if status.heartbeat_age_s is not None]
        ready.add_metric((OTHER, OTHER), sum(status.view.state is CellState.READY for status in rest) / len(rest))
        age.add_metric((OTHER, OTHER), max(ages_s, default=0.0))
    yield ready
    yield age


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=float(value))
