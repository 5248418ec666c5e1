"""Which metric means what, by engine kind and version, as data. Sources: reference tables of captured pages.

Names of one rule are aliases, the newest first; a page that has several is read through the first usable one.
"""

from dataclasses import dataclass
from enum import StrEnum


class Shape(StrEnum):
    """How the series of one name become one value."""

    GAUGE = "gauge"  # summed over ranks
    RATIO = "ratio"  # 0..1, mean over ranks
    RATIO_MAX = "ratio_max"  # 0..1, the fullest rank
    LARGEST = "largest"  # the largest of all series
    COUNTER = "counter"  # summed over ranks and over labels that split it
    HISTOGRAM = "histogram"  # merged over ranks
    HISTOGRAM_COUNT = "histogram_count"  # how many observations


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How to read one field of EngineReading (`signal`) from a page."""

    signal: str
    names: tuple[str, ...]
    shape: Shape
    unit: str = ""
    where: tuple[tuple[str, str], ...] = ()  # label = value, or "5*" for a prefix; filters series
    zero_if_filtered: bool = False  # the name is on the page, and no series passes `where`: that is a true zero


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTable:
    """One engine kind. `prefixes` go before each rule's names; common rules have none."""

    kind: str
    prefixes: tuple[str, ...]
    rules: tuple[Rule, ...]
    rank_label: str  # values of it are shards of one engine: summed
    replica_labels: tuple[str, ...] = ()  # values of these report the same thing: the largest counts
    part_label: str = ""  # series that have it are parts of the one that has not, or has it empty
    kv_capacity_names: tuple[str, ...] = ()
    block_size_names: tuple[str, ...] = ()


COMMON_RULES = (
    Rule(signal="start_time_s", names=("process_start_time_seconds",), shape=Shape.LARGEST, unit="s"),
    Rule(
        signal="server_errors_total",
        names=("http_requests_total",),
        shape=Shape.COUNTER,
        unit="requests",
        where=(("status", "5*"),),
        zero_if_filtered=True,
    ),
)


def _load(running: tuple[str, ...], waiting: tuple[str, ...], kv: tuple[str, ...]) -> tuple[Rule, ...]:
    rules = (
        Rule(signal="queue_requests", names=waiting, shape=Shape.GAUGE, unit="requests"),
        Rule(signal="running_requests", names=running, shape=Shape.GAUGE, unit="requests"),
        Rule(signal="kv_fill_ratio", names=kv, shape=Shape.RATIO, unit="ratio"),
        Rule(signal="kv_fill_max_ratio", names=kv, shape=Shape.RATIO_MAX, unit="ratio"),
    )
    return tuple(rule for rule in rules if rule.names)


def _latency(ttft: str, itl: tuple[str, ...]) -> tuple[Rule, ...]:
    return (
        Rule(signal="ttft_s", names=(ttft,), shape=Shape.HISTOGRAM, unit="s"),
        Rule(signal="itl_s", names=itl, shape=Shape.HISTOGRAM, unit="s"),
    )


def _counters(**names: tuple[str, ...]) -> tuple[Rule, ...]:
    units = {"prompt_tokens_total": "tokens", "generation_tokens_total": "tokens", "steps_total": "steps"}
    return tuple(
        Rule(signal=signal, names=aliases, shape=Shape.COUNTER, unit=units.get(signal, _unit(signal)))
        for signal, aliases in names.items()
    )


def _unit(signal: str) -> str:
    return "tokens" if "tokens" in signal else "requests"


