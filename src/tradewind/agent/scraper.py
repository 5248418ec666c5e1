"""Reads one engine's metrics page into its telemetry."""

import asyncio
import time
from collections.abc import Callable

from tradewind.agent.life import EngineLife
from tradewind.agent.metrics import AgentMetrics
from tradewind.telemetry.engine_metrics import EngineReader, EngineScrape
from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import FetchFailed
from tradewind.telemetry.tracker import CellTelemetry


class EngineScraper:
    """One page at a time, whoever asks."""

    def __init__(
        self,
        cell_id: str,
        url: str,
        *,
        life: EngineLife,
        telemetry: CellTelemetry,
        metrics: AgentMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cell_id = cell_id
        self._fetcher = Fetcher(url)
        self._reader = EngineReader()
        self._life = life
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._lock = asyncio.Lock()

    async def scrape(self) -> EngineScrape | None:
        """Read the page once; None if that failed or the engine was replaced meanwhile."""
        async with self._lock:
            generation, at_s = self._life.generation, self._clock()
            try:
                page = await self._fetcher.page()
            except FetchFailed as failure:
                self._metrics.scrapes.labels(self._cell_id, "engine", failure.fault.value).inc()
                if self._life.generation == generation:
                    self._telemetry.engine_miss(f"metrics page: {failure.detail}")
                return None
            if self._life.generation != generation:
                return None
            scrape = self._reader.read(page.body, served=self._life.capabilities.models, whole=page.whole)
            self._count(scrape, page.took_s)
            return self._accept(scrape, at_s)

    def close(self) -> None:
        self._fetcher.close()

    def _accept(self, scrape: EngineScrape, at_s: float) -> EngineScrape | None:
        if scrape.kind is not None and self._life.restarted(scrape.reading.start_time_s):
            self._telemetry.engine_ended("the engine was restarted", at_s)
        self._telemetry.engine_hit(scrape, at_s)
        if scrape.kind is None:
            return None
        self._life.scraped(scrape)
        return scrape

    def _count(self, scrape: EngineScrape, took_s: float) -> None:
        result = "ok" if scrape.kind is not None else "unknown_engine"
        self._metrics.scrapes.labels(self._cell_id, "engine", result).inc()
        self._metrics.scrape_seconds.labels(self._cell_id, "engine").observe(took_s)
        if scrape.bad_lines:
            self._metrics.bad_lines.labels(self._cell_id, "engine").inc(scrape.bad_lines)
