"""Snapshots: deterministic, content-addressed, whole; bad cells stay out and are named."""

from itertools import pairwise

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2
from hypothesis import given
from hypothesis import strategies as st

from tradewind.config.schema import GatewayConfig, LimitsConfig
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds import types
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.encode import message_field, varint, varint_field
from tradewind.xds.endpoints import SnapshotError, split_address
from tradewind.xds.fallback import MAX_SHARE_RATIO
from tradewind.xds.settings import ModelInfo, Policy, XdsSettings, parse_policy, settings_of
from tradewind.xds.snapshot import Resource, Snapshot

SETTINGS = XdsSettings(listen="127.0.0.1:8080")


def endpoint(cell: str, address: str, weight: int = 1, site: str = "east") -> Endpoint:
    return Endpoint(cell_id=cell, site=site, address=address, weight=weight)


def routing(**pools: list[Endpoint]) -> Routing:
    return Routing(
        pools=tuple(PoolRouting(model=model, endpoints=tuple(members)) for model, members in sorted(pools.items()))
    )


def assignment(snapshot: Snapshot, name: str) -> endpoint_pb2.ClusterLoadAssignment:
    return endpoint_pb2.ClusterLoadAssignment.FromString(snapshot.of(types.ENDPOINT)[name].body.value)


def routes(snapshot: Snapshot) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration.FromString(snapshot.of(types.ROUTE)["front"].body.value)


NINE = routing(
    a=[endpoint(f"c{i}", f"10.0.0.{i}:8000", 10 + i, "east" if i % 2 else "west") for i in range(1, 10)],
    b=[endpoint("d", "[2001:db8::1]:443", 134)],
    empty=[],
)


def test_equal_content_has_equal_versions_whoever_builds_it() -> None:
    veteran = SnapshotBuilder(SETTINGS)
    veteran.build(routing(z=[endpoint("x", "10.9.9.9:1", 5)]))
    veteran.build(NINE)
    first, second = veteran.build(NINE), SnapshotBuilder(SETTINGS).build(NINE)
    assert first.versions == second.versions
    assert first.version == second.version
    for kind in types.ORDER:
        assert [r.body.value for r in first.of(kind).values()] == [r.body.value for r in second.of(kind).values()]


def changed_types(*weights: tuple[int, int], site: str = "east") -> list[set[str]]:
    """What each pair of weights after the first changes in the snapshot of two pools; `site`: of the last pair's."""
    builder = SnapshotBuilder(SETTINGS)
    steps = []
    for number, (first, second) in enumerate(weights):
        place = site if number == len(weights) - 1 else "east"
        pool = [endpoint("c", "10.0.0.1:80", first), endpoint("d", "10.0.0.2:80", second, place)]
        steps.append(builder.build(routing(a=pool, b=[endpoint("e", "10.0.0.3:80")])))
        assert steps[0].of(types.ENDPOINT)["pool/b"] == steps[-1].of(types.ENDPOINT)["pool/b"]
    return [{kind for kind in types.ORDER if old.versions[kind] != new.versions[kind]} for old, new in pairwise(steps)]


def test_a_small_change_of_weights_goes_over_the_routes_alone() -> None:
    assert changed_types((100, 100), (100, 90), (134, 100)) == [{types.ROUTE}, {types.ROUTE}]


def test_a_share_that_is_off_by_more_than_a_factor_takes_the_endpoint_set_along() -> None:
    both = {types.ENDPOINT, types.ROUTE}
    assert changed_types((100, 100), (100, 1)) == [both]
    assert changed_types((100, 1), (100, 3)) == [both]
    assert changed_types((100, 100), (100, 100), site="west") == [{types.ENDPOINT}]


def test_drift_adds_up_to_a_new_endpoint_set() -> None:
    """The measure is what Envoy holds, not the weights of the step before: many small steps are a large one."""
    shrinking = [(100, round(100 * 0.9**step)) for step in range(14)]
    with_endpoints = [types.ENDPOINT in changed for changed in changed_types(*shrinking)]
    assert with_endpoints.count(True) == 1
    assert not any(with_endpoints[:6])


