"""A cell's KV events, from a publisher on the loopback to the telemetry of its heartbeats."""

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kv import CLEARED, Publisher, message, removed, stored
from tradewind.agent.kv_feed import ALONE_S, SAME_RESTART_S, KvFeed, RankCache
from tradewind.agent.kv_silence import HOLD_S, QUIET_S, KvSilence
from tradewind.agent.metrics import AgentMetrics
from tradewind.config.schema import KvEventsConfig
from tradewind.model.telemetry import CacheReading, EngineReading, Histogram
from tradewind.telemetry.kv_subscriber import SubscriptionFailed
from tradewind.telemetry.tracker import CellTelemetry


def arrays(event: dict[str, object]) -> list[object]:
    """As vLLM wrote them up to 0.22."""
    return list(event.values())


def rank_cache() -> tuple[RankCache, list[None], AgentMetrics]:
    changes: list[None] = []
    metrics = AgentMetrics()
    rank = RankCache("east-0", metrics=metrics, changed=lambda: changes.append(None), silence=KvSilence())
    return rank, changes, metrics


def count(metrics: AgentMetrics, name: str) -> float | None:
    return metrics.registry.get_sample_value(f"tradewind_agent_{name}_total", {"cell": "east-0"})


@pytest.mark.parametrize("form", [dict, arrays])
def test_what_was_stored_and_removed_is_the_reading(form: Callable[[dict[str, object]], object]) -> None:
    rank, changes, metrics = rank_cache()
    rank.take(message(0, form(stored(1, 2))), 10.0)
    rank.take(message(1, form(stored(3))), 20.0)
    assert rank.reading(20.0) == CacheReading(resident_tokens=48)
    rank.take(message(2, form(removed(1))), 21.0)
    assert rank.reading(25.0) == CacheReading(untouched_s=15.0, resident_tokens=32)
    rank.take(message(3, form(CLEARED)), 26.0)
    assert rank.reading(26.0) == CacheReading(clearings=1, resident_tokens=0)
    assert len(changes) == 2, "the first message, and the clearing"
    assert [count(metrics, name) for name in ("kv_event_batches", "kv_event_batches_missed")] == [4, 0]


def test_who_comes_late_does_not_know_what_is_resident() -> None:
    rank, _, _ = rank_cache()
    rank.take(message(7, stored(1)), 1.0)
    rank.take(message(8, removed(99)), 2.0)
    assert rank.reading(3.0) == CacheReading()


def test_an_empty_first_batch_is_the_start_as_well() -> None:
    rank, _, _ = rank_cache()
    rank.take(message(0), 1.0)
    assert rank.heard
    rank.take(message(1, stored(1)), 1.0)
    assert rank.reading(1.0).resident_tokens == 16


@pytest.mark.parametrize(
    ("broken", "then", "missed", "bad"),
    [(message(5, stored(2)), 6, 4, 0), ([b"kv", (1).to_bytes(8, "big"), b"\xc1"], 2, 0, 1)],
)
def test_a_gap_and_a_batch_that_cannot_be_read_are_counted_and_end_certainty(
    broken: list[bytes], then: int, missed: int, bad: int
) -> None:
    rank, _, metrics = rank_cache()
    rank.take(message(0, stored(1)), 1.0)
    rank.take(broken, 2.0)
    rank.take(message(then, removed(1)), 3.0)
    assert rank.reading(4.0) == CacheReading(untouched_s=3.0), "the horizon holds"
    assert [count(metrics, name) for name in ("kv_event_batches_missed", "kv_events_bad")] == [missed, bad]


def test_a_publisher_that_begins_again_has_an_empty_cache() -> None:
    rank, _, _ = rank_cache()
    rank.take(message(4, stored(1)), 1.0)
    rank.take(message(0, stored(2)), 2.0)
    assert rank.reading(2.0) == CacheReading(clearings=1, resident_tokens=16)


def test_one_restart_is_one_clearing_whoever_tells_first() -> None:
    rank, _, _ = rank_cache()
    rank.take(message(4, stored(1)), 1.0)
    rank.engine_restarted(100.0)
    rank.engine_restarted(101.0)
    assert rank.reading(101.0) == CacheReading(clearings=1), "it is told of although the new engine was not heard yet"
    rank.take(message(0, stored(2)), 160.0)
    assert rank.reading(160.0) == CacheReading(clearings=1, resident_tokens=16), "the publisher tells nothing new"
    rank.engine_restarted(160.0 + SAME_RESTART_S / 2)
    assert rank.reading(170.0).clearings == 1, "nor does a page that was read a little later"
    rank.take(message(0, stored(3)), 300.0)
    rank.engine_restarted(301.0)
    assert rank.reading(301.0) == CacheReading(clearings=2, resident_tokens=16)
    rank.engine_restarted(301.0 + SAME_RESTART_S)
    assert rank.reading(400.0).clearings == 3, "another restart"


