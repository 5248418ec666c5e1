"""The shape of a grid file, typed. Addresses are "ip:port"; port 0 means any free one, settled by `tradewind up`."""

from typing import Literal

import msgspec


class _Base(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every section refuses keys it does not know, so that a typing error is found at load."""


class ControlConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One control process."""

    id: str = "control"
    site: str = ""
    listen: str = "127.0.0.1:0"  # gRPC for agents and gateways
    admin: str = "127.0.0.1:0"  # HTTP: admin API, metrics
    heartbeat_ttl_s: float = 0.75  # a cell not heard for longer is silent: blind, or faulted if gateways fail too


class LimitsConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Request limits of one gateway; times in seconds, 0 = none."""

    connect_timeout_s: float = 1.0
    path_timeout_s: float = 15.0  # an engine's host that acknowledges nothing for so long is gone, with all it had
    stream_idle_timeout_s: float = 600.0  # silence before the first byte or between bytes
    request_buffer_bytes: int = 33_554_432  # bodies up to this size can be retried
    max_concurrent_requests: int = 16_384  # per pool
    retries: int = 3
    upstream_idle_timeout_s: float = 4.0  # below uvicorn's 5 s keep-alive


class PickConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a gateway with `routing: pick` decides per request; times in seconds."""

    policy: str = "cost"  # or a baseline of the same interface, `tradewind validate` lists them; or file.py:Name
    timeout_s: float = 0.05  # a picker that takes longer leaves the request to the weights
    max_body_bytes: int = 8_388_608  # of each body that the picker may see
    session_header: str = ""  # requests with equal values of it stay together; "" = off
    explain_key_env: str = ""  # environment variable with the key that lets a client ask why; "" = nobody may
    capture: str = ""  # file for everything the picker hears and decides, read by `tradewind replay`; "" = none
    capture_max_bytes: int = 268_435_456  # the capture ends there


class EppConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Endpoint Picker (ext_proc) for proxies that are not ours; needs `routing: pick`."""

    listen: str = ""  # gRPC; "" = off
    tls_certificate: str = ""  # PEM file; with tls_key: encrypted
    tls_key: str = ""
    tls_clients: str = ""  # PEM file of the authority that signs the proxies' certificates; "" = any proxy


class ResidencyConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that carry `header: value` are served in `sites` only. Other values of the header are refused.

    All rules of a gateway look at one header.
    """

    name: str
    header: str
    value: str
    sites: list[str]


class GateConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first-token gate: Envoy holds a stream's headers until its first token, so that a death before it is retried.

    `auto` takes what this gateway's Envoy accepts: the wasm module, else a native one where there is a C compiler, else
    no gate. An Envoy that is not ours (`envoy: external`) has a gate only if told `wasm`.
    """

    mode: Literal["auto", "wasm", "native", "none"] = "auto"
    deaths: int = 2  # engines that may end under one request; it is given to no further one, and refused with 422
    # A request that was so refused is refused for so long, longer each time; needs `routing: pick`. 0 = off.
    quarantine_s: float = 60.0


class HedgeConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Streams that carry `header: value` are sent to a second cell too if no first token came in time."""

    header: str = ""  # "" = off
    value: str = ""
    after_s: float = 2.0  # without a first token


class FirstTokenConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to streams whose first token is late; needs `routing: pick` and the gate."""

    timeout_factor: float = 0.0  # another cell is tried after so many times the picker's own estimate; 0 = off
    timeout_min_s: float = 30.0  # but never before this
    hedge: HedgeConfig = HedgeConfig()


class GatewayConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gateway and its Envoy."""

    id: str = "gateway"
    site: str = ""
    listen: str = "127.0.0.1:0"  # where clients connect: Envoy's listener
    admin: str = "127.0.0.1:0"  # HTTP: status, metrics, events
    envoy: Literal["supervised", "external"] = "supervised"
    envoy_admin: str = "127.0.0.1:0"
    envoy_concurrency: int = 1
    routing: Literal["weights", "pick"] = "weights"
    scoring: Literal["recipe", "published", "published-v2"] = "recipe"
    baseline: str = ""  # "", "round-robin", "least-request", "least-request:N", "random"
    slo_ttft_s: float = 1.5
    gamma: float = 1.0
    reach: dict[str, str] = {}  # cell id -> "ip:port", where this gateway reaches a cell by another address
    limits: LimitsConfig = LimitsConfig()
    pick: PickConfig = PickConfig()
    epp: EppConfig = EppConfig()
    gate: GateConfig = GateConfig()
    first_token: FirstTokenConfig = FirstTokenConfig()
    residency: list[ResidencyConfig] = []


class KvEventsConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An engine's KV events, which its agent listens to over ZeroMQ; needs the extra `kv-events`."""

    endpoint: str  # tcp://127.0.0.1:5557 or ipc:///run/engine-kv
    bind: bool = False  # True: the engine's own endpoint names a host, so the engine connects and the agent waits here
    ranks: int = 1  # data-parallel ranks of the engine; each has its own port, one after the other
    topic: str = ""  # of messages that are read, their first letters; "" = all


class CellConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine replica, as its agent reaches it."""

    id: str
    site: str
    url: str  # "http://127.0.0.1:8000"
    metrics_url: str = ""  # default: url + /metrics
    dcgm_url: str = ""  # the site's exporter page, or "nvml:" for the agent's own host; "" = no GPU telemetry
    gpu_uuids: list[str] = []  # which GPUs of that page are this cell's; empty = all of them
    kv_events: KvEventsConfig | None = None  # None = not listened to
    hardware: str = ""  # hardware class
    capacity: float = 0.0  # relative capacity prior; 0 = unknown
    api_key_env: str = ""  # environment variable that holds the engine's key
    advertise_max_model_len: bool = True  # False: do not tell the grid the engine's max_model_len
    warm_up: bool = True
    labels: dict[str, str] = {}


class AgentConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent process; it owns the named cells."""

    id: str = "agent"
    cells: list[str] = []  # empty = all cells
    interval_s: float = 0.5  # heartbeat
    scrape_s: float = 1.0
    liveness_s: float = 0.25
    metrics: str = ""  # HTTP address of the agent's own metrics; "" = none


class EmulatedKvEventsConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """KV events of one emulated engine, published as vLLM does; needs the extra `kv-events`."""

    listen: str = "127.0.0.1:0"  # ZeroMQ
    topic: str = ""
    encoding: Literal["map", "array"] = "map"  # vLLM from 0.23 on, or up to 0.22


class EmulatedEngineConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One emulated engine."""

    cell: str
    profile: str = "rtx-pro-6000"  # rtx-pro-6000 | h100 | h200 | 2xl40s | fast
    model: str = "demo-70b"
    aliases: list[str] = []
    max_model_len: int = 131_072
    max_num_seqs: int = 256
    max_num_queued_reqs: int = 0  # 0 = no limit
    kv_capacity_tokens: int = 0  # 0 = the profile's
    kv_events: EmulatedKvEventsConfig | None = None
    listen: dict[str, str] = {}  # gateway site -> "ip:port" behind that path's WAN delay
    start_delay_s: float = 0.0  # cold start
    gpu_uuid: str = ""


class EmulatedDcgmConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One emulated DCGM exporter, for the engines of one site."""

    site: str
    listen: str = "127.0.0.1:0"
    names: Literal["old", "new"] = "old"  # exporter up to 4.8.4, or 4.9.0 names and units
    interval_s: float = 1.0


class WanConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The path between a gateway's site and a cell's site, both ways."""

    a: str
    b: str
    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    mbit_per_s: float = 0.0  # 0 = no limit


class EmulationConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Emulated parts of the grid; real engines need none of it."""

    seed: int = 1
    api: str = "127.0.0.1:0"  # fault API
    engines: list[EmulatedEngineConfig] = []
    dcgm: list[EmulatedDcgmConfig] = []
    wan: list[WanConfig] = []
    scenario: str = ""  # file of timed faults, beside the grid file


class TunerWeightsConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Factors on two terms of a pick's cost; 1 is the physical rate."""

    rtt: float = 1.0
    queue: float = 1.0


class TunerBoxConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where weights may be: [least, most]; an empty list and 0 stand for what the kind of tuner ships with."""

    rtt: list[float] = []
    queue: list[float] = []
    most_ratio: float = 0.0  # of the rtt weight over the queue weight


class TunerConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What moves the weights of gateways with `routing: pick`, in control; without this section nothing does.

    `es` is GORGO's tuner as published, for comparison; `es-repaired` is the same search made safe.
    """

    kind: Literal["calibrator", "es", "es-repaired"] = "calibrator"
    start: TunerWeightsConfig | None = (
        None  # of a control that remembers none, and of a reset; default: 1 and 1, in the box
    )
    box: TunerBoxConfig = TunerBoxConfig()
    seed: int = 1


class GridConfig(_Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole grid file."""

    grid: str = "grid"
    state_dir: str = "run"
    sites: list[str] = []
    models: list[str] = []  # names that must exist as pools even while nobody serves them
    controls: list[ControlConfig] = msgspec.field(default_factory=lambda: [ControlConfig()])
    gateways: list[GatewayConfig] = msgspec.field(default_factory=lambda: [GatewayConfig()])
    agents: list[AgentConfig] = msgspec.field(default_factory=lambda: [AgentConfig()])
    cells: list[CellConfig] = []
    tuner: TunerConfig | None = None  # {} = the calibrator; absent = none
    emulation: EmulationConfig | None = None
    dashboard: str = "127.0.0.1:0"  # HTTP: live page, read-only; "" = none
    plaintext: bool = False  # True: parts may talk unencrypted on addresses other than loopback
    allow_policy_files: bool = False  # True: gateways run the Python files that their pick.policy names
