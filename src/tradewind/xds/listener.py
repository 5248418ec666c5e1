"""The listener: HTTP rules of the edge, the filter chain, local replies, and the access log."""

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import address_pb2, config_source_pb2, extension_pb2, grpc_service_pb2, protocol_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.access_loggers.grpc.v3 import als_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import header_mutation_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.tracing.v3 import custom_tag_pb2
from google.protobuf import wrappers_pb2

from tradewind.config.check_pick import INTERNAL_PREFIXES
from tradewind.xds import logline
from tradewind.xds.cluster import ads_source, duration, pack
from tradewind.xds.endpoints import split_address
from tradewind.xds.local_replies import local_replies, status_filter
from tradewind.xds.lua import lua_filter
from tradewind.xds.pick import pick_filters
from tradewind.xds.routes import LUA_FILTER
from tradewind.xds.settings import GATEWAY_CLUSTER, LISTENER_NAME, ROUTES_NAME, XdsSettings

ACCESS_LOG_NAME = "tradewind"
_ACCESS_LOG_BUFFER_BYTES = 131_072  # a message costs its reader more than its entries do: one per flush, not many


def build_listener(settings: XdsSettings) -> listener_pb2.Listener:
    """One listener with one HTTP connection manager; its routes come over RDS."""
    hcm = listener_components_pb2.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=pack(_connection_manager(settings))
    )
    ip, port = split_address(settings.listen)
    return listener_pb2.Listener(
        name=LISTENER_NAME,
        address=address_pb2.Address(socket_address=address_pb2.SocketAddress(address=ip, port_value=port)),
        per_connection_buffer_limit_bytes=wrappers_pb2.UInt32Value(value=settings.request_buffer_bytes),
        filter_chains=[listener_components_pb2.FilterChain(filters=[hcm])],
    )


def _connection_manager(settings: XdsSettings) -> hcm_pb2.HttpConnectionManager:
    manager = hcm_pb2.HttpConnectionManager
    return manager(
        stat_prefix=LISTENER_NAME,
        rds=hcm_pb2.Rds(config_source=ads_source(), route_config_name=ROUTES_NAME),
        http_filters=_http_filters(settings),
        use_remote_address=wrappers_pb2.BoolValue(value=True),
        preserve_external_request_id=True,
        always_set_request_id_in_response=True,
        # Escaped slashes are unescaped and then normalised: only exact paths of the allow-list reach an engine, and
        # clients write the slash of a model id as %2F in GET /v1/models/{id}.
        normalize_path=wrappers_pb2.BoolValue(value=True),
        merge_slashes=True,
        path_with_escaped_slashes_action=manager.UNESCAPE_AND_FORWARD,
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            # x_tw_pool reads as x-tw-pool in more than one framework.
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.DROP_HEADER,
        ),
        max_request_headers_kb=wrappers_pb2.UInt32Value(value=settings.max_request_headers_kb),
        stream_idle_timeout=duration(settings.stream_idle_timeout_s),
        request_headers_timeout=duration(settings.request_headers_timeout_s),
        early_header_mutation_extensions=[_early_mutation()],
        local_reply_config=local_replies(),
        access_log=[_access_log(settings)],
    )


def _early_mutation() -> extension_pb2.TypedExtensionConfig:
    """Before anything reads a header: x-tw-* is ours and x-envoy-* gives the router orders, a client's is removed."""
    mutation = mutation_rules_pb2.HeaderMutation
    internal = [string_pb2.StringMatcher(prefix=prefix, ignore_case=True) for prefix in INTERNAL_PREFIXES]
    config = header_mutation_pb2.HeaderMutation(
        mutations=[mutation(remove_on_match=mutation.RemoveOnMatch(key_matcher=matcher)) for matcher in internal]
    )
    return extension_pb2.TypedExtensionConfig(name="tradewind.strip", typed_config=pack(config))


def _http_filters(settings: XdsSettings) -> list[hcm_pb2.HttpFilter]:
    router = router_pb2.Router(suppress_envoy_headers=True, upstream_log=[_access_log(settings, only=_failed())])
    return [
        *(pick_filters(settings.picker, most_bytes=settings.request_buffer_bytes) if settings.picker else ()),
        lua_filter(LUA_FILTER, *(("share",) if settings.picker else ("share", "answer"))),
        hcm_pb2.HttpFilter(name="envoy.filters.http.router", typed_config=pack(router)),
    ]


def _failed() -> accesslog_pb2.AccessLogFilter:
    """Attempts without a status (refused, reset) or with a server error: what a later attempt may have made good."""
    comparison = accesslog_pb2.ComparisonFilter
    return accesslog_pb2.AccessLogFilter(
        or_filter=accesslog_pb2.OrFilter(filters=[status_filter(comparison.EQ, 0), status_filter(comparison.GE, 500)])
    )


def _access_log(settings: XdsSettings, *, only: accesslog_pb2.AccessLogFilter | None = None) -> accesslog_pb2.AccessLog:
    """The log of requests, and with `only` that of attempts. Equal settings make them share one buffer, in order."""
    service = grpc_service_pb2.GrpcService(
        envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=GATEWAY_CLUSTER)
    )
    common = als_pb2.CommonGrpcAccessLogConfig(
        log_name=ACCESS_LOG_NAME,
        transport_api_version=config_source_pb2.V3,
        buffer_size_bytes=wrappers_pb2.UInt32Value(value=_ACCESS_LOG_BUFFER_BYTES),
        buffer_flush_interval=duration(settings.access_log_flush_s),
        grpc_service=service,
        custom_tags=[custom_tag_pb2.CustomTag(tag=logline.TAG, value=logline.LINE)],
    )
    config = als_pb2.HttpGrpcAccessLogConfig(common_config=common)
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.http_grpc", filter=only, typed_config=pack(config))