@pytest.mark.parametrize(
    ("back", "reading"),
    [
        (message(3, stored(4)), CacheReading(untouched_s=8.0, resident_tokens=48)),
        (message(9, stored(4)), CacheReading(untouched_s=8.0)),
        (message(0, stored(4)), CacheReading(clearings=1, resident_tokens=16)),
    ],
    ids=["nothing was missed", "something was missed", "it is another process"],
)
def test_its_numbers_tell_what_a_publisher_that_is_back_has_said_meanwhile(
    back: list[bytes], reading: CacheReading
) -> None:
    rank, changes, _ = rank_cache()
    rank.take(message(0, stored(1, 2)), 1.0)
    rank.take(message(1, stored(3)), 1.5)
    rank.take(message(2, removed(1)), 2.0)
    rank.lost()
    assert (rank.heard, len(changes)) == (False, 2), "the first message, and the loss"
    rank.take(back, 9.0)
    assert (rank.heard, rank.reading(9.0)) == (True, reading)


def test_what_cannot_be_read_is_not_heard() -> None:
    rank, _, _ = rank_cache()
    rank.take(message(0, {"type": "BlocksMoved"}), 1.0)
    assert (rank.heard, rank.unreadable) == (False, True)
    rank.take(message(1, {"type": "BlocksMoved"}, stored(1)), 2.0)
    assert (rank.heard, rank.unreadable) == (True, False), "a new kind among others that are known"


class Feed:
    """A feed at work, its telemetry, and what it thinks worth a heartbeat."""

    def __init__(self, endpoint: str, **section: Any) -> None:
        self.now_s = 0.0
        self.changed = asyncio.Event()
        self.metrics = AgentMetrics()
        settings = KvEventsConfig(endpoint=endpoint, **section)
        self.feed = KvFeed("east-0", settings, metrics=self.metrics, changed=self.changed.set, clock=lambda: self.now_s)
        self.telemetry = CellTelemetry(scrape_s=1.0, gpu_source=True, cache=self.feed)

    @property
    def why(self) -> str:
        telemetry = self.telemetry.telemetry(self.now_s)
        assert telemetry.cache is None
        (reason,) = [item.reason for item in telemetry.unknown if item.signal == "cache"]
        return reason

    @property
    def heard(self) -> float | None:
        return self.metrics.registry.get_sample_value("tradewind_agent_kv_events_heard_ratio", {"cell": "east-0"})

    async def until(self, accept: Callable[[CacheReading], bool]) -> CacheReading:
        found: list[CacheReading] = []

        def seen() -> bool:
            cache = self.telemetry.telemetry(self.now_s).cache
            if cache is not None and accept(cache):
                found.append(cache)
            return bool(found)

        await until(seen)
        return found[0]


