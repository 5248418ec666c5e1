"""GPU telemetry for the cells of an agent: one scrape per exporter, however many cells share it."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tradewind.agent.metrics import AgentMetrics
from tradewind.runtime.log import log_event
from tradewind.telemetry.dcgm import DcgmReader
from tradewind.telemetry.fetch import Fetcher, sleep_or
from tradewind.telemetry.http_connection import FetchFailed
from tradewind.telemetry.nvml import NvmlReader, open_nvml
from tradewind.telemetry.tracker import CellTelemetry

log = logging.getLogger(__name__)

T = TypeVar("T")

NVML_RETRY_S = 30.0
NVML_MISSES = 3
NVML_ANSWER_S = 5.0


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


class NvmlFeed:
    """Reads this host's GPUs for one cell. A driver that hangs, as when a GPU falls off the bus, holds up nothing else:
    its calls have threads of their own."""

    def __init__(
        self,
        subscriber: GpuSubscriber,
        *,
        interval_s: float,
        metrics: AgentMetrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._subscriber = subscriber
        self._interval_s = interval_s
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Read until cancelled. Where NVML is missing, or has gone with its driver, say why and open it again after
        NVML_RETRY_S."""
        while True:
            reader = await self._answer(lambda: open_nvml(self._subscriber.gpu_uuids))
            if isinstance(reader, str):
                reason = reader
                for _ in range(3):
                    self._miss(reason)
                self._count("unreachable")
            else:
                try:
                    reason = await self._read(reader)
                finally:
                    in_own_thread(reader.close)
            log_event(
                log, "agent.nvml_unavailable", level=logging.WARNING, cell=self._subscriber.cell_id, reason=reason
            )
            await asyncio.sleep(NVML_RETRY_S)

    async def _read(self, reader: NvmlReader) -> str:
        """Read until there is no GPU NVML_MISSES times in a row; returns why. A driver that was loaded anew is not
        found again through the old handle."""
        misses = 0
        while True:
            at_s = self._clock()
            scrape = await self._answer(reader.read)
            self._subscriber.telemetry.gpu_hit(scrape, at_s)
            self._count("ok" if scrape.reading else "empty")
            self._subscriber.changed()
            misses = 0 if scrape.reading else misses + 1
            if misses >= NVML_MISSES:
                return scrape.unknown[0].reason
            await asyncio.sleep(max(0.0, at_s + self._interval_s - self._clock()))

    async def _answer(self, call: Callable[[], T]) -> T:
        """What the driver says, however long it takes: there is no second call before the first has returned."""
        answer = in_own_thread(call)
        while not (await asyncio.wait({answer}, timeout=NVML_ANSWER_S))[0]:
            self._miss("NVML does not answer")
            self._count("timeout")
        return answer.result()

    def _miss(self, reason: str) -> None:
        self._subscriber.telemetry.gpu_miss(reason)
        self._subscriber.changed()

    def _count(self, result: str) -> None:
        self._metrics.scrapes.labels(self._subscriber.cell_id, "gpu", result).inc()


def in_own_thread(call: Callable[[], T]) -> "asyncio.Future[T]":
    """Unlike asyncio.to_thread: a call that hangs takes no place in the pool that others need, and does not keep the
    process from ending."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            deliver = partial(answer.set_result, call())
        except Exception as error:  # noqa: BLE001 - raised where the answer is awaited
            deliver = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(deliver)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    return answer
