"""What a snapshot needs to know beside the pools: addresses, limits, baseline."""

import re
from dataclasses import dataclass
from typing import Literal

from tradewind.config.schema import GatewayConfig

GATEWAY_CLUSTER = "tradewind-gateway"  # static, in the bootstrap: the gateway's Unix socket (ADS and access log)
PICKER_CLUSTER = "tradewind-picker"  # static, in the bootstrap: the picker's Unix socket
LISTENER_NAME = "front"
ROUTES_NAME = "front"

# Paths that reach an engine, all by POST; every other path is answered by Envoy itself.
JSON_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/responses",
    "/v1/messages",
)
MULTIPART_PATHS = ("/v1/audio/transcriptions",)
TOKENIZE_PATH = "/tokenize"

_LEAST_REQUEST = re.compile(r"least-request(?::([1-9][0-9]{0,3}))?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How Envoy spreads requests over a pool. Only `shares` uses weights; the others are baselines."""

    name: Literal["shares", "round-robin", "least-request", "random"] = "shares"
    choice_count: int = 2

    @property
    def weighted(self) -> bool:
        """True when endpoints carry the scored weights."""
        return self.name == "shares"


def parse_policy(baseline: str) -> Policy:
    """Read `GatewayConfig.baseline`. Raises ValueError with the accepted forms for anything else."""
    if baseline == "":
        return Policy()
    if baseline == "round-robin":
        return Policy(name="round-robin")
    if baseline == "random":
        return Policy(name="random")
    match = _LEAST_REQUEST.match(baseline)
    count = int(match.group(1) or 2) if match else 0
    if count < 2:  # Envoy takes 1 without a word and then picks at random
        raise ValueError(f'baseline "{baseline}": write round-robin, random, least-request or least-request:N, N >= 2')
    return Policy(name="least-request", choice_count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One entry of `GET /v1/models`."""

    model: str
    max_model_len: int | None = None  # tokens; None when no cell says


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerSettings:
    """How Envoy asks the picker. Times in seconds."""

    timeout_s: float = 0.05  # beyond it the request goes by the weights
    max_body_bytes: int = 8_388_608  # of each body; the rest stays in Envoy
    headers: tuple[str, ...] = ()  # more request headers that the picker reads, lower case


@dataclass(frozen=True, slots=True, kw_only=True)
class GateModule:
    """What holds streams until their first token: wasm code that goes with the configuration, or a library by name."""

    code: bytes = b""
    library: str = ""  # of ENVOY_DYNAMIC_MODULES_SEARCH_PATH, without lib and .so; "" = the code
    deaths: int = 2  # of engines under one request; it is given to no further one


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyRule:
    """Requests whose `header` is `value` stay in `sites`, whoever decides, and whatever fails."""

    name: str
    header: str  # lower case
    value: str
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsSettings:
    """Everything in a snapshot that does not follow from the pools. Times in seconds."""

    listen: str  # "ip:port" of Envoy's listener
    policy: Policy = Policy()
    connect_timeout_s: float = 1.0
    path_timeout_s: float = 15.0  # 0 = keep-alive alone
    stream_idle_timeout_s: float = 600.0
    request_headers_timeout_s: float = 10.0
    request_buffer_bytes: int = 33_554_432
    max_concurrent_requests: int = 16_384
    retries: int = 3
    upstream_idle_timeout_s: float = 4.0
    max_request_headers_kb: int = 60
    access_log_flush_s: float = 0.05
    forward_authorization: bool = False  # True: the client's own key reaches the engines of every site
    tokenize: bool = True  # POST /tokenize is routed
    picker: PickerSettings | None = None  # None: shares alone decide
    gate: GateModule | None = None  # None: a stream that waits in an engine that dies is lost
    residency: tuple[ResidencyRule, ...] = ()

    @property
    def json_paths(self) -> tuple[str, ...]:
        """Exact paths whose body is JSON with a `model`."""
        return (*JSON_PATHS, TOKENIZE_PATH) if self.tokenize else JSON_PATHS


def settings_of(gateway: GatewayConfig, *, gate: GateModule | None = None) -> XdsSettings:
    """The settings that one gateway section of a grid file asks for, with the gate that its Envoy takes.

    Raises ValueError on a bad baseline.
    """
    limits = gateway.limits
    return XdsSettings(
        listen=gateway.listen,
        policy=parse_policy(gateway.baseline),
        connect_timeout_s=limits.connect_timeout_s,
        path_timeout_s=limits.path_timeout_s,
        stream_idle_timeout_s=limits.stream_idle_timeout_s,
        request_buffer_bytes=limits.request_buffer_bytes,
        max_concurrent_requests=limits.max_concurrent_requests,
        retries=limits.retries,
        upstream_idle_timeout_s=limits.upstream_idle_timeout_s,
        picker=_picker(gateway) if gateway.routing == "pick" else None,
        gate=gate,
        residency=tuple(
            ResidencyRule(name=rule.name, header=rule.header.lower(), value=rule.value, sites=tuple(rule.sites))
            for rule in gateway.residency
        ),
    )


def _picker(gateway: GatewayConfig) -> PickerSettings:
    pick = gateway.pick
    rules = {rule.header.lower() for rule in gateway.residency}
    headers = rules | {pick.session_header.lower(), gateway.first_token.hedge.header.lower()} - {""}
    return PickerSettings(
        timeout_s=pick.timeout_s,
        max_body_bytes=pick.max_body_bytes,
        headers=tuple(sorted(headers)),
    )
