"""Envoy as an operator would set it up in front of engines: a static file with health checks, ejection and retries.

The four policies are Envoy's own. Nothing here comes from Tradewind: no control plane, no picker, no gate.
"""

from collections.abc import Mapping, Sequence

from tradewind.lab.peers.workers import Worker

ROUND_ROBIN, LEAST_REQUEST, RING_HASH = "round_robin", "least_request", "ring_hash"
LOAD_AWARE = "load_aware_locality"
POLICIES = (ROUND_ROBIN, LEAST_REQUEST, RING_HASH, LOAD_AWARE)
SESSION_HEADER = "x-session-id"
BODY_LIMIT_BYTES = 16 * 2**20  # a body that is not kept whole is not retried
UTILISATION = "named_metrics.kv_cache_usage_perc"  # what vLLM's load report has between 0 and 1

_TYPE = "type.googleapis.com/"
_LB = _TYPE + "envoy.extensions.load_balancing_policies."
_HCM = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"
_SAME_HOST = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"


def static_config(policy: str, workers: Sequence[Worker], *, listen: str, admin: str) -> dict[str, object]:
    """The bootstrap as JSON data. Addresses are "ip:port"."""
    return {
        "node": {"id": policy, "cluster": "peers"},
        "admin": {"address": _address(admin)},
        "static_resources": {"listeners": [_listener(listen, policy)], "clusters": [_cluster(policy, workers)]},
    }


def _cluster(policy: str, workers: Sequence[Worker]) -> dict[str, object]:
    return {
        "name": "engines",
        "type": "STATIC",
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": BODY_LIMIT_BYTES,
        "load_assignment": {"cluster_name": "engines", "endpoints": _localities(workers)},
        "load_balancing_policy": {"policies": [{"typed_extension_config": _policy(policy)}]},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/health"},
            }
        ],
        "outlier_detection": {
            "consecutive_5xx": 3,
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 2,
            "base_ejection_time": "5s",
            "max_ejection_percent": 50,
        },
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": 10_000,
                    "max_pending_requests": 10_000,
                    "max_requests": 10_000,
                    "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 20},
                }
            ]
        },
    }


def _localities(workers: Sequence[Worker]) -> list[dict[str, object]]:
    """One for each site, all of the same priority."""
    by_site: dict[str, list[Worker]] = {}
    for worker in workers:
        by_site.setdefault(worker.site, []).append(worker)
    return [
        {
            "locality": {"region": site},
            "load_balancing_weight": len(members),
            "lb_endpoints": [{"endpoint": {"address": _address(worker.address)}} for worker in members],
        }
        for site, members in by_site.items()
    ]


def _policy(policy: str) -> Mapping[str, object]:
    of_type = {
        ROUND_ROBIN: {"@type": _LB + "round_robin.v3.RoundRobin"},
        LEAST_REQUEST: {"@type": _LB + "least_request.v3.LeastRequest", "choice_count": 2},
        RING_HASH: {"@type": _LB + "ring_hash.v3.RingHash", "minimum_ring_size": 4_096},
    }
    if policy != LOAD_AWARE:
        return {"name": f"envoy.load_balancing_policies.{policy}", "typed_config": of_type[policy]}
    inner = {
        "name": "envoy.load_balancing_policies.least_request",
        "typed_config": of_type[LEAST_REQUEST],
    }
    return {
        "name": "envoy.load_balancing_policies.load_aware_locality",
        "typed_config": {
            "@type": _LB + "load_aware_locality.v3.LoadAwareLocality",
            "metric_names_for_computing_utilization": [UTILISATION],
            "endpoint_picking_policy": {"policies": [{"typed_extension_config": inner}]},
        },
    }


def _listener(listen: str, policy: str) -> dict[str, object]:
    manager = {
        "@type": _TYPE + _HCM,
        "stat_prefix": "front",
        "generate_request_id": False,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route(policy)]}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": _TYPE + _ROUTER}}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    return {
        "name": "front",
        "address": _address(listen),
        "per_connection_buffer_limit_bytes": BODY_LIMIT_BYTES,
        "filter_chains": [chain],
    }


def _route(policy: str) -> dict[str, object]:
    retries = {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [429, 503],
        "num_retries": 2,
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [{"name": "previous", "typed_config": {"@type": _TYPE + _SAME_HOST}}],
        "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.05s"},
    }
    action: dict[str, object] = {"cluster": "engines", "timeout": "0s", "retry_policy": retries}
    if policy == RING_HASH:
        action["hash_policy"] = [{"header": {"header_name": SESSION_HEADER}}]
    route: dict[str, object] = {"match": {"prefix": "/"}, "route": action}
    if policy == LOAD_AWARE:  # vLLM reports its load to those who ask, and on whole answers only
        wanted = {"header": {"key": "endpoint-load-metrics-format", "value": "TEXT"}}
        route |= {"request_headers_to_add": [wanted], "response_headers_to_remove": ["endpoint-load-metrics"]}
    return route


def _address(address: str) -> dict[str, object]:
    ip, _, port = address.rpartition(":")
    return {"socket_address": {"address": ip, "port_value": int(port)}}
