"""One Envoy cluster per pool."""

import socket
from functools import lru_cache

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, config_source_pb2, protocol_pb2, socket_option_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as upstream_http
from envoy.type.v3 import percent_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2
from google.protobuf.message import Message

from tradewind.xds.gate.filter import upstream_filters
from tradewind.xds.settings import Policy, XdsSettings

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_LB_POLICIES = {
    "shares": cluster_pb2.Cluster.MAGLEV,
    "round-robin": cluster_pb2.Cluster.ROUND_ROBIN,
    "least-request": cluster_pb2.Cluster.LEAST_REQUEST,
    "random": cluster_pb2.Cluster.RANDOM,
}
_EDS_FETCH_TIMEOUT_S = 5
_TCP_USER_TIMEOUT = 18  # linux/tcp.h; Envoy takes numbers
_KEEPALIVE_S = 30.0  # of silence, where there is no limit on the path
_PROBES = 3
# A prime. Envoy fills the table anew with each push, and MAGLEV is only the fallback under exact shares: a seventh of
# Envoy's default is filled in a seventh of the time, and still gives each of 1,000 cells some ten slots.
_MAGLEV_SLOTS = 10_007
_LEAST_RETRIES = 1024  # of a pool at once; four engines with vLLM's usual 256 sequences


def duration(seconds: float) -> duration_pb2.Duration:
    """A protobuf duration, exact to the microsecond."""
    micros = round(seconds * 1e6)
    return duration_pb2.Duration(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)


def pack(message: Message) -> any_pb2.Any:
    """Wrap a message in an Any, with map fields in a fixed order so that equal content has equal bytes."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message, deterministic=True)
    return wrapped


def ads_source(*, fetch_timeout_s: float | None = None) -> config_source_pb2.ConfigSource:
    """ "Ask the ADS stream." """
    source = config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(), resource_api_version=config_source_pb2.V3
    )
    if fetch_timeout_s is not None:
        source.initial_fetch_timeout.CopyFrom(duration(fetch_timeout_s))
    return source


def build_cluster(name: str, settings: XdsSettings) -> cluster_pb2.Cluster:
    """An EDS cluster of plain HTTP/1.1 engines."""
    cluster = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(
            eds_config=ads_source(fetch_timeout_s=_EDS_FETCH_TIMEOUT_S)
        ),
        connect_timeout=duration(settings.connect_timeout_s),
        per_connection_buffer_limit_bytes=wrappers_pb2.UInt32Value(value=settings.request_buffer_bytes),
        common_lb_config=cluster_pb2.Cluster.CommonLbConfig(
            # Panic routing would send requests to cells that are known to be dead.
            healthy_panic_threshold=percent_pb2.Percent(value=0),
            close_connections_on_host_set_change=False,
        ),
        ignore_health_on_host_removal=True,
        circuit_breakers=_circuit_breakers(settings),
        upstream_connection_options=cluster_pb2.UpstreamConnectionOptions(
            tcp_keepalive=_keepalive(settings.path_timeout_s)
        ),
    )
    if settings.path_timeout_s > 0:
        cluster.upstream_bind_config.socket_options.append(_user_timeout(settings.path_timeout_s))
    _set_policy(cluster, settings.policy)
    cluster.typed_extension_protocol_options[_HTTP_OPTIONS].CopyFrom(_http_options(settings))
    return cluster


def _set_policy(cluster: cluster_pb2.Cluster, policy: Policy) -> None:
    cluster.lb_policy = _LB_POLICIES[policy.name]
    if policy.weighted:
        cluster.maglev_lb_config.table_size.value = _MAGLEV_SLOTS
    if policy.name == "least-request":
        cluster.least_request_lb_config.choice_count.value = policy.choice_count


def _circuit_breakers(settings: XdsSettings) -> circuit_breaker_pb2.CircuitBreakers:
    limit = wrappers_pb2.UInt32Value(value=settings.max_concurrent_requests)
    thresholds = circuit_breaker_pb2.CircuitBreakers.Thresholds
    # An engine that dies loses all that waits in it at one moment, and each of these needs its retry at that moment:
    # what a breaker refuses then is a request lost. So retries are not bounded by a share of what is active, which
    # shrinks while the queue dies, but by the queues of several whole engines. Against storms there are other bounds:
    # attempts per request, two deaths per request (the gate), and no host twice.
    queues = max(_LEAST_RETRIES, settings.max_concurrent_requests // 4)
    budget = thresholds.RetryBudget(
        budget_percent=percent_pb2.Percent(value=100), min_retry_concurrency=wrappers_pb2.UInt32Value(value=queues)
    )
    return circuit_breaker_pb2.CircuitBreakers(
        thresholds=[
            thresholds(
                max_connections=limit,
                max_pending_requests=limit,
                max_requests=limit,
                retry_budget=budget,
                track_remaining=True,
            )
        ]
    )


def _keepalive(path_timeout_s: float) -> address_pb2.TcpKeepalive:
    # A stream may be silent for minutes while its prompt waits; a vanished host must still be noticed.
    between_s = max(1, round((path_timeout_s or _KEEPALIVE_S) / _PROBES))
    return address_pb2.TcpKeepalive(
        keepalive_probes=wrappers_pb2.UInt32Value(value=_PROBES),
        keepalive_time=wrappers_pb2.UInt32Value(value=between_s),
        keepalive_interval=wrappers_pb2.UInt32Value(value=between_s),
    )


def _user_timeout(path_timeout_s: float) -> socket_option_pb2.SocketOption:
    # Keep-alive does not probe while something sent is unacknowledged: a request that went out on a pooled connection
    # to a host that has vanished would be sent again for a quarter of an hour. An engine that is merely slow or hung
    # is not meant, its kernel acknowledges.
    return socket_option_pb2.SocketOption(
        description="TCP_USER_TIMEOUT",
        level=socket.IPPROTO_TCP,
        name=_TCP_USER_TIMEOUT,
        int_value=max(1, round(path_timeout_s * 1000)),
        state=socket_option_pb2.SocketOption.STATE_PREBIND,
    )


@lru_cache(maxsize=8)
def _http_options(settings: XdsSettings) -> any_pb2.Any:
    """Equal for every cluster of a grid."""
    explicit = upstream_http.HttpProtocolOptions.ExplicitHttpConfig(
        http_protocol_options=protocol_pb2.Http1ProtocolOptions()
    )
    # Below the engine's own keep-alive (uvicorn: 5 s), so that Envoy never reuses a connection that is being closed.
    common = protocol_pb2.HttpProtocolOptions(idle_timeout=duration(settings.upstream_idle_timeout_s))
    options = upstream_http.HttpProtocolOptions(explicit_http_config=explicit, common_http_protocol_options=common)
    if settings.gate is not None:
        options.http_filters.extend(upstream_filters(settings.gate))
    return pack(options)


def runtime_percent(value: float) -> base_pb2.RuntimePercent:
    """A fixed percentage that no runtime key overrides."""
    return base_pb2.RuntimePercent(default_value=percent_pb2.Percent(value=value))
