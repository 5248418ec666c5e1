"""An agent between an engine that publishes KV events and a control."""

import asyncio
import threading
from pathlib import Path

import pytest

from tests.fakes.control import FakeControl
from tests.fakes.engine import FakeEngine, vllm_page
from tests.fakes.kv import Publisher, removed, stored
from tests.integration.test_agent import TIMING, RunningAgent, cell_of
from tradewind.agent.dry_run import DryRunReport, dry_run
from tradewind.config.schema import KvEventsConfig
from tradewind.model.heartbeat import Heartbeat
from tradewind.model.telemetry import CacheReading


def unheard(beat: Heartbeat) -> bool:
    return any(item.signal == "cache" and "nothing heard" in item.reason for item in beat.telemetry.unknown)


def test_heartbeats_tell_what_the_engine_drops_and_that_its_cache_died_with_it(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/kv"
    with FakeEngine() as engine, FakeControl() as control, Publisher(endpoint) as publisher:
        cell = cell_of(engine, kv_events=KvEventsConfig(endpoint=endpoint))
        with RunningAgent(cell, controls=(control,), timing=TIMING):
            assert control.wait_for(unheard).heartbeat.telemetry.cache is None
            asyncio.run(publisher.subscribed())
            publisher.send(4, stored(1, 2))
            control.wait_for(lambda beat: beat.telemetry.cache == CacheReading())
            publisher.send(5, removed(2))
            told = control.wait_for(lambda beat: beat.telemetry.cache and beat.telemetry.cache.untouched_s).heartbeat
            assert told.telemetry.unknown == tuple(item for item in told.telemetry.unknown if item.signal != "cache")
            engine.kill()
            dead = control.wait_for(lambda beat: beat.telemetry.cache == CacheReading(clearings=1)).heartbeat
            assert dead.evidence.reachable is False


def test_a_restart_that_only_the_metrics_page_tells_of_is_a_clearing(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/kv"
    with FakeEngine() as engine, FakeControl() as control, Publisher(endpoint) as publisher:
        engine.metrics(vllm_page() + "process_start_time_seconds 100\n")
        cell = cell_of(engine, kv_events=KvEventsConfig(endpoint=endpoint))
        with RunningAgent(cell, controls=(control,), timing=TIMING):
            asyncio.run(publisher.subscribed())
            publisher.send(4, stored(1))
            control.wait_for(lambda beat: beat.telemetry.cache and beat.telemetry.engine)
            engine.metrics(vllm_page() + "process_start_time_seconds 200\n")
            control.wait_for(lambda beat: beat.telemetry.cache == CacheReading(clearings=1))


def cache_of(report: DryRunReport) -> dict[str, tuple[str, str]]:
    return {row.signal: (row.value, row.reason) for row in report.rows if row.group == "cache"}


def test_a_dry_run_listens_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.agent.dry_run.KV_LISTEN_S", 0.5)
    endpoint = f"ipc://{tmp_path}/kv"
    with FakeEngine() as engine, Publisher(endpoint) as publisher:

        def publish() -> None:
            asyncio.run(publisher.subscribed())
            publisher.send(7, stored(1, 2))

        talk = threading.Thread(target=publish)
        talk.start()
        report = dry_run(engine.url, kv_events=KvEventsConfig(endpoint=endpoint))
        talk.join()
    assert cache_of(report) == {
        "clearings": ("0", ""),
        "untouched_s": ("", "nothing that was stored since was dropped"),
        "resident_tokens": ("", "not heard from the engine's start"),
    }


def test_a_dry_run_says_why_it_hears_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.agent.dry_run.KV_LISTEN_S", 0.2)
    with FakeEngine() as engine:
        heard = cache_of(dry_run(engine.url, kv_events=KvEventsConfig(endpoint=f"ipc://{tmp_path}/kv")))
        assert "nobody waits there" in heard["kv_events"][1]
        with Publisher(f"ipc://{tmp_path}/kv"):
            heard = cache_of(dry_run(engine.url, kv_events=KvEventsConfig(endpoint=f"ipc://{tmp_path}/kv")))
        assert heard["kv_events"][1].endswith("/kv yet"), "somebody is there, and says nothing"
        assert not cache_of(dry_run(engine.url))
        with pytest.raises(ValueError, match=r"'tcp://here' is not tcp://host:port"):
            dry_run(engine.url, kv_events=KvEventsConfig(endpoint="tcp://here"))