async def until(seen: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        for _ in iter(seen, True):
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[Feed]:
    task = asyncio.create_task(feed.feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def endpoint_in(folder: Path) -> str:
    return f"ipc://{folder}/kv"


def test_a_cell_hears_its_engine_and_says_why_while_it_does_not(tmp_path: Path) -> None:
    endpoint = endpoint_in(tmp_path)

    async def scene() -> None:
        async with running(Feed(endpoint, topic="kv")) as feed:
            nobody = f"kv events: nothing heard from {endpoint} yet, nobody waits there (bind: true if the engine's own"
            assert feed.why.startswith(nobody)
            with Publisher(endpoint) as silent:
                await silent.subscribed()
                await until(lambda: not feed.why.startswith(nobody))
            await until(lambda: feed.why.startswith(nobody))
            with Publisher(endpoint) as engine:
                assert await engine.subscribed() == "kv"
                await until(lambda: feed.why == f"kv events: nothing heard from {endpoint} yet")
                engine.send(0, stored(1, 2))
                await feed.until(lambda cache: cache.resident_tokens == 32)
                assert feed.changed.is_set()
                engine.send(1, CLEARED)
                assert (await feed.until(lambda cache: cache.clearings == 1)).resident_tokens == 0
            with Publisher(endpoint) as engine:  # the engine is started again: ZeroMQ connects by itself
                await engine.subscribed()
                engine.send(0, stored(7))
                assert (await feed.until(lambda cache: cache.clearings == 2)).resident_tokens == 16

    asyncio.run(scene())


def test_an_agent_waits_for_an_engine_that_connects() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"

    async def scene() -> None:
        async with running(Feed(endpoint, bind=True)) as feed:
            await until(lambda: "Address already in use" in feed.why)
            taken.close()
            await until(
                lambda: feed.why.startswith(f"kv events: nothing heard at {endpoint} yet, nobody has connected")
            )
            with Publisher(endpoint, bind=False) as engine:
                await engine.subscribed()
                await until(lambda: feed.why == f"kv events: nothing heard at {endpoint} yet")
                engine.send(0, stored(1))
                await feed.until(lambda cache: cache.resident_tokens == 16)

    asyncio.run(scene())


def test_a_cell_of_several_ranks_is_known_when_each_was_heard() -> None:
    port = neighbours()
    first, second = (f"tcp://127.0.0.1:{port + rank}" for rank in range(2))

    async def scene() -> None:
        async with running(Feed(first, ranks=2)) as feed:
            with Publisher(first) as one, Publisher(second) as other:
                await one.subscribed()
                await other.subscribed()
                one.send(0, stored(1))
                await until(feed.changed.is_set)
                assert feed.why == f"kv events: nothing heard from {second} yet"
                other.send(0, CLEARED, stored(1, 2))
                assert await feed.until(lambda _: True) == CacheReading(clearings=1, resident_tokens=48)

    asyncio.run(scene())


def neighbours() -> int:
    """A free port whose next one is free as well."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one, contextlib.suppress(OSError, OverflowError):
            port = int(one.getsockname()[1])
            with socket.create_server(("127.0.0.1", port + 1)):
                return port


def test_without_the_extra_it_is_said_once_and_nothing_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)

    async def scene() -> None:
        feed = Feed("tcp://127.0.0.1:5557", ranks=2)
        await feed.feed.run()
        assert feed.why == "kv events: install tradewind[kv-events]"

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert [record.message for record in caplog.records if "kv_events_extra_missing" in record.message] != []
    assert len(caplog.records) == 1


def test_a_flood_leaves_room_for_others(tmp_path: Path) -> None:
    """A message that is there is received without a pause; heartbeats must go out all the same."""
    endpoint = endpoint_in(tmp_path)
    turns: set[float | None] = set()

    async def scene() -> None:
        async with running(Feed(endpoint)) as feed:
            with Publisher(endpoint) as engine:
                await engine.subscribed()
                for sequence in range(500):
                    engine.send(sequence, stored(sequence))
                async with asyncio.timeout(10):
                    while 500 not in turns:
                        turns.add(count(feed.metrics, "kv_event_batches"))
                        await asyncio.sleep(0)

    asyncio.run(scene())
    assert len(turns) > 50


def page(prompts: int) -> EngineReading:
    """Of an idle engine that has computed so many prompts of 4,096 tokens."""
    return EngineReading(
        prompt_tokens_total=4096.0 * prompts,
        prefix_hit_tokens_total=0.0,
        finished_total=float(prompts),
        ttft_s=Histogram(bounds=(), counts=(float(prompts),)),
        running_requests=0.0,
        queue_requests=0.0,
    )


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message.partition(" ")[0] for record in caplog.records]


def test_an_engine_that_goes_silent_under_load_is_not_believed_until_it_is_heard_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_in(tmp_path)

    async def scene() -> None:
        async with running(Feed(endpoint)) as feed:
            with Publisher(endpoint) as engine:
                await engine.subscribed()
                engine.send(0, stored(1))
                before = await feed.until(lambda _: True)
                assert (feed.heard, told(caplog)) == (1, [])
                feed.feed.engine_read(page(1), QUIET_S)
                feed.feed.engine_read(page(2), QUIET_S + 1)
                assert await feed.until(lambda _: True) == before
                feed.changed.clear()
                for second in range(3):
                    feed.feed.engine_read(page(2), QUIET_S + HOLD_S + 1 + second)
                why = f"kv events: nothing came from {endpoint} in 16 s in which the engine computed 4096 prompt tokens"
                assert feed.why == f"{why}, or since"
                assert feed.changed.is_set()
                assert (feed.heard, told(caplog)) == (0, ["agent.kv_events_silent"])
                engine.send(7, stored(2))
                assert await feed.until(lambda _: True) == CacheReading(), "what was missed may be anything"
                assert (feed.heard, told(caplog)) == (1, ["agent.kv_events_silent", "agent.kv_events_back"])

    with caplog.at_level(logging.INFO):
        asyncio.run(scene())


def test_ranks_speak_for_each_other_where_the_page_does_not_tell_them_apart() -> None:
    port = neighbours()
    first, second = (f"tcp://127.0.0.1:{port + rank}" for rank in range(2))

    async def scene() -> None:
        async with running(Feed(first, ranks=2)) as feed:
            with Publisher(first) as one, Publisher(second) as other:
                await one.subscribed()
                await other.subscribed()
                one.send(0, stored(1))
                other.send(0, stored(2))
                await feed.until(lambda _: True)
                feed.feed.engine_read(page(1), QUIET_S)
                feed.feed.engine_read(page(2), QUIET_S + 1)
                feed.now_s = QUIET_S + 2
                one.send(1, stored(3))
                await feed.until(lambda cache: cache.resident_tokens == 48)
                feed.feed.engine_read(page(2), QUIET_S + HOLD_S + 3)
                await feed.until(lambda _: True)
                feed.feed.engine_read(page(3), QUIET_S + 2 * HOLD_S + 4)
                feed.feed.engine_read(page(4), QUIET_S + 2 * HOLD_S + 5)
                feed.feed.engine_read(page(4), QUIET_S + 3 * HOLD_S + 5)
                assert f"nothing came from {first}, {second} in" in feed.why
                one.send(2, stored(4))
                await until(lambda: count(feed.metrics, "kv_event_batches") == 4)
                assert f"nothing came from {first}, {second} in" in feed.why, "the other one has not come back"
                other.send(1, stored(5))
                assert (await feed.until(lambda _: True)).resident_tokens == 80, "nothing was missed"

    asyncio.run(scene())


def test_a_publisher_that_leaves_for_good_is_lost_unless_its_engine_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_in(tmp_path)

    async def scene() -> None:
        async with running(Feed(endpoint)) as feed:
            with Publisher(endpoint) as engine:
                await engine.subscribed()
                engine.send(0, stored(1))
                await feed.until(lambda _: True)
            await left(feed)
            feed.now_s += ALONE_S
            assert feed.why == f"kv events: nobody was at {endpoint} for 10 s, and nothing has come since"
            assert told(caplog) == ["agent.kv_events_silent"]
            with Publisher(endpoint) as engine:
                await engine.subscribed()
                assert "nothing has come since" in feed.why, "somebody is there, and says nothing"
                engine.send(1, stored(2))
                assert (await feed.until(lambda _: True)).resident_tokens == 32
                feed.telemetry.engine_ended("killed", feed.now_s)
            await left(feed)
            feed.now_s += 10 * ALONE_S
            assert feed.telemetry.telemetry(feed.now_s).cache == CacheReading(clearings=1), "that is known already"

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert told(caplog) == ["agent.kv_events_silent"]


async def left(feed: Feed) -> None:
    """Until the feed has seen that nobody is there any more."""
    subscribers = feed.feed._subscribers.values()
    await until(lambda: not any(subscriber.connected for subscriber in subscribers))
    feed.telemetry.telemetry(feed.now_s)


class Failing:
    """A subscriber that hears one message, and then its socket fails; the next one waits for ever."""

    def __init__(self, _endpoint: str, reader: Any, **_options: Any) -> None:
        self._reader = reader
        self.connected = True
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.runs > 1:
            await asyncio.Event().wait()
        self._reader.take(message(0, stored(1)))
        await asyncio.sleep(0)
        raise SubscriptionFailed("too many open files")


def test_a_subscription_that_fails_after_it_was_heard_is_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tradewind.agent.kv_feed.KvSubscriber", Failing)
    monkeypatch.setattr("tradewind.agent.kv_feed.MIN_RETRY_S", 0.05)

    async def scene() -> None:
        async with running(Feed("ipc:///nowhere")) as feed:
            await until(lambda: bool(told(caplog)))
            assert feed.why == "kv events: ipc:///nowhere: too many open files"
            await until(lambda: feed.why == "kv events: ipc:///nowhere: too many open files; nothing has come since")

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert told(caplog) == ["agent.kv_events_failed"]