VLLM = EngineTable(
    kind="vllm",
    prefixes=("vllm:",),
    rank_label="engine",
    rules=(
        *_load(
            running=("num_requests_running",),
            waiting=("num_requests_waiting",),
            kv=("kv_cache_usage_perc", "gpu_cache_usage_perc"),  # the old name only up to 0.8, gone by 0.16
        ),
        *_latency("time_to_first_token_seconds", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        *_counters(
            prompt_tokens_total=("prompt_tokens_total",),
            generation_tokens_total=("generation_tokens_total",),
            prefix_query_tokens_total=("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
            prefix_hit_tokens_total=("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
            preemptions_total=("num_preemptions_total",),
            finished_total=("request_success_total",),
        ),
        Rule(
            signal="prompt_computed_tokens_total",
            names=("prompt_tokens_by_source_total",),
            shape=Shape.COUNTER,
            unit="tokens",
            where=(("source", "local_compute"),),
        ),
        Rule(signal="steps_total", names=("iteration_tokens_total",), shape=Shape.HISTOGRAM_COUNT, unit="steps"),
    ),
    kv_capacity_names=("cache_config_info",),
)

SGLANG = EngineTable(
    kind="sglang",
    prefixes=("sglang:", "sglang_"),
    rank_label="dp_rank",
    replica_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
    part_label="priority",  # with priority scheduling
    rules=(
        *_load(
            running=("num_running_reqs",),
            waiting=("num_queue_reqs",),
            kv=("token_usage", "full_token_usage"),
        ),
        *_latency("time_to_first_token_seconds", ("inter_token_latency_seconds", "time_per_output_token_seconds")),
        *_counters(
            prompt_tokens_total=("prompt_tokens_total",),
            generation_tokens_total=("generation_tokens_total",),
            prefix_query_tokens_total=("prompt_tokens_total",),
            prefix_hit_tokens_total=("cached_tokens_total",),
            steps_total=("cuda_graph_passes_total",),  # forward passes by graph mode
            finished_total=("num_requests_total",),
        ),
    ),
    kv_capacity_names=("max_total_num_tokens",),
    block_size_names=("page_size",),
)

TRTLLM = EngineTable(
    kind="trtllm",
    prefixes=("trtllm_",),
    rank_label="engine",
    rules=(
        *_load(running=("num_requests_running",), waiting=("num_requests_waiting",), kv=("kv_cache_utilization",)),
        *_latency("time_to_first_token_seconds", ("time_per_output_token_seconds",)),
        *_counters(
            generation_tokens_total=("generation_tokens_total", "generation_tokens"),
            finished_total=("request_success_total",),
        ),
    ),
)

TGI = EngineTable(
    kind="tgi",
    prefixes=("tgi_",),
    rank_label="engine",
    rules=(
        *_load(running=("batch_current_size",), waiting=("queue_size",), kv=()),
        *_counters(finished_total=("request_success",)),
    ),
)

LLAMACPP = EngineTable(
    kind="llama.cpp",
    prefixes=("llamacpp:",),
    rank_label="engine",
    rules=(
        *_load(running=("requests_processing",), waiting=("requests_deferred",), kv=("kv_cache_usage_ratio",)),
        *_counters(prompt_tokens_total=("prompt_tokens_total",), generation_tokens_total=("tokens_predicted_total",)),
    ),
)

TABLES = (VLLM, SGLANG, TRTLLM, TGI, LLAMACPP)

VLLM_SLEEP_NAME = "vllm:engine_sleep_state"


def full_names(table: EngineTable, names: tuple[str, ...]) -> tuple[str, ...]:
    """Every spelling of a rule's names, the preferred first."""
    return tuple(prefix + name for name in names for prefix in table.prefixes)


def wanted_names() -> frozenset[str]:
    """Every metric name that any table reads."""
    wanted = {VLLM_SLEEP_NAME}
    for table in TABLES:
        for rule in table.rules:
            wanted.update(_series_names(rule.shape, full_names(table, rule.names)))
        wanted.update(full_names(table, (*table.kv_capacity_names, *table.block_size_names)))
    for rule in COMMON_RULES:
        wanted.update(_series_names(rule.shape, rule.names))
    return frozenset(wanted)


def _series_names(shape: Shape, names: tuple[str, ...]) -> tuple[str, ...]:
    if shape is Shape.HISTOGRAM:
        return tuple(name + suffix for name in names for suffix in ("_bucket", "_count", "_sum"))
    if shape is Shape.HISTOGRAM_COUNT:
        return tuple(name + "_count" for name in names)
    return names
