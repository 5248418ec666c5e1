"""An agent between an engine that publishes KV events and a control."""

import asyncio
from pathlib import Path

from tests.fakes.control import FakeControl
from tests.fakes.engine import FakeEngine
from tests.fakes.kv import Publisher, removed, stored
from tests.integration.test_agent import TIMING, RunningAgent, cell_of
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
