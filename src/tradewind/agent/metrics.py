"""The agent's own Prometheus metrics; labels are cells, controls and fixed words, so their number is bounded."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCRAPE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class AgentMetrics:
    """Made once per agent process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        target = ("cell", "target")
        self.scrapes = Counter(
            "tradewind_agent_scrapes", "Scrapes by result: ok, or why not", (*target, "result"), registry=registry
        )
        self.scrape_seconds = Histogram(
            "tradewind_agent_scrape_seconds", "Time of a good scrape", target, buckets=SCRAPE_BUCKETS, registry=registry
        )
        self.bad_lines = Counter(
            "tradewind_agent_bad_lines", "Lines of wanted metrics that do not parse", target, registry=registry
        )
        self.age_seconds = Gauge(
            "tradewind_agent_telemetry_age_seconds", "Age of the held reading", target, registry=registry
        )
        self.unknown = Gauge(
            "tradewind_agent_unknown_signals", "Signals that cannot be read now", ("cell",), registry=registry
        )
        self.reachable = Gauge(
            "tradewind_agent_engine_reachable_ratio", "1 if the engine answers", ("cell",), registry=registry
        )
        self.deaths = Counter(
            "tradewind_agent_engine_deaths", "Times the engine was found dead", ("cell",), registry=registry
        )
        self.warm_ups = Counter(
            "tradewind_agent_warm_ups", "Warm-up requests by result", ("cell", "result"), registry=registry
        )
        self.kv_batches, self.kv_missed, self.kv_bad = _kv_counters(registry)
        self.kv_heard = Gauge(
            "tradewind_agent_kv_events_heard_ratio",
            "1 while the engine's KV events are heard, 0 while they are not",
            ("cell",),
            registry=registry,
        )
        link = ("control",)
        self.connected = Gauge(
            "tradewind_agent_control_connected_ratio", "1 while the stream is open", link, registry=registry
        )
        self.streams = Counter("tradewind_agent_control_streams", "Heartbeat streams opened", link, registry=registry)
        self.sent = Counter("tradewind_agent_heartbeats", "Heartbeats written", link, registry=registry)
        self.sent_bytes = Counter(
            "tradewind_agent_heartbeat_bytes", "Bytes of heartbeats written", link, registry=registry
        )
        self.superseded = Counter(
            "tradewind_agent_heartbeats_superseded",
            "Heartbeats replaced by a newer one before they were sent",
            link,
            registry=registry,
        )
        self.refused = Gauge(
            "tradewind_agent_refused_ratio",
            "1 while control refuses this agent's claim to a cell",
            ("control", "cell"),
            registry=registry,
        )

    def app(self) -> Starlette:
        """Serves /metrics and /healthz."""

        async def metrics(_request: Request) -> Response:
            return Response(generate_latest(self.registry), media_type=CONTENT_TYPE)

        async def health(_request: Request) -> Response:
            return Response("ok\n", media_type="text/plain")

        return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", health)])


def _kv_counters(registry: CollectorRegistry) -> tuple[Counter, Counter, Counter]:
    cell = ("cell",)
    return (
        Counter("tradewind_agent_kv_event_batches", "Batches of KV events heard", cell, registry=registry),
        Counter(
            "tradewind_agent_kv_event_batches_missed",
            "Batches of KV events that a gap in their numbers tells of",
            cell,
            registry=registry,
        ),
        Counter(
            "tradewind_agent_kv_events_bad", "Messages and KV events that could not be read", cell, registry=registry
        ),
    )