def test_scaling_all_weights_alike_changes_no_share() -> None:
    assert changed_types((10, 20), (100, 200)) == [{types.ROUTE}]


def test_members_that_come_or_go_reach_the_endpoint_set_at_once() -> None:
    builder, pair = SnapshotBuilder(SETTINGS), [endpoint("c", "10.0.0.1:80"), endpoint("d", "10.0.0.2:80")]
    for members in (pair, pair[:1], [], pair[:1], pair):
        message = assignment(builder.build(routing(m=members)), "pool/m")
        seen = [e.endpoint.address.socket_address.address for s in message.endpoints for e in s.lb_endpoints]
        assert seen == [e.address.partition(":")[0] for e in members]


def test_a_new_table_is_a_new_route_name_whatever_the_endpoint_set() -> None:
    """Lua reads a table anew only when the name of its route changes."""
    builder = SnapshotBuilder(SETTINGS)
    pools = [routing(m=[endpoint("c", "10.0.0.1:80", 100), endpoint("d", "10.0.0.2:80", w)]) for w in (100, 99, 100)]
    names = [routes(builder.build(pool)).virtual_hosts[0].routes[0].name for pool in pools]
    assert names[0] == names[2] != names[1]


@given(st.lists(st.lists(st.integers(min_value=1, max_value=134), min_size=4, max_size=4), min_size=1, max_size=12))
def test_the_fallbacks_shares_are_never_off_by_more_than_the_factor(history: list[list[int]]) -> None:
    builder = SnapshotBuilder(SETTINGS)
    for weights in history:
        members = [endpoint(f"c{i}", f"10.0.0.{i}:80", weight) for i, weight in enumerate(weights)]
        sent = assignment(builder.build(routing(m=members)), "pool/m").endpoints[0].lb_endpoints
        held = [e.load_balancing_weight.value for e in sent]
        for wanted, told in zip(weights, held, strict=True):
            ratio = (told / sum(held)) / (wanted / sum(weights))
            assert 0.999999 / MAX_SHARE_RATIO < ratio < 1.000001 * MAX_SHARE_RATIO


def test_hand_written_bytes_are_the_message() -> None:
    """Parsing and serialising again gives the same content: localities by site, weights, addresses, ports."""
    message = assignment(SnapshotBuilder(SETTINGS).build(NINE), "pool/a")
    assert message.cluster_name == "pool/a"
    assert [locality.locality.region for locality in message.endpoints] == ["east", "west"]
    seen = {
        (e.endpoint.address.socket_address.address, e.endpoint.address.socket_address.port_value): (
            e.load_balancing_weight.value
        )
        for locality in message.endpoints
        for e in locality.lb_endpoints
    }
    assert seen == {(f"10.0.0.{i}", 8000): 10 + i for i in range(1, 10)}
    six = assignment(SnapshotBuilder(SETTINGS).build(NINE), "pool/b").endpoints[0].lb_endpoints[0]
    assert six.endpoint.address.socket_address.address == "2001:db8::1"


def test_the_share_table_rides_in_the_pools_route() -> None:
    table = routes(SnapshotBuilder(SETTINGS).build(NINE)).virtual_hosts[0].routes
    pools = {route.route.cluster: route for route in table if route.route.cluster}
    assert sorted(pools) == ["pool/a", "pool/b", "pool/empty"]
    shares = pools["pool/a"].metadata.filter_metadata["tradewind.share"].fields["shares"].string_value
    assert shares == "".join(f"10.0.0.{i}:8000={10 + i}," for i in range(1, 10))
    assert pools["pool/b"].metadata.filter_metadata["tradewind.share"].fields["shares"].string_value == (
        "[2001:db8::1]:443=134,"
    )
    assert pools["pool/empty"].name == "pool//empty"
    assert pools["pool/a"].name.startswith("pool/")
    assert pools["pool/a"].name.endswith("/a")


