"""The gateway's state as Prometheus series, made at scrape time: series of cells that left disappear by themselves."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tradewind.gateway.epp.metrics import epp_families
from tradewind.gateway.families import MAX_CELLS, PREFIX, Family, counter, counters, gauge, gauges
from tradewind.gateway.outcomes import STATUS_CLASSES, OutcomeBook, Series, Spread
from tradewind.gateway.pick.metrics import pick_families
from tradewind.gateway.status import CellStatus, GatewayStatus, HealthRow


class StateCollector(Collector):
    """Turns one GatewayStatus into metric families."""

    def __init__(
        self, status: Callable[[], GatewayStatus], event_counts: Callable[[], dict[str, int]], book: OutcomeBook
    ) -> None:
        self._status = status
        self._book = book
        self._event_counts = event_counts

    def describe(self) -> list[Family]:
        """Nothing: the families are known only at scrape time."""
        return []

    def collect(self) -> Iterator[Family]:
        """All families of this moment."""
        status = self._status()
        yield from _cells(status.cells[:MAX_CELLS])
        yield from _controls(status)
        yield from _envoy(status)
        yield from _process(status.process)
        if status.pick is not None:
            yield from pick_families(status.pick)
        if status.epp is not None:
            yield from epp_families(status.epp)
        yield from outcome_families(self._book)
        yield counters("events", "Decisions and findings by name", "name", sorted(self._event_counts().items()))


def _cells(cells: list[CellStatus]) -> Iterator[Family]:
    terms = [(cell.cell_id, cell.terms) for cell in cells if cell.terms is not None]
    yield gauges("cell_weight", "Weight in force (1..134)", "cell", ((c.cell_id, c.weight) for c in cells))
    yield gauges(
        "cell_rtt_seconds",
        "Round trip from this gateway on a warm connection",
        "cell",
        ((c.cell_id, c.rtt_s) for c in cells),
    )
    yield gauges("cell_jitter_seconds", "Smoothed change of the RTT", "cell", ((c.cell_id, c.jitter_s) for c in cells))
    yield gauges(
        "cell_reachable", "1 if this gateway's probe gets through", "cell", ((c.cell_id, c.reachable) for c in cells)
    )
    yield gauges("cell_silent", "1 if control hears no heartbeat", "cell", ((c.cell_id, c.silent) for c in cells))
    yield gauges(
        "cell_ready", "1 if the life cycle says READY", "cell", ((c.cell_id, c.state == "ready") for c in cells)
    )
    yield gauges("cell_pressure_ratio", "Load pressure, 0 idle", "cell", ((name, row.pressure) for name, row in terms))
    yield gauges("cell_speed_ratio", "Speed against the class", "cell", ((name, row.speed) for name, row in terms))
    yield gauges("cell_blind", "1 if telemetry is unknown", "cell", ((name, row.blind) for name, row in terms))
    yield gauges("cell_drained", "1 if scored out of its pools", "cell", ((name, row.drained) for name, row in terms))


def _controls(status: GatewayStatus) -> Iterator[Family]:
    rows = status.controls
    yield gauges(
        "view_age_seconds", "Time since the last view message", "control", ((row.control_id, row.age_s) for row in rows)
    )
    yield gauges(
        "control_connected",
        "1 while the view stream is up",
        "control",
        ((row.control_id, row.connected) for row in rows),
    )
    yield gauge("cells", "Cells in the merged view", len(status.cells))
    yield gauge(
        "pools_held", "Pools that keep their last endpoints for want of better", sum(p.held for p in status.pools)
    )
    yield gauge("ready", "1 once Envoy has taken a snapshot", status.ready)
    yield gauge("view_from_disk", "1 until a control has sent a full view", status.from_disk)


def _envoy(status: GatewayStatus) -> Iterator[Family]:
    yield gauge("envoy_connected", "1 while Envoy's stream is up", status.envoy.connected)
    yield gauge("envoy_settled", "1 while Envoy holds the newest snapshot", status.envoy.settled)
    yield gauge("gate_missing", "1 while a first-token gate is wanted and not to be had", status.gate.missing)
    yield gauges("gate_info", "1 for the first-token gate in force", "mode", [(status.gate.mode, 1.0)])
    nacks: dict[str, int] = {}
    for row in status.envoy.types:
        nacks[row.type] = nacks.get(row.type, 0) + row.nacks
    yield counters("xds_nacks", "Updates that Envoy refused", "type", sorted(nacks.items()))
    yield counter("snapshots", "Snapshots handed to Envoy", status.push.snapshots)
    yield gauge("held_back", "Ticks since the last push inside the dead band", status.push.held_back)
    yield gauge("refused_endpoints", "Entries left out of the newest snapshot", len(status.push.refused))
    if status.push.update_us is not None:
        yield gauge("update_microseconds", "Decision to built snapshot, newest", status.push.update_us)


def _process(row: HealthRow) -> Iterator[Family]:
    yield gauge("loop_lag_seconds", "How late timers run, newest", row.loop_lag_s)
    yield gauge("loop_lag_worst_seconds", "How late timers ran, worst of the last minute", row.loop_lag_worst_s)
    yield gauge("tasks", "Tasks in the event loop", row.tasks)
    yield gauge("config_valid", "1 while the newest grid file is valid", not row.config_error)
    yield counter("config_failures", "Grid files refused at reload", row.config_failures)
    yield counter("saved_view_failures", "Times the saved view could not be read or written", row.saved_view_failures)
    yield counter("log_lines_dropped", "Request log lines lost", row.log_lines_dropped)
    yield counter("probes_sent", "Synthetic requests of a refused shape", row.probes_sent)
    yield counter("outcomes", "Access log entries", row.outcomes)
    yield counter(
        "outcomes_unattributed", "Access log entries whose endpoint is no known cell", row.outcomes_unattributed
    )


def outcome_families(book: OutcomeBook) -> Iterator[Family]:
    """Requests, TTFT and E2E by cell and by model; label values come from bounded sets."""
    requests = CounterMetricFamily(
        f"{PREFIX}requests",
        "Requests finished, by the cell that answered last and the class of the status",
        labels=["cell", "status_class"],
    )
    cells = book.by_cell()
    for cell, series in cells:
        for kind, count in zip(STATUS_CLASSES, series.statuses, strict=True):
            if count:
                requests.add_metric([cell, kind], count)
    yield requests
    yield from _spreads("cell", cells)
    yield from _spreads("model", book.by_model())


def _spreads(label: str, held: list[tuple[str, Series]]) -> Iterator[Family]:
    name = f"{PREFIX}{label}_"
    ttft = HistogramMetricFamily(f"{name}ttft_seconds", f"Start to first body byte, by {label}", labels=[label])
    e2e = HistogramMetricFamily(f"{name}e2e_seconds", f"Start to end, by {label}", labels=[label])
    for item, series in held:
        ttft.add_metric([item], _buckets(series.ttft_s), series.ttft_s.total_s)
        e2e.add_metric([item], _buckets(series.e2e_s), series.e2e_s.total_s)
    yield ttft
    yield e2e


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in spread.bounds), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, accumulate(spread.counts), strict=True)]
