"""One cell as its agent sees it: health, models, warm-up, metrics, and the heartbeats made of them."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from tradewind.agent.bring_up import BringUp
from tradewind.agent.gpu_feed import GpuSubscriber
from tradewind.agent.kv_feed import KvFeed
from tradewind.agent.life import EngineLife
from tradewind.agent.metrics import AgentMetrics
from tradewind.agent.scraper import EngineScraper
from tradewind.config.schema import AgentConfig, CellConfig
from tradewind.model.cell import Cell
from tradewind.model.heartbeat import Heartbeat
from tradewind.model.telemetry import Telemetry
from tradewind.runtime.log import log_event
from tradewind.telemetry.cgroup import ThrottleReader, find_throttle
from tradewind.telemetry.fetch import Fetcher, sleep_or
from tradewind.telemetry.health import HealthReading, HealthWatch
from tradewind.telemetry.http_connection import Target, parse_target
from tradewind.telemetry.tracker import CellTelemetry

log = logging.getLogger(__name__)

MIN_BEAT_GAP_S = 0.02  # a storm of changes becomes at most 50 beats a second
RESOLVE_RETRY_S = 2.0
ALARM_BITS = 0xE8  # of NVML's clocks-event reasons: hardware slowdown, both thermal ones, power brake


class CellAgent:
    """Runs everything for one cell and hands each heartbeat to `publish`, which must not wait."""

    def __init__(
        self,
        cell: CellConfig,
        timing: AgentConfig,
        *,
        incarnation: str,
        publish: Callable[[Heartbeat], None],
        metrics: AgentMetrics,
        key: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """key: the engine's API key, "" for none; it goes to the /v1 paths of this engine and nowhere else.
        Raises ValueError for a URL that is not one."""
        self._cell = cell
        self._timing = timing
        self._incarnation = incarnation
        self._publish = publish
        self._metrics = metrics
        self._clock = clock
        self._target = parse_target(cell.url)
        self._address = self._target.authority
        self._sequence = 0
        self._shown: object = None  # what the last beat said that is worth a beat of its own
        self._changed = asyncio.Event()
        self._throttle: ThrottleReader | None = None
        self._kv_feed = (
            KvFeed(cell.id, cell.kv_events, metrics=metrics, changed=self._changed.set, clock=clock)
            if cell.kv_events is not None
            else None
        )
        self.telemetry = CellTelemetry(scrape_s=timing.scrape_s, gpu_source=bool(cell.dcgm_url), cache=self._kv_feed)
        self.life = EngineLife(
            hardware=cell.hardware, advertise_max_model_len=cell.advertise_max_model_len, warm_up=cell.warm_up
        )
        self._watch = HealthWatch(self._target, interval_s=timing.liveness_s, on_reading=self._on_health, clock=clock)
        self._api = Fetcher(cell.url, headers=(("authorization", f"Bearer {key}"),) if key else ())
        self._scraper = EngineScraper(
            cell.id,
            cell.metrics_url or cell.url.rstrip("/") + "/metrics",
            life=self.life,
            telemetry=self.telemetry,
            metrics=metrics,
            clock=clock,
        )
        self._bring_up = BringUp(
            cell.id,
            self._api,
            self.life,
            key_env=cell.api_key_env,
            scrape=self._scraper.scrape,
            on_served=self.telemetry.engine_served,
            changed=self._changed.set,
            metrics=metrics,
        )

    @property
    def gpu_subscriber(self) -> GpuSubscriber:
        return GpuSubscriber(
            cell_id=self._cell.id,
            gpu_uuids=self._cell.gpu_uuids,
            telemetry=self.telemetry,
            changed=self._changed.set,
        )

    async def run(self) -> None:
        """Run until cancelled."""
        self._address = await _resolve(self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run())
                group.create_task(self._bring_up.run())
                group.create_task(self._scrape_loop())
                group.create_task(self._beat_loop())
                if self._kv_feed is not None:
                    group.create_task(self._kv_feed.run())
        finally:
            self._api.close()
            self._scraper.close()

    def beat_now(self) -> None:
        """Send a heartbeat at once, changed or not: a control has just connected."""
        self._shown = None
        self._changed.set()

    def _on_health(self, reading: HealthReading) -> None:
        before = self.life.evidence
        if self.life.health(reading):
            if self.life.is_up:
                log_event(log, "agent.engine_up", cell=self._cell.id)
                self.telemetry.engine_restarted("the engine has just come up")
            else:
                log_event(log, "agent.engine_dead", level=logging.WARNING, cell=self._cell.id, reason=reading.detail)
                self._metrics.deaths.labels(self._cell.id).inc()
                self.telemetry.engine_ended(f"the engine is down: {reading.detail}", reading.at_s)
                self._throttle = None
            self._bring_up.began.set()
        if self.life.evidence != before:
            self._metrics.reachable.labels(self._cell.id).set(1 if self.life.is_up else 0)
            self._changed.set()

    async def _scrape_loop(self) -> None:
        due_s = self._clock()
        searched = -1  # the generation whose control group was looked for
        while True:
            generation = self.life.generation
            if self.life.is_up:
                asked_s = self._clock()
                scrape = await self._scraper.scrape()
                if scrape is not None and self._kv_feed is not None:
                    self._kv_feed.engine_read(scrape.reading, asked_s)
                if self.life.generation != generation:
                    self._bring_up.began.set()
                if scrape is not None and self.life.is_ready and searched != self.life.generation:
                    searched = self.life.generation
                    await self._find_throttle(scrape.reading.start_time_s)
                if self._throttle is not None:
                    self.telemetry.host_read(self._throttle.read(), self._clock())
                self._changed.set()
            due_s = max(due_s + self._timing.scrape_s, self._clock())
            await asyncio.sleep(due_s - self._clock())

    async def _find_throttle(self, start_time_s: float | None) -> None:
        found = await asyncio.to_thread(find_throttle, self._target.host, self._target.port, start_time_s=start_time_s)
        self._throttle = found if isinstance(found, ThrottleReader) else None

    async def _beat_loop(self) -> None:
        due_s, beat_s = self._clock(), float("-inf")
        while True:
            now_s = self._clock()
            telemetry = self.telemetry.telemetry(now_s)
            news = self._news(telemetry)
            if now_s >= due_s or news != self._shown:
                self._shown = news
                self._beat(telemetry)
                due_s = max(due_s + self._timing.interval_s, now_s) if now_s >= due_s else due_s
                beat_s = now_s
            changed = await sleep_or(self._changed, max(0.0, due_s - self._clock()))
            if changed:
                await asyncio.sleep(max(0.0, beat_s + MIN_BEAT_GAP_S - self._clock()))

    def _news(self, telemetry: Telemetry) -> object:
        gpu = telemetry.gpu
        alarm = None if gpu is None or gpu.throttle_bits is None else gpu.throttle_bits & ALARM_BITS
        faults = None if gpu is None else (gpu.xid_count, gpu.ecc_uncorrected_total, alarm)
        clearings = None if telemetry.cache is None else telemetry.cache.clearings
        return self.life.evidence, self.life.capabilities, telemetry.flags, faults, clearings

    def _beat(self, telemetry: Telemetry) -> None:
        self._sequence += 1
        cell = Cell(
            cell_id=self._cell.id,
            site=self._cell.site,
            address=self._address,
            capabilities=self.life.capabilities,
            labels=tuple(sorted(self._cell.labels.items())),
        )
        self._publish(
            Heartbeat(
                cell=cell,
                incarnation=self._incarnation,
                sequence=self._sequence,
                evidence=self.life.evidence,
                telemetry=telemetry,
            )
        )
        self._metrics.unknown.labels(self._cell.id).set(len(telemetry.unknown))
        for target, age_s in (("engine", telemetry.engine_age_s), ("gpu", telemetry.gpu_age_s)):
            self._metrics.age_seconds.labels(self._cell.id, target).set(float("nan") if age_s is None else age_s)


async def _resolve(target: Target) -> str:
    """ "ip:port" of the engine: Envoy takes no names. Tries for ever, as a name may appear later."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one, e.g. "a..b"
            log_event(log, "agent.name_unknown", level=logging.WARNING, host=target.host, reason=error)
            await asyncio.sleep(RESOLVE_RETRY_S)
            continue
        host = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)[0][4][0]
        return f"[{host}]:{target.port}" if ":" in str(host) else f"{host}:{target.port}"