def test_an_empty_pool_is_a_known_model_that_nobody_serves() -> None:
    snapshot = SnapshotBuilder(SETTINGS).build(routing(m=[]))
    assert assignment(snapshot, "pool/m").cluster_name == "pool/m"
    assert len(assignment(snapshot, "pool/m").endpoints) == 0


def test_bad_cells_are_left_out_and_named() -> None:
    members = [
        endpoint("good", "10.0.0.1:80"),
        endpoint("host-name", "engine.example:80"),
        endpoint("no-port", "10.0.0.2"),
        endpoint("twin", "10.0.0.1:80"),
    ]
    snapshot = SnapshotBuilder(SETTINGS).build(routing(m=members, **{"bad\x00name": []}))
    kept = assignment(snapshot, "pool/m").endpoints[0].lb_endpoints
    assert [e.endpoint.address.socket_address.address for e in kept] == ["10.0.0.1"]
    assert sorted(name for name, _ in snapshot.refused) == ["bad\x00name", "host-name", "no-port", "twin"]
    assert snapshot.of(types.CLUSTER).keys() == {"pool/m"}


def test_weights_that_envoy_would_refuse_or_overflow_are_an_error() -> None:
    big = [endpoint("a", "10.0.0.1:80", 2**31), endpoint("b", "10.0.0.2:80", 2**31)]
    with pytest.raises(SnapshotError, match="sum to more"):
        SnapshotBuilder(SETTINGS).build(routing(m=big))


@pytest.mark.parametrize(
    "address",
    ["", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:65536", "1.2.3.4:x", "x:1", "::1:80", "[1.2.3.4]:80",
     "1.2.3.4:+1", "[::1]", "1.2.3.4:８０", "01.2.3.4:80", "1.2.3.4 :80"],
)  # fmt: skip
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(SnapshotError):
        split_address(address)


def test_dangling_references_are_refused() -> None:
    whole = SnapshotBuilder(SETTINGS).build(NINE)
    parts = {kind: dict(whole.of(kind)) for kind in types.ORDER}
    with pytest.raises(SnapshotError, match="pool/a"):
        Snapshot({**parts, types.ENDPOINT: {k: v for k, v in parts[types.ENDPOINT].items() if k != "pool/a"}})
    with pytest.raises(SnapshotError, match="listener"):
        Snapshot({**parts, types.LISTENER: {}})
    with pytest.raises(SnapshotError, match="routes"):
        Snapshot({**parts, types.ROUTE: {}})


def test_a_resource_is_what_its_bytes_are() -> None:
    assert Resource.of(types.CLUSTER, "a", b"1") == Resource.of(types.CLUSTER, "a", b"1")
    assert Resource.of(types.CLUSTER, "a", b"1").version != Resource.of(types.CLUSTER, "a", b"2").version


def test_limits_reach_envoy() -> None:
    limits = LimitsConfig(
        connect_timeout_s=0.25, path_timeout_s=6.0, stream_idle_timeout_s=60.0, max_concurrent_requests=77, retries=2
    )
    settings = settings_of(GatewayConfig(listen="127.0.0.1:80", limits=limits))
    snapshot = SnapshotBuilder(settings).build(NINE)
    cluster = cluster_pb2.Cluster.FromString(snapshot.of(types.CLUSTER)["pool/a"].body.value)
    assert cluster.connect_timeout.nanos == 250_000_000
    assert cluster.circuit_breakers.thresholds[0].max_requests.value == 77
    assert [option.int_value for option in cluster.upstream_bind_config.socket_options] == [6_000]
    assert cluster.upstream_connection_options.tcp_keepalive.keepalive_time.value == 2
    assert cluster.per_connection_buffer_limit_bytes.value == 33_554_432
    assert cluster.common_lb_config.healthy_panic_threshold.value == 0
    listener = listener_pb2.Listener.FromString(snapshot.of(types.LISTENER)["front"].body.value)
    assert listener.per_connection_buffer_limit_bytes.value == 33_554_432
    route = routes(snapshot).virtual_hosts[0].routes[0].route
    assert (route.timeout.seconds, route.retry_policy.num_retries.value) == (0, 2)


