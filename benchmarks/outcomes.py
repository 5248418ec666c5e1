"""Access-log entry -> outcome -> counters, scorer, request log: what a finished request costs the gateway's CPU."""

import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from envoy.data.accesslog.v3 import accesslog_pb2
from envoy.service.accesslog.v3 import als_pb2

from benchmarks.grids import cell_views
from benchmarks.usage import p50
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.gateway.accesslog import AccessLogServer
from tradewind.gateway.worker import Worker
from tradewind.lab.checks import Check, reported
from tradewind.model.routing import ProbeOrder
from tradewind.model.view import CellView, ViewDelta, ViewVersion
from tradewind.xds.snapshot import Snapshot
from tradewind.xds.usage import NAMESPACE

CELLS = 9
ENTRIES_PER_MESSAGE = 25  # 500 requests per second at a flush of 50 ms
FLUSH_EVERY = 250  # entries between two writes of the request log
WARM_UP = 12  # rounds until the window of a minute is full


def bench(quick: bool) -> list[Check]:
    return [reported("gateway, CPU per access-log entry, p50", measure(20 if quick else 100), unit="us")]


def measure(rounds: int, *, messages: int = 100) -> float:
    """Microseconds of CPU per entry, from Envoy's bytes to a line on disk; median over rounds."""
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        payloads = [message(rig.views, number) for number in range(messages)]
        for number in range(rounds + WARM_UP):
            started_s = time.process_time()
            for payload in payloads:
                rig.take(payload)
            if number >= WARM_UP:
                costs.append((time.process_time() - started_s) / (messages * ENTRIES_PER_MESSAGE) * 1e6)
    return p50(costs)


class Rig:
    """A worker over healthy cells and its access-log server, with a clock that runs at 500 requests per second."""

    def __init__(self, folder: Path) -> None:
        gateway = GatewayConfig(id="gw", listen="127.0.0.1:1")
        self.now_s = 100.0
        self.views = cell_views(CELLS, 1)
        self.worker = Worker(
            GridConfig(state_dir=str(folder), gateways=[gateway]),
            gateway,
            effects=NoEffects(),
            clock=lambda: self.now_s,
            unix_clock=time.time,
            rng=random.Random(1),
        )
        version = ViewVersion(control_id="a", incarnation="c1", counter=1)
        self.worker.on_delta("a", ViewDelta(version=version, full=True, cells=self.views))
        self.worker.tick()
        self.server = AccessLogServer(self.worker.cell_at, self.worker.on_outcome)
        self._waiting = 0

    def take(self, payload: bytes) -> None:
        """One message of Envoy's, and the request log's flush when it is due."""
        self.now_s += ENTRIES_PER_MESSAGE / 500
        for entry in als_pb2.StreamAccessLogsMessage.FromString(payload).http_logs.log_entry:
            self.server.take(entry)
        self._waiting += ENTRIES_PER_MESSAGE
        if self._waiting >= FLUSH_EVERY:
            self._waiting = 0
            self.worker.request_log.write(self.worker.request_log.take())


class NoEffects:
    """The outside, absent."""

    def publish(self, snapshot: Snapshot) -> None: ...

    def probe(self, order: ProbeOrder) -> None: ...

    def sync_cells(self, addresses: dict[str, str]) -> None: ...

    def unreachable(self) -> frozenset[str]:
        return frozenset()

    def tick_soon(self) -> None: ...

    def report_soon(self) -> None: ...


def message(views: tuple[CellView, ...], seed: int) -> bytes:
    """One message as Envoy sends it: whole answers, streams, now and then a retried attempt or a refusal."""
    rng = random.Random(seed)
    made = als_pb2.StreamAccessLogsMessage()
    for _ in range(ENTRIES_PER_MESSAGE):
        made.http_logs.log_entry.extend(entries(views, rng))
    return bytes(made.SerializeToString())


def entries(views: tuple[CellView, ...], rng: random.Random) -> Iterator[accesslog_pb2.HTTPAccessLogEntry]:
    request_id = f"{rng.getrandbits(128):032x}"
    first, second = rng.sample(views, 2)
    retried, refused = rng.random() < 0.01, rng.random() < 0.005
    if retried:
        failed = entry(request_id, first, rng, status=503)
        failed.common_properties.access_log_type = accesslog_pb2.AccessLogType.UpstreamEnd
        yield failed
    made = entry(request_id, second, rng, status=429 if refused else 200)
    made.common_properties.upstream_request_attempt_count = 2 if retried else 1
    made.common_properties.custom_tags["ttft_us"] = str(rng.randrange(20_000, 400_000))
    made.common_properties.metadata.filter_metadata[NAMESPACE].update(usage(rng))
    yield made


def usage(rng: random.Random) -> Mapping[str, str | int]:
    """Half of the answers are streams."""
    prompt, completion = rng.randrange(100, 4000), rng.randrange(1, 500)
    if rng.random() < 0.5:
        return {"answer": f"{prompt},{completion},"}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "cached_tokens": prompt // 2}


def entry(request_id: str, view: CellView, rng: random.Random, *, status: int) -> accesslog_pb2.HTTPAccessLogEntry:
    """The fields that Envoy fills for one request."""
    made = accesslog_pb2.HTTPAccessLogEntry(protocol_version=accesslog_pb2.HTTPAccessLogEntry.HTTP11)
    request, response, common = made.request, made.response, made.common_properties
    request.request_id, request.scheme, request.authority = request_id, "http", "localhost:8080"
    request.path, request.original_path = "/v1/chat/completions", "/v1/chat/completions"
    request.request_headers_bytes, request.request_body_bytes = 412, rng.randrange(200, 20_000)
    response.response_code.value, response.response_code_details = status, "via_upstream"
    response.response_headers_bytes, response.response_body_bytes = 160, rng.randrange(300, 60_000)
    host, _, port = view.cell.address.rpartition(":")
    for address in (common.upstream_remote_address, common.downstream_remote_address, common.upstream_local_address):
        address.socket_address.address, address.socket_address.port_value = host, int(port)
    common.access_log_type = accesslog_pb2.AccessLogType.DownstreamEnd
    common.route_name = f"pool/0123abcd/{view.cell.capabilities.models[0]}"
    common.upstream_cluster, common.stream_id = "pool/0123abcd", request_id
    common.start_time.GetCurrentTime()
    for offset in (common.time_to_last_rx_byte, common.time_to_first_upstream_tx_byte, common.duration):
        offset.FromMicroseconds(rng.randrange(100, 2_000_000))
    common.custom_tags.update({"flags": "-", "ttft_us": "-"})
    return made
