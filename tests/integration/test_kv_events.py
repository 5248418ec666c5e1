"""Emulated engines publish KV events, agents listen, and gateways know what is gone, all over real sockets."""

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.contract.client import eventually
from tests.fakes.control import FakeControl
from tests.integration.test_agent import RunningAgent, ready
from tests.support.emulator import EngineSpec, emulator, get_json
from tests.support.rawhttp import ask
from tests.support.up import Up, running_up
from tradewind.config.resolve import resolve
from tradewind.config.schema import (
    AgentConfig,
    CellConfig,
    EmulatedEngineConfig,
    EmulatedKvEventsConfig,
    EmulationConfig,
    GatewayConfig,
    GridConfig,
    KvEventsConfig,
    PickConfig,
)
from tradewind.model.telemetry import CacheReading

pytest.importorskip("zmq", reason="the extra kv-events")

TIMING = AgentConfig(interval_s=0.1, scrape_s=0.2, liveness_s=0.1)
KV_TOKENS = 2048
WITHIN_S = 10.0
PATIENT = PickConfig(timeout_s=0.5)  # on a machine that is busy no pick is late


def read(url: str, *, first: int, tokens: int) -> None:
    """Has the engine read a prompt that no other begins like."""
    body = {"model": "tiny", "prompt": [first] * tokens, "max_tokens": 1}
    assert ask(url, "POST", "/v1/completions", body).status == 200


class Told:
    """What the heartbeats of one cell said of its engine's cache."""

    def __init__(self, control: FakeControl) -> None:
        self._control = control

    def readings(self) -> Iterator[tuple[float, int, float | None, int | None]]:
        """When it came, clearings, since when what was not used is gone, and what is resident; the newest first."""
        for beat in reversed(self._control.beats):
            reading = beat.heartbeat.telemetry.cache
            if reading is not None:
                horizon_s = None if reading.untouched_s is None else beat.at_s - reading.untouched_s
                yield beat.at_s, reading.clearings, horizon_s, reading.resident_tokens

    def now(self) -> tuple[int, float | None, int | None]:
        """Of a heartbeat that comes after this call."""
        asked_s = time.monotonic()
        eventually(lambda: next(self.readings())[0] > asked_s, within_s=WITHIN_S, what="a heartbeat comes")
        return next(self.readings())[1:]


def test_heartbeats_tell_how_far_an_engines_cache_reaches_back() -> None:
    engine = EngineSpec(kv_capacity_tokens=KV_TOKENS, kv_events=EmulatedKvEventsConfig(topic="kv@a1"))
    with emulator(engine) as grid, FakeControl() as control:
        told, small = Told(control), count(100)
        cells = resolve(grid.config).cells
        source = ask(grid.url, "GET", "/kv_event_sources").json()["0"]
        assert isinstance(source, dict)
        assert cells[0].kv_events == KvEventsConfig(endpoint=source["endpoint"], topic=source["topic"])
        with RunningAgent(*cells, controls=(control,), timing=TIMING):
            control.wait_for(ready)

            def heard() -> bool:
                read(grid.url, first=next(small), tokens=64)
                return any(told.readings())

            eventually(heard, within_s=WITHIN_S, what="the agent hears the engine")
            assert told.now()[1] is None, "nothing is gone yet"
            began_s = time.monotonic()
            for first in range(1, 5):
                read(grid.url, first=first, tokens=1000)

            def overflowed() -> bool:
                horizon_s = told.now()[1]
                return horizon_s is not None and began_s < horizon_s

            eventually(overflowed, within_s=WITHIN_S, what="the oldest of the four prompts is gone")
            assert ask(grid.url, "POST", "/reset_prefix_cache").status == 200
            clearings, horizon_s, _ = told.now()
            assert horizon_s is not None, "nobody is told before the engine has something to do"
            read(grid.url, first=5, tokens=64)
            cleared = (clearings + 1, None, 64)
            eventually(lambda: told.now() == cleared, within_s=WITHIN_S, what="a clearing, and all that is resident")
            grid.inject("kill", cell="a1")
            grid.inject("restart", cell="a1", params={"start_delay_s": 0.0})

            def began_again() -> bool:
                with contextlib.suppress(OSError):  # it does not listen yet
                    read(grid.url, first=next(small), tokens=64)
                return told.now()[0] > cleared[0]

            eventually(began_again, within_s=WITHIN_S, what="a new process begins empty")


