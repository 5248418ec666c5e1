"""Single values of a grid file, wherever they stand: numbers finite and in range, texts without a NUL."""

import math
from collections.abc import Iterator

import msgspec

from tradewind.config.errors import Problem
from tradewind.config.schema import (
    AgentConfig,
    CellConfig,
    ControlConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    FirstTokenConfig,
    GatewayConfig,
    GridConfig,
    HedgeConfig,
    LimitsConfig,
    PickConfig,
    WanConfig,
)

Range = tuple[float, float]

DAY_S = 86_400.0  # the kernel counts some times in milliseconds in an int, and nobody waits for longer
DAY_MS = DAY_S * 1e3
MOST_COUNT = 2.0**32 - 1  # Envoy counts in 32 bits
LEAST_KV_TOKENS = 32  # of an emulated engine: two blocks, one for a prompt and one for what follows it
ANY = math.inf  # where another rule has the upper end

RANGES: dict[type[msgspec.Struct], dict[str, Range]] = {
    ControlConfig: {"heartbeat_ttl_s": (0.05, DAY_S)},
    GatewayConfig: {"slo_ttft_s": (0.001, DAY_S), "gamma": (0, 1e6), "envoy_concurrency": (1, 1_024)},
    LimitsConfig: {
        "connect_timeout_s": (0.01, DAY_S),
        "path_timeout_s": (0, DAY_S),
        "stream_idle_timeout_s": (0, DAY_S),
        "upstream_idle_timeout_s": (0, DAY_S),
        "request_buffer_bytes": (65_536, MOST_COUNT),
        "max_concurrent_requests": (1, MOST_COUNT),
        "retries": (0, MOST_COUNT),
    },
    PickConfig: {"timeout_s": (0.001, DAY_S), "max_body_bytes": (1_024, ANY)},
    FirstTokenConfig: {"timeout_factor": (0, ANY), "timeout_min_s": (0.1, ANY)},
    HedgeConfig: {"after_s": (0.05, ANY)},
    AgentConfig: {"interval_s": (0.05, DAY_S), "scrape_s": (0.05, DAY_S), "liveness_s": (0.05, DAY_S)},
    CellConfig: {"capacity": (0, 1e9)},
    WanConfig: {"rtt_ms": (0, DAY_MS), "jitter_ms": (0, DAY_MS), "mbit_per_s": (0, 1e9)},
    EmulatedDcgmConfig: {"interval_s": (0.01, DAY_S)},
    EmulatedEngineConfig: {
        "max_model_len": (1, MOST_COUNT),
        "max_num_seqs": (1, MOST_COUNT),
        "max_num_queued_reqs": (0, MOST_COUNT),
        "kv_capacity_tokens": (LEAST_KV_TOKENS, MOST_COUNT),
        "start_delay_s": (0, DAY_S),
    },
}
UNSET = {(EmulatedEngineConfig, "kv_capacity_tokens")}  # 0 says nothing, and what is set has a least


def value_problems(grid: GridConfig) -> Iterator[Problem]:
    """Every value out of range. What is not finite is written to the settled file as null, and read by nobody."""
    yield from _of_section("$", grid)


def _of_section(where: str, section: msgspec.Struct) -> Iterator[Problem]:
    ranges = RANGES.get(type(section), {})
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if value == 0 and (type(section), name) in UNSET:
            continue
        yield from _of_value(f"{where}.{name}", value, ranges.get(name, (-ANY, ANY)))


def _of_value(where: str, value: object, allowed: Range) -> Iterator[Problem]:
    if isinstance(value, msgspec.Struct):
        yield from _of_section(where, value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_value(f"{where}[{index}]", item, allowed)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _of_value(where, key, allowed)
            yield from _of_value(f"{where}.{key}", item, allowed)
    elif isinstance(value, str):
        if "\0" in value:
            yield Problem(where=where, what=f"{value!r} holds a NUL", write="text without it")
    elif isinstance(value, int | float) and not _is_good(value, allowed):
        shown = f"{value:g}" if isinstance(value, float) else f"{value}"[:40]
        yield Problem(where=where, what=f"{shown} is out of range", write=_written(allowed))


def _is_good(value: float, allowed: Range) -> bool:
    return allowed[0] <= value <= allowed[1] and value not in (ANY, -ANY)


def _written(allowed: Range) -> str:
    least, most = (f"{end:.0f}" if abs(end) >= 1e4 and end not in (ANY, -ANY) else f"{end:g}" for end in allowed)
    if allowed == (-ANY, ANY):
        return "a number"
    return f"a number from {least}" + ("" if allowed[1] == ANY else f" to {most}")
