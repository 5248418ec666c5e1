"""GPUs through NVML over time: a driver that goes and comes back."""

import asyncio
import sys
import threading

import pytest

from tests.unit.telemetry.test_nvml import FakeNvml
from tradewind.agent import dry_run as dry_run_module
from tradewind.agent import gpu_feed
from tradewind.agent.dry_run import dry_run
from tradewind.agent.gpu_feed import GpuSubscriber, NvmlFeed
from tradewind.agent.metrics import AgentMetrics
from tradewind.telemetry.tracker import CellTelemetry, reasons


class Feed:
    """A cell that is told of its GPUs by one feed."""

    def __init__(self) -> None:
        self.telemetry = CellTelemetry(scrape_s=60.0, gpu_source=True)
        self.metrics = AgentMetrics()
        self._news = asyncio.Event()

    async def run(self) -> None:
        subscriber = GpuSubscriber(cell_id="east-0", gpu_uuids=(), telemetry=self.telemetry, changed=self._news.set)
        await NvmlFeed(subscriber, interval_s=0.001, metrics=self.metrics, clock=lambda: 1.0).run()

    async def until(self, *, known: bool) -> None:
        async with asyncio.timeout(10):
            while (self.telemetry.telemetry(1.0).gpu is not None) is not known:
                self._news.clear()
                await self._news.wait()

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "tradewind_agent_scrapes_total", {"cell": "east-0", "target": "gpu", "result": result}
        )
        return value or 0.0


def test_a_driver_that_is_loaded_anew_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = FakeNvml(), FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", old)
    monkeypatch.setattr(gpu_feed, "NVML_RETRY_S", 0.001)

    async def scenario() -> Feed:
        feed = Feed()
        task = asyncio.ensure_future(feed.run())
        await feed.until(known=True)
        assert feed.count("empty") == 0
        monkeypatch.setitem(sys.modules, "pynvml", new)  # what the next opening finds
        for gpu in (0, 1):
            old.lose(gpu, "every call fails")
        await feed.until(known=False)
        assert reasons(feed.telemetry.telemetry(1.0).unknown)["gpu"] == "no GPU answers any longer"
        await feed.until(known=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return feed

    feed = asyncio.run(scenario())
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join(10)
    assert old.shut_down
    assert new.shut_down
    assert feed.count("empty") == 3, "an empty answer is not called good"


def test_a_driver_that_hangs_holds_up_neither_others_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    library, returned = FakeNvml(), threading.Event()
    entered = threading.Semaphore(0)

    def hang() -> int:
        entered.release()
        returned.wait(60)
        return 2

    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(gpu_feed, "NVML_ANSWER_S", 0.01)

    async def scenario() -> None:
        feeds = [Feed() for _ in range(64)]  # more than a pool has threads
        tasks = [asyncio.ensure_future(feed.run()) for feed in feeds]
        for feed in feeds:
            await feed.until(known=True)
        library.nvmlDeviceGetCount = hang
        for feed in feeds:
            await feed.until(known=False)
            assert reasons(feed.telemetry.telemetry(1.0).unknown)["gpu"] == "NVML does not answer"
            assert feed.count("timeout") >= 3
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "served") == "served"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    ended = threading.Thread(target=asyncio.run, args=(scenario(),), daemon=True)
    ended.start()
    ended.join(30)
    hung = ended.is_alive()
    returned.set()
    ended.join(30)
    assert not hung
    for _ in range(64):
        assert entered.acquire(blocking=False), "each feed has one call that hangs"


@pytest.mark.parametrize(
    ("gpus", "hangs", "why"),
    [
        ((), True, "NVML does not answer"),
        (("GPU-C",), False, "none of the cell's GPUs is on this host"),
        ((), False, ""),
    ],
)
def test_a_dry_run_says_why_it_cannot_see_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...], hangs: bool, why: str
) -> None:
    library, returned = FakeNvml(), threading.Event()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    if hangs:
        monkeypatch.setattr(dry_run_module, "NVML_ANSWER_S", 0.01)
        library.nvmlDeviceGetCount = lambda: returned.wait(60) and 0
    report = dry_run("http://127.0.0.1:1", dcgm_url="nvml:", gpu_uuids=gpus)
    returned.set()
    assert next(row.reason for row in report.rows if row.signal == "temperature_c") == why
