"""vLLM 0.32's /metrics page: every family, label and bucket of a captured page, with live values where they matter."""

import os
import re
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

from tradewind.emulator.exposition import Histogram, Page
from tradewind.emulator.http_metrics import HttpMetrics
from tradewind.emulator.sleep_metrics import SleepMetrics
from tradewind.engine.scheduler import EngineModel, StepOutcome
from tradewind.engine.sequence import Sequence

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_HTTP_FAMILIES = ("http_requests_total", "http_request_size_bytes", "http_response_size_bytes")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """What vllm:cache_config_info tells."""

    block_size_tokens: int
    blocks: int
    max_model_len: int

    def labels(self) -> dict[str, str]:
        """The labels that differ from the captured ones."""
        size = str(self.block_size_tokens)
        tokens = self.blocks * self.block_size_tokens
        return {
            "block_size": size,
            "effective_attention_block_size": size,
            "num_gpu_blocks": str(self.blocks),
            "kv_cache_size_tokens": str(tokens),
            "kv_cache_max_concurrency": repr(tokens / self.max_model_len),
        }


class VllmMetrics:
    """The page of one engine."""

    def __init__(self, *, engine: EngineModel, model_name: str, cache: CacheConfig) -> None:
        self.http = HttpMetrics()
        self.sleep_mode = SleepMetrics()
        self.histograms: dict[str, Histogram] = {}
        self.finished: dict[str, int] = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.rejections: dict[str, int] = dict.fromkeys(("max_num_queued_reqs", "max_num_queued_tokens"), 0)
        self.sleep_level = 0
        self._engine = engine
        self._model_name = model_name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        self._cache = cache
        self._started_s = time.time()
        self._held_gauges: tuple[float, float, float] | None = None
        self._page = self._build()

    def hold_gauges(self, held: bool) -> None:
        """Keeps the scheduler's gauges as they are: a hung engine core reports nothing, not even that clients left."""
        if not held:
            self._held_gauges = None
        elif self._held_gauges is None:
            self._held_gauges = self._gauges()

    def render(self) -> bytes:
        """The page now."""
        return self._page.render()

    def observe_step(self, outcome: StepOutcome, previous_s: Mapping[int, float]) -> None:
        """Books one step; `previous_s` has each sequence's token before this one (its arrival for the first)."""
        self.histograms["vllm:iteration_tokens_total"].observe(outcome.step_tokens)
        ttft = self.histograms["vllm:time_to_first_token_seconds"]
        itl = self.histograms["vllm:inter_token_latency_seconds"]
        for sequence in outcome.emitted:
            assert sequence.last_token_s is not None
            latency_s = sequence.last_token_s - previous_s[sequence.request.seq_id]
            (ttft if sequence.generated == 1 else itl).observe(latency_s)

    def observe_finished(self, sequence: Sequence, *, arrival_s: float, choices: int, max_tokens: int) -> None:
        """Books one sequence that ended by itself or was aborted by the engine, never one whose client left."""
        self.finished[sequence.finish_reason or "abort"] += 1
        end_s = sequence.finished_s or arrival_s
        scheduled_s = sequence.scheduled_s or end_s
        first_s = sequence.first_token_s or end_s
        decode_s = end_s - first_s
        observe = self._observe
        observe("vllm:e2e_request_latency_seconds", end_s - arrival_s)
        observe("vllm:request_queue_time_seconds", scheduled_s - sequence.ready_s if sequence.scheduled_s else 0.0)
        observe("vllm:request_prefill_time_seconds", first_s - scheduled_s)
        observe("vllm:request_decode_time_seconds", decode_s)
        observe("vllm:request_inference_time_seconds", end_s - scheduled_s)
        observe("vllm:request_time_per_output_token_seconds", decode_s / max(1, sequence.generated - 1))
        observe("vllm:request_prompt_tokens", sequence.request.prompt_tokens)
        observe("vllm:request_generation_tokens", sequence.generated)
        observe("vllm:request_max_num_generation_tokens", sequence.generated)
        observe("vllm:request_params_n", choices)
        observe("vllm:request_params_max_tokens", max_tokens)
        observe("vllm:request_num_preemptions", sequence.preemptions)
        observe("vllm:request_prefill_kv_computed_tokens", sequence.request.prompt_tokens - sequence.cached_tokens)

    def _observe(self, family: str, value: float) -> None:
        self.histograms[family].observe(max(0.0, value))

    def _gauges(self) -> tuple[float, float, float]:
        """Running, waiting, KV use."""
        return self._held_gauges or (self._engine.running, self._engine.waiting, self._engine.kv_used_ratio)

    # -- building the page --------------------------------------------------------------------------------------------

    def _build(self) -> Page:
        page = Page()
        text = (resources.files("tradewind.emulator") / "data" / "vllm_0.32.0_metrics.txt").read_text()
        lines = text.splitlines()
        scalars = self._scalars()
        index = 0
        while index < len(lines):
            line = lines[index]
            index += 1
            if line.startswith("#") or not (sample := _SAMPLE.match(line)):
                page.fixed(line)
                self._http_block(page, line, lines[index - 2] if index > 1 else "")
                continue
            name, labels = sample[1], _LABEL.findall(sample[2] or "")
            if name.endswith("_bucket"):
                family = name.removesuffix("_bucket")
                end = index
                while lines[end].startswith(family + "_"):
                    end += 1
                self._histogram_block(page, family, lines[index - 1 : end])
                index = end
                continue
            self._sample(page, name, dict(labels), sample[3], scalars)
        page.live(self.sleep_mode.lines)
        return page

    def _sample(
        self, page: Page, name: str, labels: dict[str, str], captured: str, scalars: dict[str, Callable[[], float]]
    ) -> None:
        other = [value for key, value in sorted(labels.items()) if key not in ("engine", "model_name")]
        value = scalars.get(f"{name} {other[0]}" if len(other) == 1 else name)
        if name == "vllm:cache_config_info":
            labels |= self._cache.labels()
        series = _series(name, labels, self._model_name)
        if value is not None:
            page.scalar(series, value)
        elif name.endswith("_created"):
            page.fixed(f"{series} {self._started_s!r}")
        else:
            page.fixed(f"{series} {captured}")

    def _histogram_block(self, page: Page, family: str, lines: list[str]) -> None:
        samples = [match for line in lines if (match := _SAMPLE.match(line))]
        parsed = [(match[1], dict(_LABEL.findall(match[2] or ""))) for match in samples]
        bounds = [float(labels["le"]) for _, labels in parsed if labels.get("le", "+Inf") != "+Inf"]
        histogram = self.http.highr if family == "http_request_duration_highr_seconds" else Histogram(bounds)
        assert histogram.bounds == tuple(bounds), family
        self.histograms[family] = histogram
        page.histogram([_series(name, labels, self._model_name) for name, labels in parsed], histogram)

    def _http_block(self, page: Page, line: str, help_line: str) -> None:
        if not line.startswith("# TYPE http_"):
            return
        family = line.split()[2]
        help_text = help_line.partition(family + " ")[2]
        if family == "http_requests_total":
            page.live(lambda: self.http.requests_lines(help_text))
        elif family in _HTTP_FAMILIES:
            page.live(lambda: self.http.size_lines(family, help_text))
        elif family == "http_request_duration_seconds":
            page.live(lambda: self.http.duration_lines(help_text))

    def _scalars(self) -> dict[str, Callable[[], float]]:
        counters = self._engine.counters
        values: dict[str, Callable[[], float]] = {
            "process_start_time_seconds": lambda: self._started_s,
            "process_cpu_seconds_total": time.process_time,
            "process_resident_memory_bytes": lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
            "process_open_fds": lambda: float(len(os.listdir("/proc/self/fd"))),
            "vllm:num_requests_running": lambda: self._gauges()[0],
            "vllm:num_requests_waiting": lambda: self._gauges()[1],
            "vllm:num_requests_waiting_by_reason capacity": lambda: self._gauges()[1],
            "vllm:kv_cache_usage_perc": lambda: self._gauges()[2],
            "vllm:prefix_cache_queries_total": lambda: counters.prefix_queries_tokens,
            "vllm:prefix_cache_hits_total": lambda: counters.prefix_hits_tokens,
            "vllm:num_preemptions_total": lambda: counters.preemptions,
            "vllm:prompt_tokens_total": lambda: counters.prompt_tokens,
            "vllm:prompt_tokens_by_source_total local_compute": lambda: (
                counters.prompt_tokens - counters.prompt_cached_tokens
            ),
            "vllm:prompt_tokens_by_source_total local_cache_hit": lambda: counters.prompt_cached_tokens,
            "vllm:prompt_tokens_cached_total": lambda: counters.prompt_cached_tokens,
            "vllm:prompt_tokens_cached_by_source_total device": lambda: counters.prompt_cached_tokens,
            "vllm:generation_tokens_total": lambda: counters.generation_tokens,
            "vllm:engine_sleep_state awake": lambda: float(self.sleep_level == 0),
            "vllm:engine_sleep_state weights_offloaded": lambda: float(self.sleep_level == 1),
            "vllm:engine_sleep_state discard_all": lambda: float(self.sleep_level > 1),
        }
        for reason in self.finished:
            values[f"vllm:request_success_total {reason}"] = _getter(self.finished, reason)
        for reason in self.rejections:
            values[f"vllm:admission_rejections_total {reason}"] = _getter(self.rejections, reason)
        return values


def _getter(table: dict[str, int], key: str) -> Callable[[], float]:
    return lambda: table[key]


def _series(name: str, labels: dict[str, str], model_name: str) -> str:
    if "model_name" in labels:
        labels = labels | {"model_name": model_name}
    if not labels:
        return name
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
