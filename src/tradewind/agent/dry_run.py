"""What an agent would see of one engine: every signal with its value, unit, source, or why it is unknown."""

import asyncio
import os
import time
from dataclasses import asdict, dataclass, fields

from rich.table import Table

from tradewind.agent.gpu_feed import NVML_ANSWER_S, in_own_thread
from tradewind.agent.kv_feed import KvFeed
from tradewind.agent.listing import Listing, read_listing, read_version
from tradewind.agent.metrics import AgentMetrics
from tradewind.config.check import NVML_URL
from tradewind.config.check_kv import endpoint_fault
from tradewind.config.schema import KvEventsConfig
from tradewind.model.telemetry import CacheReading, EngineReading, GpuReading, Histogram, UnknownSignal
from tradewind.telemetry.cgroup import find_throttle
from tradewind.telemetry.dcgm import DcgmReader, GpuScrape
from tradewind.telemetry.engine_metrics import EngineReader, EngineScrape
from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import FetchFailed, parse_target
from tradewind.telemetry.nvml import open_nvml

HOST_INTERVAL_S = 1.0
KV_LISTEN_S = 2.0
_CACHE_REASONS = {
    "untouched_s": "nothing that was stored since was dropped",
    "resident_tokens": "not heard from the engine's start",
}

_UNITS = {
    "_requests": "requests",
    "_ratio": "ratio",
    "_tokens": "tokens",
    "_tokens_total": "tokens",
    "_total": "count",
    "_hz": "Hz",
    "_per_s": "B/s",
    "_s": "s",
    "_c": "C",
    "_w": "W",
    "_len": "tokens",
    "_bits": "bits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRow:
    """One line of the report. Either value or reason says something."""

    group: str  # "engine" | "gpu" | "host" | "capability" | "health" | "cache"
    signal: str
    value: str  # "" when unknown
    unit: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunReport:
    """Everything one look at an engine shows."""

    url: str
    reachable: bool
    rows: tuple[SignalRow, ...]

    @property
    def unknown(self) -> tuple[SignalRow, ...]:
        return tuple(row for row in self.rows if not row.value)

    def as_dict(self) -> dict[str, object]:
        """For --json: plain strings, numbers and lists."""
        return {"url": self.url, "reachable": self.reachable, "signals": [asdict(row) for row in self.rows]}

    def as_table(self) -> Table:
        """For people."""
        table = Table(title=f"what an agent sees of {self.url}", title_justify="left")
        for name in ("group", "signal", "value", "unit", "source", "unknown because"):
            table.add_column(name, overflow="fold")
        for row in self.rows:
            table.add_row(row.group, row.signal, row.value or "unknown", row.unit, row.source, row.reason)
        return table


def dry_run(
    url: str,
    *,
    metrics_url: str = "",
    dcgm_url: str = "",
    gpu_uuids: tuple[str, ...] = (),
    api_key_env: str = "",
    kv_events: KvEventsConfig | None = None,
) -> DryRunReport:
    """Look at one engine once; sends no generation request. Raises ValueError for a URL or an endpoint that is none."""
    if kv_events is not None and (fault := endpoint_fault(kv_events)):
        raise ValueError(f"{kv_events.endpoint!r} {fault}")
    return asyncio.run(
        _look(
            url,
            metrics_url=metrics_url or url.rstrip("/") + "/metrics",
            dcgm_url=dcgm_url,
            gpu_uuids=gpu_uuids,
            key=os.environ.get(api_key_env, "") if api_key_env else "",
            key_env=api_key_env,
            kv_events=kv_events,
        )
    )


async def _look(
    url: str,
    *,
    metrics_url: str,
    dcgm_url: str,
    gpu_uuids: tuple[str, ...],
    key: str,
    key_env: str,
    kv_events: KvEventsConfig | None,
) -> DryRunReport:
    api = Fetcher(url, headers=(("authorization", f"Bearer {key}"),) if key else ())
    rows = [await _health(api)]
    listing = await _listing(api, key_env)
    version = await _version(api)
    api.close()
    scrape = await _engine(metrics_url, listing)
    rows += _capabilities(listing, version, scrape)
    rows += _engine_rows(scrape)
    rows += _gpu_rows(await _gpu(dcgm_url, gpu_uuids))
    rows.append(await _host(url, scrape))
    rows += [] if kv_events is None else await _cache_rows(kv_events)
    return DryRunReport(url=url, reachable=bool(rows[0].value), rows=tuple(rows))


async def _health(api: Fetcher) -> SignalRow:
    value, reason = "", ""
    try:
        response = await api.exchange("GET", "/health")
        if response.status < 500:
            value = f"answers {response.status} in {response.first_byte_s * 1000:.1f} ms"
        else:
            reason = f"answers {response.status}"
    except FetchFailed as failure:
        reason = failure.detail
    return SignalRow(group="health", signal="reachable", value=value, unit="", source="/health", reason=reason)


async def _listing(api: Fetcher, key_env: str) -> Listing | str:
    hint = f"the key in ${key_env} is not accepted" if key_env else "name the variable that holds the key"
    try:
        return await read_listing(api, key_hint=hint)
    except FetchFailed as failure:
        return failure.detail


async def _version(api: Fetcher) -> tuple[str | None, str]:
    """The version, and why there is none."""
    try:
        return await read_version(api), "/version does not tell"
    except FetchFailed as failure:
        return None, failure.detail


async def _engine(metrics_url: str, listing: Listing | str) -> EngineScrape | str:
    fetcher = Fetcher(metrics_url)
    try:
        page = await fetcher.page()
    except FetchFailed as failure:
        return f"metrics page: {failure.detail}"
    finally:
        fetcher.close()
    served = () if isinstance(listing, str) else listing.models
    scrape = EngineReader().read(page.body, served=served, whole=page.whole)
    return scrape if scrape.kind else f"metrics page: {scrape.unknown[0].reason}"


async def _gpu(dcgm_url: str, gpu_uuids: tuple[str, ...]) -> GpuScrape | str:
    if not dcgm_url:
        return "no GPU telemetry was asked for"
    if dcgm_url == NVML_URL:
        answer = in_own_thread(lambda: _nvml(gpu_uuids))
        answered, _ = await asyncio.wait({answer}, timeout=NVML_ANSWER_S)
        return answer.result() if answered else "NVML does not answer"
    fetcher = Fetcher(dcgm_url)
    try:
        page = await fetcher.page()
    except FetchFailed as failure:
        return f"exporter: {failure.detail}"
    finally:
        fetcher.close()
    scrape = DcgmReader(gpu_uuids).read(page.body, whole=page.whole)
    return scrape if scrape.reading is not None else f"exporter: {scrape.unknown[0].reason}"


def _nvml(gpu_uuids: tuple[str, ...]) -> GpuScrape | str:
    reader = open_nvml(gpu_uuids)
    if isinstance(reader, str):
        return reader
    try:
        scrape = reader.read()
    finally:
        reader.close()
    return scrape if scrape.reading is not None else scrape.unknown[0].reason


async def _host(url: str, scrape: EngineScrape | str) -> SignalRow:
    target = parse_target(url)
    start_time_s = None if isinstance(scrape, str) else scrape.reading.start_time_s
    found = find_throttle(target.host, target.port, start_time_s=start_time_s)
    value, reason = "", found if isinstance(found, str) else "the engine did not run meanwhile"
    if not isinstance(found, str):
        found.read()
        await asyncio.sleep(HOST_INTERVAL_S)
        reading = found.read()
        if reading is not None:
            value, reason = _text(reading.cpu_throttled_ratio), ""
    return SignalRow(
        group="host", signal="cpu_throttled_ratio", value=value, unit="ratio", source="cgroup cpu.stat", reason=reason
    )


async def _cache_rows(section: KvEventsConfig) -> list[SignalRow]:
    metrics = AgentMetrics()
    feed = KvFeed("", section, metrics=metrics, changed=lambda: None)
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(feed.run())
        await asyncio.wait({listening}, timeout=KV_LISTEN_S)
        cache = feed.read(time.monotonic())
        listening.cancel()
    source = f"{section.endpoint}, {KV_LISTEN_S:g} s"
    if isinstance(cache, str):
        return [SignalRow(group="cache", signal="kv_events", value="", unit="", source=source, reason=cache)]
    unknown = tuple(UnknownSignal(signal=signal, reason=reason) for signal, reason in _CACHE_REASONS.items())
    names = [field.name for field in fields(CacheReading)]
    return _rows("cache", names, cache, tuple((name, source) for name in names), unknown, "")


def _capabilities(
    listing: Listing | str, version: tuple[str | None, str], scrape: EngineScrape | str
) -> list[SignalRow]:
    served = None if isinstance(listing, str) else listing
    page = None if isinstance(scrape, str) else scrape
    no_list = listing if isinstance(listing, str) else "none"
    no_page = scrape if isinstance(scrape, str) else "not on the page"
    config = "metrics page"
    found: tuple[tuple[str, object, str, str], ...] = (
        ("models", served and ", ".join(served.models), "/v1/models", no_list),
        ("lora_models", served and (", ".join(served.lora_models) or "none"), "/v1/models", no_list),
        ("max_model_len", served and served.max_model_len, "/v1/models", no_list),
        ("engine", page and page.kind, config, no_page),
        ("engine_version", version[0], "/version", version[1]),
        ("kv_capacity_tokens", page and page.kv_capacity_tokens, config, no_page),
        ("block_size_tokens", page and page.block_size_tokens, config, no_page),
    )
    return [
        SignalRow(
            group="capability",
            signal=signal,
            value=str(value) if value else "",
            unit=_unit(signal),
            source=source,
            reason="" if value else reason,
        )
        for signal, value, source, reason in found
    ]


def _engine_rows(scrape: EngineScrape | str) -> list[SignalRow]:
    names = [field.name for field in fields(EngineReading)]
    if isinstance(scrape, str):
        return _rows("engine", names, None, (), (), scrape)
    return _rows("engine", names, scrape.reading, scrape.sources, scrape.unknown, "not on the page")


def _gpu_rows(scrape: GpuScrape | str) -> list[SignalRow]:
    names = [field.name for field in fields(GpuReading)]
    if isinstance(scrape, str):
        return _rows("gpu", names, None, (), (), scrape)
    missing = [
        SignalRow(group="gpu", signal=f"gpu {gpu}", value="", unit="", source="", reason="not on the page")
        for gpu in scrape.missing
    ]
    return [*_rows("gpu", names, scrape.reading, scrape.sources, scrape.unknown, "not exported"), *missing]


def _rows(
    group: str,
    names: list[str],
    reading: object,
    sources: tuple[tuple[str, str], ...],
    unknown: tuple[UnknownSignal, ...],
    default_reason: str,
) -> list[SignalRow]:
    source_of, reason_of = dict(sources), {entry.signal: entry.reason for entry in unknown}
    rows = []
    for name in names:
        value = None if reading is None else getattr(reading, name)
        rows.append(
            SignalRow(
                group=group,
                signal=name,
                value="" if value is None else _text(value),
                unit=_unit(name),
                source=source_of.get(name, ""),
                reason="" if value is not None else reason_of.get(name, default_reason),
            )
        )
    return rows


def _text(value: object) -> str:
    if isinstance(value, Histogram):
        mean = "" if value.total is None or not value.counts[-1] else f", mean {value.total / value.counts[-1]:.4g}"
        return f"{value.counts[-1]:.0f} samples{mean}"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _unit(signal: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if signal.endswith(suffix)), "")