@pytest.mark.parametrize(
    ("baseline", "policy", "lb_policy"),
    [
        ("", Policy(), cluster_pb2.Cluster.MAGLEV),
        ("round-robin", Policy(name="round-robin"), cluster_pb2.Cluster.ROUND_ROBIN),
        ("random", Policy(name="random"), cluster_pb2.Cluster.RANDOM),
        ("least-request", Policy(name="least-request"), cluster_pb2.Cluster.LEAST_REQUEST),
        ("least-request:9", Policy(name="least-request", choice_count=9), cluster_pb2.Cluster.LEAST_REQUEST),
    ],
)
def test_baselines(baseline: str, policy: Policy, lb_policy: int) -> None:
    assert parse_policy(baseline) == policy
    snapshot = SnapshotBuilder(settings_of(GatewayConfig(listen="127.0.0.1:80", baseline=baseline))).build(NINE)
    cluster = cluster_pb2.Cluster.FromString(snapshot.of(types.CLUSTER)["pool/a"].body.value)
    assert cluster.lb_policy == lb_policy
    weights = {e.load_balancing_weight.value for s in assignment(snapshot, "pool/a").endpoints for e in s.lb_endpoints}
    named = {route.name for route in routes(snapshot).virtual_hosts[0].routes if route.route.cluster == "pool/a"}
    if baseline:
        assert (weights, named) == ({1}, {"pool//a"})
    else:
        assert weights == set(range(11, 20))


@pytest.mark.parametrize("baseline", ["least-request:1", "least-request:0", "least-request:", "rr", "least-request:x"])
def test_unknown_baselines_say_what_to_write(baseline: str) -> None:
    with pytest.raises(ValueError, match="least-request:N"):
        parse_policy(baseline)


def test_model_info_of_unknown_pools_is_not_listed() -> None:
    snapshot = SnapshotBuilder(SETTINGS).build(routing(m=[]), [ModelInfo(model="gone"), ModelInfo(model="m")])
    text = snapshot.of(types.ROUTE)["front"].body.value
    assert b"gone" not in text


@given(st.integers(min_value=0, max_value=2**63))
def test_varints_are_little_endian_base_128(value: int) -> None:
    encoded = varint(value)
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(encoded)) == value
    assert all(byte & 0x80 for byte in encoded[:-1])
    assert not encoded[-1] & 0x80


def test_fields() -> None:
    assert varint_field(3, 300) == b"\x18\xac\x02"
    assert message_field(2, b"testing") == b"\x12\x07testing"


@given(st.lists(st.integers(min_value=1, max_value=2**20), min_size=1, max_size=40))
def test_any_weights_survive_the_encoding(weights: list[int]) -> None:
    members = [endpoint(f"c{i:02}", f"10.0.0.{i}:80", weight) for i, weight in enumerate(weights)]
    message = assignment(SnapshotBuilder(SETTINGS).build(routing(m=members)), "pool/m")
    assert [e.load_balancing_weight.value for e in message.endpoints[0].lb_endpoints] == weights


def test_orders_to_the_router_are_taken_from_clients_before_anything_reads_them() -> None:
    """Envoy itself removes them only from requests that it takes for external; which those are is a default of its."""
    listener = listener_pb2.Listener.FromString(
        SnapshotBuilder(SETTINGS).build(routing()).of(types.LISTENER)["front"].body.value
    )
    manager = http_connection_manager_pb2.HttpConnectionManager()
    mutation = header_mutation_pb2.HeaderMutation()
    assert listener.filter_chains[0].filters[0].typed_config.Unpack(manager)
    assert manager.early_header_mutation_extensions[0].typed_config.Unpack(mutation)
    removed = {item.remove_on_match.key_matcher.prefix for item in mutation.mutations}
    assert removed == {"x-tw-", "x-envoy-"}
