"""Raw readings of one cell. Every field is None when unknown; unknown is never zero.

Counters travel as counters: windows and rates are derived where decisions are made (core), so that a lost
heartbeat costs freshness and not correctness.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A cumulative Prometheus histogram, already merged over engine ranks."""

    bounds: tuple[float, ...]  # finite upper bounds, ascending
    counts: tuple[float, ...]  # cumulative; len(bounds) + 1, the last one is +Inf (= total)
    total: float | None = None  # the _sum series


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One scrape of an engine's metrics page."""

    queue_requests: float | None = None
    running_requests: float | None = None
    kv_fill_ratio: float | None = None  # mean over ranks, 0..1
    kv_fill_max_ratio: float | None = None  # fullest rank, 0..1
    ttft_s: Histogram | None = None
    itl_s: Histogram | None = None
    prompt_tokens_total: float | None = None
    prompt_computed_tokens_total: float | None = None  # prompt tokens not served from the prefix cache
    generation_tokens_total: float | None = None
    steps_total: float | None = None  # scheduler iterations
    prefix_query_tokens_total: float | None = None
    prefix_hit_tokens_total: float | None = None
    preemptions_total: float | None = None
    finished_total: float | None = None
    server_errors_total: float | None = None  # HTTP 5xx
    sleeping: bool | None = None
    start_time_s: float | None = None  # process start as the engine reports it; compared for equality only


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReading:
    """What an engine's own events say of its prefix cache, since somebody listens to them."""

    clearings: int = 0  # times that all of it was dropped; counted by one agent process
    untouched_s: float | None = None  # what no request has used for longer is gone; None = nothing known has gone yet
    resident_tokens: int | None = None  # None = the events were not heard from the engine's start


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """The GPUs of one cell as one: means for load, maxima for heat and faults, minimum for clocks."""

    gpus: int
    util_ratio: float | None = None
    vram_ratio: float | None = None
    sm_active_ratio: float | None = None
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    sm_clock_hz: float | None = None
    power_w: float | None = None
    throttle_bits: int | None = None  # NVML clocks-event reasons, OR over GPUs
    xid: int | None = None  # last XID code: act on change, never on level
    xid_count: float | None = None
    ecc_uncorrected_total: float | None = None
    pcie_replay_total: float | None = None
    pcie_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """The engine's host or container."""

    cpu_throttled_ratio: float | None = None  # share of cgroup periods that were throttled, 0..1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownSignal:
    """A signal that could not be read, and why; shown to operators."""

    signal: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Newest readings of one cell, each with its age at the moment this value was made.

    A receiver adds the time it has held the value itself; clocks of two hosts are never compared.
    """

    engine: EngineReading | None = None
    engine_age_s: float | None = None
    gpu: GpuReading | None = None
    gpu_age_s: float | None = None
    gpu_interval_s: float | None = None  # how often GPU values really change; 30 s is dcgm-exporter's default
    host: HostReading | None = None
    unknown: tuple[UnknownSignal, ...] = ()
    flags: tuple[str, ...] = ()  # e.g. "dcgm_fallback", "gpu_frozen", "engine_metrics_stale"; sorted
    cache: CacheReading | None = None  # None = the engine's KV events are not listened to


UNKNOWN_TELEMETRY = Telemetry()
