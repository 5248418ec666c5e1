"""The ADS server with a real Envoy: restarts, refusals, warming, removal, broken configuration."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal, Self

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2

from tests.fakes.engine import FakeEngine, sse_reply
from tests.support.edge import Edge, GatewaySide, routing_of, running_edge, wait_for
from tradewind.xds import types
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import XdsSettings
from tradewind.xds.snapshot import Resource, Snapshot

Protocol = Literal["sotw", "delta"]
BODY = {"model": "m", "messages": []}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def engines() -> Iterator[list[FakeEngine]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FakeEngine()) for _ in range(2)]


@pytest.fixture(scope="module", params=["sotw", "delta"])
def edge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge"), protocol=request.param) as edge:
        yield edge


class Traffic:
    """Requests for one model, one after the other, in a thread; their statuses."""

    def __init__(self, edge: Edge, model: str = "m", pause_s: float = 0.01) -> None:
        self.statuses: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(edge, model, pause_s))

    def _run(self, edge: Edge, model: str, pause_s: float) -> None:
        while not self._stop.wait(pause_s):
            self.statuses.append(edge.post({"model": model}).status)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        seen = len(self.statuses)
        wait_for(lambda: len(self.statuses) > seen + 2)
        self._stop.set()
        self._thread.join()
        assert set(self.statuses) == {200}


def pool(engines: list[FakeEngine], *weights: int) -> list[tuple[str, int]]:
    return [(engine.address, weight) for engine, weight in zip(engines, weights, strict=False)]


def with_resource(snapshot: Snapshot, kind: str, name: str, payload: bytes) -> Snapshot:
    """The same snapshot with one resource's bytes replaced: past our own checks, on purpose."""
    parts = {k: dict(snapshot.of(k)) for k in types.ORDER}
    parts[kind][name] = Resource.of(kind, name, payload)
    return Snapshot(parts)


def warming(edge: Edge) -> int:
    return edge.envoy.stats("cluster_manager.warming_clusters")["cluster_manager.warming_clusters"]


def test_fc_40_restarted_empty_it_changes_nothing_until_it_knows(edge: Edge, engines: list[FakeEngine]) -> None:
    edge.route({"m": pool(engines, 3, 1)})
    with Traffic(edge) as traffic:
        for _ in range(2):
            edge.restart_gateway()
            wait_for(lambda: edge.gateway.state().streams == 1, 10)
            before = len(traffic.statuses)
            wait_for(lambda before=before: len(traffic.statuses) > before + 5)  # type: ignore[misc]
            assert edge.gateway.state().types[0].acks == 0, "nothing was sent"
            membership = edge.envoy.stats("cluster.pool/m.membership_healthy")
            assert membership["cluster.pool/m.membership_healthy"] == 2


def test_fc_40_equal_content_after_a_restart_is_no_change(edge: Edge, engines: list[FakeEngine]) -> None:
    """Versions are hashes of the content, so they neither repeat nor restart at 1."""
    edge.route({"m": pool(engines, 3, 1)})
    pattern = "config_reload$|cluster_(added|modified|removed)$"
    before = edge.envoy.stats(pattern)
    edge.restart_gateway()
    edge.route({"m": pool(engines, 3, 1)})
    assert edge.envoy.stats(pattern) == before


def test_fc_44_a_real_refusal_keeps_the_last_good_and_recovers(edge: Edge, engines: list[FakeEngine]) -> None:
    good = edge.builder.build(routing_of({"m": pool(engines, 1, 1)}))
    edge.publish(routing_of({"m": pool(engines, 1, 1)}))
    bad_assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name="pool/m")
    bad_assignment.endpoints.add().lb_endpoints.add().endpoint.address.socket_address.address = "not-an-ip"
    bad_routes = route_pb2.RouteConfiguration.FromString(good.of(types.ROUTE)["front"].body.value)
    bad_routes.virtual_hosts[0].routes[0].match.safe_regex.regex = "("
    with Traffic(edge):
        for kind, name, message in (
            (types.ENDPOINT, "pool/m", bad_assignment),
            (types.ROUTE, "front", bad_routes),
        ):
            bad = with_resource(good, kind, name, message.SerializeToString(deterministic=True))
            sent = state_of(edge, kind).nacks
            edge.gateway.publish(bad, wait=False)
            wait_for(lambda kind=kind, sent=sent: state_of(edge, kind).nacks == sent + 1)  # type: ignore[misc]
            for _ in range(5):
                edge.gateway.publish(bad, wait=False)
            time.sleep(0.1)  # nothing to wait for: what must not come, does not
            state = state_of(edge, kind)
            assert (state.nacks, state.nacked) == (sent + 1, bad.versions[kind])
            assert state.reason
            edge.publish(routing_of({"m": pool(engines, 1, 2)}))
            assert state_of(edge, kind).reason == ""
            edge.publish(routing_of({"m": pool(engines, 1, 1)}))
    assert [event.type for event in edge.gateway.events if event.name == "nack"] == ["eds", "rds"]
    assert len([event for event in edge.gateway.events if event.name == "recovered"]) == 2


