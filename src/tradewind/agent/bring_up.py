"""Takes an engine from "answers" to "serves": its models, its version, one warm-up request after each start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tradewind.agent.life import EngineLife
from tradewind.agent.listing import read_listing, read_version
from tradewind.agent.metrics import AgentMetrics
from tradewind.agent.warm_up import warm_up
from tradewind.runtime.log import log_event
from tradewind.telemetry.engine_metrics import EngineScrape
from tradewind.telemetry.fetch import Fetcher, sleep_or
from tradewind.telemetry.http_connection import Fault, FetchFailed

log = logging.getLogger(__name__)

REFRESH_S = 5.0  # LoRA adapters come and go
PAGE_WAIT_S = 1.0  # a metrics page that hangs does not keep an engine from coming up
MIN_RETRY_S = 0.25
MAX_RETRY_S = 2.0


class BringUp:
    """Drives EngineLife over the engine's API. `began` wakes it when the engine came up, went down or was replaced."""

    def __init__(
        self,
        cell_id: str,
        api: Fetcher,
        life: EngineLife,
        *,
        key_env: str,
        scrape: Callable[[], Awaitable[EngineScrape | None]],
        on_served: Callable[[], None],
        changed: Callable[[], None],
        metrics: AgentMetrics,
    ) -> None:
        self.began = asyncio.Event()
        self._cell_id = cell_id
        self._api = api
        self._life = life
        self._key_hint = (
            f"the key in ${key_env} is not accepted" if key_env else "set api_key_env to a variable that holds the key"
        )
        self._scrape = scrape
        self._on_served = on_served
        self._changed = changed
        self._metrics = metrics

    async def run(self) -> None:
        """Run until cancelled."""
        retry_s = MIN_RETRY_S
        while True:
            pause_s = REFRESH_S
            if self._life.is_up and not await self._attempt():
                pause_s = retry_s
                retry_s = min(MAX_RETRY_S, 2 * retry_s)
            if await sleep_or(self.began, pause_s):
                retry_s = MIN_RETRY_S

    async def _attempt(self) -> bool:
        """One round; True when there is nothing left to do for this start of the engine."""
        life, generation = self._life, self._life.generation
        try:
            listing = await read_listing(self._api, key_hint=self._key_hint)
            version = None if life.evidence.model_listed else await self._version()
        except FetchFailed as failure:
            # A READY engine that is too busy to list its models still serves them.
            tells = failure.fault is Fault.MALFORMED or not life.evidence.model_listed
            if life.generation == generation and life.is_up and tells:
                life.not_listed(failure.detail)
                self._changed()
            return False
        if life.generation != generation or not life.is_up:
            return False
        life.listed(listing, version)
        self._changed()
        if not life.evidence.warmed_up:
            await self._warm_up(listing.first, generation)
        return life.is_ready

    async def _version(self) -> str | None:
        """None where the engine does not say: it serves all the same."""
        try:
            return await read_version(self._api)
        except FetchFailed:
            return None

    async def _has_served(self) -> bool:
        try:
            async with asyncio.timeout(PAGE_WAIT_S):
                scrape = await self._scrape()
        except TimeoutError:
            return False
        return scrape is not None and bool(scrape.reading.finished_total) and not scrape.asleep

    async def _warm_up(self, model: str, generation: int) -> None:
        """A warm engine is one that has finished a request; its own counters may already say so."""
        result = "had_served"
        if not await self._has_served():
            result = "ok"
            try:
                await warm_up(self._api, model)
            except FetchFailed as failure:
                self._metrics.warm_ups.labels(self._cell_id, failure.fault.value).inc()
                if self._life.generation == generation and self._life.is_up:
                    self._life.not_warm(failure.detail)
                    self._changed()
                return
        self._metrics.warm_ups.labels(self._cell_id, result).inc()
        if self._life.generation != generation or not self._life.is_up:
            return
        self._life.warmed_up()
        log_event(log, "agent.engine_warm", cell=self._cell_id, model=model, by=result)
        self._on_served()
        self._changed()
