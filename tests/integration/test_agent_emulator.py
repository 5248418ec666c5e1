"""A live agent beside emulated engines and their exporter, with the emulator's own faults."""

import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from tests.fakes.control import FakeControl
from tests.integration.test_agent import RunningAgent, ready
from tests.support.emulator import EmulatorHandle, EngineSpec, emulator
from tradewind.agent.dry_run import dry_run
from tradewind.config.schema import AgentConfig, CellConfig
from tradewind.telemetry.fetch import Fetcher
from tradewind.telemetry.http_connection import FetchFailed

TIMING = AgentConfig(interval_s=0.2, scrape_s=0.2, liveness_s=0.25)


@pytest.fixture(scope="module", params=["old", "new"])
def grid(request: pytest.FixtureRequest) -> Iterator[EmulatorHandle]:
    with emulator(EngineSpec(cell="a1"), EngineSpec(cell="a2"), dcgm_names=request.param) as handle:
        yield handle


def cells(grid: EmulatorHandle) -> list[CellConfig]:
    url = f"{grid.dcgm_urls['east']}/metrics"
    assert grid.config.emulation is not None
    uuids = {engine.cell: engine.gpu_uuid for engine in grid.config.emulation.engines}
    return [
        msgspec.structs.replace(cell, dcgm_url=url, gpu_uuids=[uuids[cell.id]] if uuids[cell.id] else [])
        for cell in grid.config.cells
    ]


class Load:
    """Keeps one engine busy with short completions until the block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        fetcher = Fetcher(self._url, timeout_s=10.0)
        body = msgspec.json.encode({"model": "tiny", "prompt": "a b c d", "max_tokens": 32})
        while not self._stop.is_set():
            try:
                await fetcher.exchange("POST", "/v1/completions", body=body)
            except FetchFailed:
                await asyncio.sleep(0.05)
        fetcher.close()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(15)


def test_every_signal_of_an_emulated_engine_is_read(grid: EmulatorHandle) -> None:
    report = dry_run(grid.url, dcgm_url=f"{grid.dcgm_urls['east']}/metrics")
    unknown = {row.signal: row.reason for row in report.unknown}
    assert report.reachable
    assert unknown.keys() <= {"cpu_throttled_ratio"}, unknown


def test_faults_of_one_engine_are_told_and_the_other_is_left_alone(grid: EmulatorHandle) -> None:
    with FakeControl() as control, RunningAgent(*cells(grid), controls=(control,), timing=TIMING):
        for cell in ("a1", "a2"):
            control.wait_for(lambda beat, cell=cell: beat.cell.cell_id == cell and ready(beat))  # type: ignore[misc]
        seen = len(control.beats)
        grid.inject("kill", cell="a1")
        control.wait_for(lambda beat: beat.cell.cell_id == "a1" and beat.evidence.reachable is False, after=seen)
        grid.inject("restart", cell="a1", params={"start_delay_s": 0.0})
        control.wait_for(lambda beat: beat.cell.cell_id == "a1" and ready(beat), after=len(control.beats))
        assert all(ready(beat.heartbeat) for beat in control.beats[seen:] if beat.heartbeat.cell.cell_id == "a2")


def test_exporter_faults_take_only_gpu_telemetry(grid: EmulatorHandle) -> None:
    with FakeControl() as control, RunningAgent(*cells(grid), controls=(control,), timing=TIMING):
        control.wait_for(lambda beat: ready(beat) and beat.telemetry.gpu and not beat.telemetry.flags)
        grid.inject("exporter_sentinels", site="east")
        control.wait_for(lambda beat: beat.telemetry.gpu is None or beat.telemetry.gpu.temperature_c is None)
        grid.clear()
        control.wait_for(lambda beat: beat.telemetry.gpu and beat.telemetry.gpu.temperature_c, after=len(control.beats))
        grid.inject("exporter_dead", site="east")
        beat = control.wait_for(lambda beat: "dcgm_fallback" in beat.telemetry.flags, after=len(control.beats))
        assert ready(beat.heartbeat)
        assert beat.heartbeat.telemetry.engine is not None
        control.wait_for(lambda beat: beat.telemetry.gpu is None, after=len(control.beats))
        grid.clear()
        control.wait_for(lambda beat: beat.telemetry.gpu and not beat.telemetry.flags, after=len(control.beats))


def test_fc_36_a_frozen_exporter_is_noticed_under_load_only(grid: EmulatorHandle) -> None:
    with FakeControl() as control, RunningAgent(*cells(grid), controls=(control,), timing=TIMING):
        with Load(grid.urls["a1"]):
            control.wait_for(lambda beat: beat.cell.cell_id == "a1" and beat.telemetry.gpu_interval_s, timeout_s=20)
            grid.inject("exporter_frozen", site="east")
            frozen = control.wait_for(
                lambda beat: "gpu_frozen" in beat.telemetry.flags, after=len(control.beats), timeout_s=30
            ).heartbeat
        grid.clear()
    assert frozen.cell.cell_id == "a1"
    assert frozen.telemetry.gpu is None
    assert ready(frozen)
    idle = [beat.heartbeat for beat in control.beats if beat.heartbeat.cell.cell_id == "a2"]
    assert not any("gpu_frozen" in beat.telemetry.flags for beat in idle)