def state_of(edge: Edge, kind: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    return next(row for row in edge.gateway.state().types if row.type == types.SHORT[kind])


def test_fc_45_clusters_come_go_and_come_back(edge: Edge, engines: list[FakeEngine]) -> None:
    both = {"m": pool(engines, 1, 1), "other": pool(engines, 1)}
    with Traffic(edge_with(edge, both)):
        for _ in range(5):
            edge.route({"m": pool(engines, 1, 1)})
            assert edge.post({"model": "other"}).status == 404
            edge.route(both)
            assert edge.post({"model": "other"}).status == 200
            assert warming(edge) == 0
        edge.route({**both, "other": []})
        assert edge.post({"model": "other"}).status == 503
        assert warming(edge) == 0


def edge_with(edge: Edge, pools: dict[str, list[tuple[str, int]]]) -> Edge:
    edge.route(pools)
    return edge


def test_fc_45_a_changed_cluster_warms_though_its_endpoints_are_the_same(edge: Edge, engines: list[FakeEngine]) -> None:
    routing = routing_of({"m": pool(engines, 1, 1), "other": pool(engines, 1)})
    edge.publish(routing)
    with Traffic(edge), Traffic(edge, "other"):
        for timeout_s in (0.5, 0.6, 0.7):
            changed = SnapshotBuilder(replace(edge.settings, connect_timeout_s=timeout_s))
            edge.gateway.publish(changed.build(routing))
            wait_for(lambda: warming(edge) == 0, 2)
        edge.publish(routing)


def test_fc_45_an_unknown_assignment_is_answered(edge: Edge, engines: list[FakeEngine]) -> None:
    """A raw client asks for one known and one unknown assignment: both are answered."""
    edge.route({"m": pool(engines, 1)})
    with grpc.insecure_channel(f"unix:{edge.socket_path}") as channel:
        call = channel.stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            request_serializer=discovery_pb2.DiscoveryRequest.SerializeToString,
            response_deserializer=discovery_pb2.DiscoveryResponse.FromString,
        )
        request = discovery_pb2.DiscoveryRequest(type_url=types.ENDPOINT, resource_names=["pool/m", "pool/zz"])
        request.node.id = "raw"
        done = threading.Event()

        def requests() -> Iterator[discovery_pb2.DiscoveryRequest]:
            yield request
            done.wait(10)

        (response,) = islice(call(requests(), timeout=10), 1)
        done.set()
    assert [endpoint_pb2.ClusterLoadAssignment.FromString(r.value).cluster_name for r in response.resources] == [
        "pool/m",
        "pool/zz",
    ]


def test_fc_48_a_broken_cell_list_keeps_the_rest_and_in_flight_is_untouched(
    edge: Edge, engines: list[FakeEngine]
) -> None:
    """Valid, then with cells that Envoy cannot take, then valid: streams in flight finish, nobody else notices."""
    engines[0].on(CHAT, sse_reply(["x"] * 10, gap_s=0.05))
    edge.route({"m": pool(engines, 1)})
    received: list[bool] = []
    stream = threading.Thread(target=lambda: received.append(edge.stream({**BODY, "stream": True}).complete))
    stream.start()
    wait_for(lambda: any(seen.done_s is None for seen in engines[0].requests(CHAT)))
    edge.route({"m": [("engine.example:80", 1), (engines[1].address, 1)]})
    assert edge.post(BODY).status == 200
    edge.route({"m": [(engines[1].address, 1)]})
    assert edge.post(BODY).status == 200
    stream.join()
    assert received == [True]


def test_in_flight_streams_finish_when_their_pool_is_removed(edge: Edge, engines: list[FakeEngine]) -> None:
    engines[0].on(CHAT, sse_reply(["x"] * 10, gap_s=0.05))
    edge.route({"m": pool(engines, 1), "other": pool(engines[1:], 1)})
    received: list[bool] = []
    before = len(engines[0].requests(CHAT))
    stream = threading.Thread(target=lambda: received.append(edge.stream({**BODY, "stream": True}).complete))
    stream.start()
    wait_for(lambda: len(engines[0].requests(CHAT)) > before)
    edge.route({"other": pool(engines[1:], 1)})
    assert edge.post(BODY).status == 404
    stream.join()
    assert received == [True]


def test_a_fresh_envoy_waits_for_the_first_snapshot(tmp_path: Path, engines: list[FakeEngine]) -> None:
    with running_edge(tmp_path) as edge:
        wait_for(lambda: edge.gateway.state().streams == 1, 20)
        assert edge.gateway.state().types[0].acks == 0
        edge.route({"m": pool(engines, 1)})
        edge.envoy.wait_ready()
        assert edge.post(BODY).status == 200


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "gateway.sock")
    for _ in range(2):
        Path(path).touch()
        GatewaySide(path, {}).close()


def test_two_workers_share_one_configuration(tmp_path: Path) -> None:
    """The builder is a pure function of its input: what two processes publish is byte for byte the same."""
    routing = routing_of({"m": [("127.0.0.1:1", 3), ("127.0.0.1:2", 4)]})
    settings = XdsSettings(listen="127.0.0.1:1")
    assert SnapshotBuilder(settings).build(routing).version == SnapshotBuilder(settings).build(routing).version
