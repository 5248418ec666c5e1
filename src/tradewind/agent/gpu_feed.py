"""GPU telemetry for the cells of an agent: one scrape per exporter, however many cells share it."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.agent.metrics import AgentMetrics
from tradewind.runtime.log import log_event
from tradewind.telemetry.dcgm import DcgmReader
from tradewind.telemetry.fetch import Fetcher, sleep_or
from tradewind.telemetry.http_connection import FetchFailed
from tradewind.telemetry.nvml import NvmlReader, open_nvml
from tradewind.telemetry.tracker import CellTelemetry

log = logging.getLogger(__name__)

NVML_RETRY_S = 30.0
NVML_MISSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSubscriber:
    """A cell that wants GPU telemetry; `changed` is called when a scrape turned good or bad."""

    cell_id: str
    gpu_uuids: Sequence[str]
    telemetry: CellTelemetry
    changed: Callable[[], None]


class DcgmFeed:
    """Scrapes one exporter for its subscribers. The loss of the connection is looked into at once, so that the death of
    an exporter is known in milliseconds; bounded to one extra scrape per interval."""

    def __init__(
        self,
        url: str,
        subscribers: Sequence[GpuSubscriber],
        *,
        interval_s: float,
        metrics: AgentMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lost = asyncio.Event()
        self._fetcher = Fetcher(url, on_lost=self._lost.set)
        self._readers = [(subscriber, DcgmReader(subscriber.gpu_uuids)) for subscriber in subscribers]
        self._interval_s = interval_s
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Scrape until cancelled."""
        due_s = self._clock()
        try:
            while True:
                await self._scrape()
                due_s = max(due_s + self._interval_s, self._clock())
                if await sleep_or(self._lost, due_s - self._clock()):
                    await self._scrape()
                    await asyncio.sleep(max(0.0, due_s - self._clock()))
        finally:
            self._fetcher.close()

    async def _scrape(self) -> None:
        self._lost.clear()
        at_s = self._clock()
        try:
            page = await self._fetcher.page()
        except FetchFailed as failure:
            for subscriber, _ in self._readers:
                subscriber.telemetry.gpu_miss(f"exporter: {failure.detail}")
                self._metrics.scrapes.labels(subscriber.cell_id, "gpu", failure.fault.value).inc()
                subscriber.changed()
            return
        for subscriber, reader in self._readers:
            scrape = reader.read(page.body, whole=page.whole)
            subscriber.telemetry.gpu_hit(scrape, at_s)
            self._metrics.scrapes.labels(subscriber.cell_id, "gpu", "ok" if scrape.reading else "empty").inc()
            self._metrics.scrape_seconds.labels(subscriber.cell_id, "gpu").observe(page.took_s)
            if scrape.bad_lines:
                self._metrics.bad_lines.labels(subscriber.cell_id, "gpu").inc(scrape.bad_lines)
            subscriber.changed()


async def run_nvml_feed(
    subscriber: GpuSubscriber,
    *,
    interval_s: float,
    metrics: AgentMetrics,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Read this host's GPUs until cancelled. Where NVML is missing, or has gone with its driver, say why and open it
    again after NVML_RETRY_S."""
    while True:
        reader = await asyncio.to_thread(open_nvml, subscriber.gpu_uuids)
        if isinstance(reader, str):
            for _ in range(3):
                subscriber.telemetry.gpu_miss(reader)
            metrics.scrapes.labels(subscriber.cell_id, "gpu", "unreachable").inc()
            subscriber.changed()
            reason = reader
        else:
            try:
                reason = await _read_nvml(reader, subscriber, interval_s=interval_s, metrics=metrics, clock=clock)
            finally:
                reader.close()
        log_event(log, "agent.nvml_unavailable", level=logging.WARNING, cell=subscriber.cell_id, reason=reason)
        await asyncio.sleep(NVML_RETRY_S)


async def _read_nvml(
    reader: NvmlReader,
    subscriber: GpuSubscriber,
    *,
    interval_s: float,
    metrics: AgentMetrics,
    clock: Callable[[], float],
) -> str:
    """Read until there is no GPU NVML_MISSES times in a row; returns why. A driver that was loaded anew is not found
    again through the old handle."""
    misses = 0
    while True:
        at_s = clock()
        scrape = await asyncio.to_thread(reader.read)
        subscriber.telemetry.gpu_hit(scrape, at_s)
        metrics.scrapes.labels(subscriber.cell_id, "gpu", "ok" if scrape.reading else "empty").inc()
        subscriber.changed()
        misses = 0 if scrape.reading else misses + 1
        if misses >= NVML_MISSES:
            return scrape.unknown[0].reason
        await asyncio.sleep(max(0.0, at_s + interval_s - clock()))