def test_a_publisher_that_goes_silent_is_found_out_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.agent.kv_silence.QUIET_S", 1.0)
    monkeypatch.setattr("tradewind.agent.kv_silence.HOLD_S", 0.5)
    engine = EngineSpec(kv_capacity_tokens=KV_TOKENS, kv_events=EmulatedKvEventsConfig())
    with emulator(engine) as grid, FakeControl() as control:
        new = count(1)

        def cache() -> CacheReading | str:
            """Of the newest heartbeat, or why it has none."""
            telemetry = control.beats[-1].heartbeat.telemetry
            reasons = [item.reason for item in telemetry.unknown if item.signal == "cache"]
            return telemetry.cache or reasons[0]

        def works(expected: Callable[[CacheReading | str], bool]) -> bool:
            read(grid.url, first=next(new), tokens=1000)
            return expected(cache())

        with RunningAgent(*resolve(grid.config).cells, controls=(control,), timing=TIMING):
            control.wait_for(ready)
            eventually(lambda: works(is_known), within_s=WITHIN_S, what="the agent hears the engine")
            before = len(control.beats)
            grid.inject("kv_events_silent", cell="a1")
            eventually(lambda: works(is_lost), within_s=WITHIN_S, what="it computes prompts and says nothing")
            read(grid.url, first=next(new), tokens=1000)
            assert is_lost(cache())
            grid.clear()
            eventually(lambda: works(is_known), within_s=WITHIN_S, what="it is heard again")
            clearings = {
                reading.clearings
                for beat in control.beats[before:]
                if (reading := beat.heartbeat.telemetry.cache) is not None
            }
            assert clearings == {0}, "nothing has said that the cache was emptied"


def is_known(cache: CacheReading | str) -> bool:
    return isinstance(cache, CacheReading)


def is_lost(cache: CacheReading | str) -> bool:
    return isinstance(cache, str) and "in which the engine computed" in cache


def small_grid(state_dir: Path) -> GridConfig:
    engine = EmulatedEngineConfig(
        cell="a1", profile="fast", model="tiny", kv_capacity_tokens=KV_TOKENS, kv_events=EmulatedKvEventsConfig()
    )
    return GridConfig(
        grid="kv",
        state_dir=str(state_dir),
        sites=["east"],
        gateways=[GatewayConfig(site="east", routing="pick", pick=PATIENT)],
        cells=[CellConfig(id="a1", site="east", url="http://127.0.0.1:0")],
        emulation=EmulationConfig(engines=[engine]),
        dashboard="",
    )


def index_blocks(up: Up) -> int:
    """What the gateway believes to be in its only cell's cache."""
    pick = ask(f"http://{up.grid.gateways[0].admin}", "GET", "/v1/status").json()["pick"]
    assert isinstance(pick, dict)
    (row,) = pick["cells"]
    blocks: int = row["index_blocks"]
    return blocks


def has_its_key(up: Up) -> bool:
    """Control has told the gateway how to hash prompts: what it hashed before is forgotten."""
    gateways = get_json(f"http://{up.grid.controls[0].admin}/v1/gateways")["gateways"]
    assert isinstance(gateways, list)
    return [row["prefixes_shared"] for row in gateways] == [True]


def test_a_gateway_forgets_what_others_pushed_out_of_an_engines_cache(tmp_path: Path) -> None:
    with running_up(small_grid(tmp_path / "state"), tmp_path) as up:
        engine, gateway = up.grid.cells[0].url, f"http://{up.grid.gateways[0].listen}"
        others = count(100)

        def pushed_out() -> bool:
            read(engine, first=next(others), tokens=1000)
            return index_blocks(up) == 0

        eventually(lambda: has_its_key(up), within_s=WITHIN_S, what="the gateway hashes by the key of the grid")
        read(gateway, first=1, tokens=1000)
        assert index_blocks(up) == 1000 * 4 // 512
        eventually(pushed_out, within_s=WITHIN_S, what="prompts that this gateway has not sent have taken its place")
        read(gateway, first=2, tokens=1000)
        assert index_blocks(up) == 1000 * 4 // 512
        assert ask(engine, "POST", "/reset_prefix_cache").status == 200
        read(engine, first=3, tokens=64)
        eventually(lambda: index_blocks(up) == 0, within_s=WITHIN_S, what="a clearing leaves nothing")
