"""Two real vLLM under `routing: pick`: conversations stay where they are cached; the engines' KV events are read."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from tests.contract.client import eventually, send
from tests.contract.engine import MODEL
from tests.contract.requests import CHAT, chat
from tests.real_engine.install import installed_or_skip
from tests.real_engine.vllm import RealEngine
from tests.support.conversations import SENTENCE, cached_ratio
from tests.support.up import Up, running_up
from tradewind.agent.kv_feed import KvFeed
from tradewind.agent.metrics import AgentMetrics
from tradewind.config.schema import CellConfig, GatewayConfig, GridConfig, KvEventsConfig
from tradewind.model.telemetry import CacheReading
from tradewind.telemetry.kv_events import AllCleared, BlocksStored, KvEvent, KvEventReader
from tradewind.telemetry.kv_subscriber import KvSubscriber

pytestmark = pytest.mark.real_engine

CELLS = ("east-0", "east-1")
HEARD_S = 20.0
OVERFLOW_S = 240.0  # two fillings of the cache, by a CPU: what was stored before anybody listened says nothing
SENTENCES = 100  # some 2,000 tokens: of a small model, less is not worth a detour
REQUESTS = 32  # of cached_ratio
MORE = 0.03  # of all prompt tokens; by weights every engine reads every conversation once
BLOCK_TOKENS = 32  # as the engines are started


@dataclass(frozen=True, slots=True)
class Publisher:
    """A running engine and where it publishes its KV events."""

    engine: RealEngine
    endpoint: str


@pytest.fixture(scope="module")
def publishers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Publisher]]:
    installed_or_skip()
    folder = tmp_path_factory.mktemp("kv")
    with contextlib.ExitStack() as ended:
        started = []
        for cell in CELLS:  # one after the other: a start takes all the CPU there is
            endpoint = f"ipc://{folder / cell}"
            started.append(Publisher(RealEngine(kv_events=endpoint), endpoint))
            ended.callback(started[-1].engine.close)
        yield started


@contextlib.contextmanager
def grid_of(publishers: list[Publisher], folder: Path, *, routing: Literal["pick", "weights"]) -> Iterator[Up]:
    folder.mkdir()
    cells = [
        CellConfig(id=cell, site="east", url=f"http://127.0.0.1:{publisher.engine.port}")
        for cell, publisher in zip(CELLS, publishers, strict=True)
    ]
    gateway = GatewayConfig(site="east", routing=routing)
    config = GridConfig(grid=routing, sites=["east"], gateways=[gateway], cells=cells, dashboard="")
    with running_up(config, folder) as up:
        yield up


@contextlib.contextmanager
def listening(listen: Coroutine[None, None, None]) -> Iterator[None]:
    """Runs it in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(listen)

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


def test_affinity_raises_cached_tokens(publishers: list[Publisher], tmp_path: Path) -> None:
    with grid_of(publishers, tmp_path / "pick", routing="pick") as up:
        picked = cached_ratio(up, model=MODEL, conversations=8, sentences=SENTENCES)
        eventually(lambda: len(up.requests()) >= REQUESTS, within_s=HEARD_S, what="all requests are logged")
        assert {line.cell for line in up.requests().values()} == set(CELLS)
    with grid_of(publishers, tmp_path / "weights", routing="weights") as up:
        spread = cached_ratio(up, model=MODEL, conversations=8, sentences=SENTENCES)
    assert picked > spread + MORE, (picked, spread)


def test_kv_events_decode(publishers: list[Publisher]) -> None:
    pytest.importorskip("zmq", reason="the extra kv-events")
    publisher, seen = publishers[0], list[KvEvent]()
    tried = count()
    with listening(KvSubscriber(publisher.endpoint, KvEventReader(seen.extend)).run()):

        def stored() -> bool:
            send(publisher.engine, "POST", CHAT, chat(f"{next(tried)} {SENTENCE * 8}"))
            return any(isinstance(event, BlocksStored) for event in seen)

        eventually(stored, within_s=HEARD_S, what="stored blocks are heard of")
        blocks = next(event for event in seen if isinstance(event, BlocksStored))
        assert blocks.block_size_tokens == BLOCK_TOKENS
        assert len(blocks.token_ids) == BLOCK_TOKENS * len(blocks.hashes)
        assert send(publisher.engine, "POST", "/reset_prefix_cache").status == 200

        def cleared() -> bool:
            send(publisher.engine, "POST", CHAT, chat(f"{next(tried)} {SENTENCE}"))  # events go out with a step
            return AllCleared() in seen

        eventually(cleared, within_s=HEARD_S, what="the clearing is heard of")


def test_a_cache_that_overflows_has_a_horizon(publishers: list[Publisher]) -> None:
    pytest.importorskip("zmq", reason="the extra kv-events")
    publisher, tried = publishers[0], count()
    section = KvEventsConfig(endpoint=publisher.endpoint)
    feed = KvFeed(CELLS[0], section, metrics=AgentMetrics(), changed=lambda: None)
    began_s = time.monotonic()
    with listening(feed.run()):

        def overflowed() -> bool:
            send(publisher.engine, "POST", CHAT, chat(f"overflow {next(tried)} {SENTENCE * SENTENCES}"))
            reading = feed.read(time.monotonic())
            return isinstance(reading, CacheReading) and reading.untouched_s is not None

        eventually(overflowed, within_s=OVERFLOW_S, what="what was stored since we listen gives way")
        reading = feed.read(time.monotonic())
        assert isinstance(reading, CacheReading)
        assert reading.untouched_s is not None
        assert 0.0 < reading.untouched_s < time.monotonic() - began_s
        assert reading.clearings == 0
