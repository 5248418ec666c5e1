"""A static Envoy in front of a picker: one listener per way of asking it, over the same endpoints."""

from dataclasses import dataclass

_TYPES = "type.googleapis.com/envoy.extensions."
_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": _TYPES + "upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}
BUFFER_BYTES = 32 * 2**20  # bodies up to here are picked for, and can be sent again
MESSAGE_TIMEOUT_S = 0.5
_HINTED = {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}
_SERVED = {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint-served"}]}
Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyPorts:
    """Where this Envoy listens on loopback."""

    admin: int
    buffered: int  # BUFFERED request, response headers only, fails open
    duplex: int  # FULL_DUPLEX_STREAMED both ways, as most gateways do it
    checked: int  # the same, with a health check of the picker and no panic threshold


def config(ports: EnvoyPorts, *, picker: int, endpoints: tuple[str, ...]) -> Json:
    """The bootstrap, for `envoy --config-path`."""
    duplex = _modes("FULL_DUPLEX_STREAMED", "FULL_DUPLEX_STREAMED", trailers="SEND")
    return {
        "admin": {"address": _address(f"127.0.0.1:{ports.admin}")},
        "static_resources": {
            "listeners": [
                _listener(ports.buffered, _ext_proc("picker", _modes("BUFFERED", "NONE", trailers="SKIP"))),
                _listener(ports.duplex, _ext_proc("picker", duplex)),
                _listener(ports.checked, _ext_proc("checked", duplex)),
            ],
            "clusters": [_pool(endpoints), _picker("picker", picker), {**_picker("checked", picker), **_CHECKED}],
        },
    }


_CHECKED: Json = {
    "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
    "health_checks": [
        {
            "timeout": "0.2s",
            "interval": "0.1s",
            "no_traffic_interval": "0.1s",
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            "grpc_health_check": {},
        }
    ],
}


def _modes(request: str, response: str, *, trailers: str) -> Json:
    return {
        "request_header_mode": "SEND",
        "request_body_mode": request,
        "request_trailer_mode": trailers,
        "response_header_mode": "SEND",
        "response_body_mode": response,
        "response_trailer_mode": trailers,
    }


def _ext_proc(cluster: str, modes: Json) -> Json:
    return {
        "@type": _TYPES + "filters.http.ext_proc.v3.ExternalProcessor",
        "failure_mode_allow": True,
        "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
        "processing_mode": modes,
        "message_timeout": f"{MESSAGE_TIMEOUT_S}s",
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    }


def _listener(port: int, ext_proc: Json) -> Json:
    route: Json = {
        "cluster": "pool",
        "timeout": "0s",
        "retry_policy": {
            "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
            "retriable_status_codes": [503],
            "num_retries": 2,
            "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.005s"},
        },
    }
    manager: Json = {
        "@type": _TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": f"p{port}",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        },
        "http_filters": [
            {"name": "ext_proc", "typed_config": ext_proc},
            {"name": "router", "typed_config": {"@type": _TYPES + "filters.http.router.v3.Router"}},
        ],
    }
    return {
        "name": f"l{port}",
        "address": _address(f"127.0.0.1:{port}"),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    }


def _pool(endpoints: tuple[str, ...]) -> Json:
    """The endpoints, obeying the picker and falling back to round robin."""
    override: Json = {
        "@type": _TYPES + "load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"metadata": _HINTED}, {"header": "x-gateway-destination-endpoint"}],
        "selected_host_key": _SERVED,
        "fallback_policy": {
            "policies": [
                {
                    "typed_extension_config": {
                        "name": "round_robin",
                        "typed_config": {"@type": _TYPES + "load_balancing_policies.round_robin.v3.RoundRobin"},
                    }
                }
            ]
        },
    }
    return {
        **_cluster("pool", endpoints),
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": "override_host", "typed_config": override}}]
        },
    }


def _picker(name: str, port: int) -> Json:
    return {**_cluster(name, (f"127.0.0.1:{port}",)), "typed_extension_protocol_options": _HTTP2}


def _cluster(name: str, addresses: tuple[str, ...]) -> Json:
    endpoints = [{"endpoint": {"address": _address(address)}} for address in addresses]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "0.5s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def _address(address: str) -> Json:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}
