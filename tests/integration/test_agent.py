"""A live agent between fake engines and fake controls."""

import asyncio
import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Self

import msgspec
import pytest

from tests.fakes.control import FakeControl
from tests.fakes.engine import FakeEngine, Reply, SeenRequest, json_reply, models_reply, vllm_page
from tradewind.agent import cell as cell_module
from tradewind.agent.dry_run import dry_run
from tradewind.agent.main import run, serve
from tradewind.config.errors import ConfigError
from tradewind.config.schema import AgentConfig, CellConfig, ControlConfig, GridConfig
from tradewind.model.heartbeat import Heartbeat
from tradewind.telemetry.fetch import Fetcher
from tradewind.wire.convert import heartbeat_to_pb

DATA = Path(__file__).parents[1] / "golden" / "data"
DCGM_PAGE = (DATA / "dcgm" / "SYNTHETIC_dcgm_exporter_le_4.8.2.prom").read_bytes()

CELL = CellConfig(id="east-0", site="east", url="http://127.0.0.1:1", hardware="h100")
TIMING = AgentConfig(interval_s=0.1, scrape_s=0.1, liveness_s=0.1)


def cell_of(engine: FakeEngine, **changes: object) -> CellConfig:
    return msgspec.structs.replace(CELL, url=engine.url, **changes)


class RunningAgent:
    """Runs one agent in a thread."""

    def __init__(
        self,
        *cells: CellConfig,
        controls: tuple[FakeControl, ...],
        timing: AgentConfig = TIMING,
        environment: dict[str, str] | None = None,
    ) -> None:
        listed = [ControlConfig(id=control.control_id, listen=control.address) for control in controls]
        self.config = GridConfig(cells=list(cells), controls=listed, agents=[timing])
        self._environment = environment or {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._task: asyncio.Task[int] | None = None

    def _run(self) -> None:
        async def main() -> None:
            self._task = asyncio.ensure_future(serve(self.config, self.config.agents[0], environment=self._environment))
            await asyncio.wait([self._task])

        self._loop.run_until_complete(main())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        def stop() -> None:
            assert self._task is not None
            self._task.cancel()

        self._loop.call_soon_threadsafe(stop)
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert self._task is not None
        assert self._task.cancelled(), self._task


def ready(beat: Heartbeat) -> bool:
    evidence = beat.evidence
    return bool(evidence.reachable and evidence.model_listed and evidence.warmed_up)


def test_a_heartbeat_says_what_the_engine_is_and_does() -> None:
    with FakeEngine(models=("m", "m-alias")) as engine, FakeControl() as control:
        engine.metrics((DATA / "vllm_versions" / "vllm_0.32.0_metrics_under_load.txt").read_bytes())
        with RunningAgent(cell_of(engine, labels={"zone": "a"}), controls=(control,)):
            beat = control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine).heartbeat
    cell = beat.cell
    assert (cell.cell_id, cell.site, cell.address) == ("east-0", "east", engine.address)
    assert cell.labels == (("zone", "a"),)
    assert cell.capabilities.models == ("m", "m-alias")
    assert cell.capabilities.max_model_len == 8192
    assert (cell.capabilities.engine, cell.capabilities.engine_version) == ("vllm", "0.32.0")
    assert (cell.capabilities.kv_capacity_tokens, cell.capabilities.block_size_tokens) == (16384, 32)
    assert cell.capabilities.hardware == "h100"
    assert beat.telemetry.engine is not None
    assert beat.telemetry.engine.queue_requests == 8.0
    assert beat.telemetry.engine_age_s is not None


def test_beats_come_at_their_pace_with_rising_sequence_and_one_incarnation() -> None:
    with FakeEngine() as engine, FakeControl() as control, RunningAgent(cell_of(engine), controls=(control,)):
        control.wait_for(lambda beat: beat.sequence >= 8)
        beats = [beat.heartbeat for beat in control.beats]
    sequences = [beat.sequence for beat in beats]
    assert sequences == sorted(set(sequences))
    assert len({beat.incarnation for beat in beats}) == 1


def test_max_model_len_can_be_kept_back() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        cell = cell_of(engine, advertise_max_model_len=False)
        with RunningAgent(cell, controls=(control,)):
            beat = control.wait_for(ready).heartbeat
    assert beat.cell.capabilities.max_model_len is None


# FC-09: coming up


def test_fc_09_ready_only_after_health_models_and_a_warm_up_request() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/health", Reply(status=503))
        engine.on("/v1/models", json_reply({"object": "list", "data": []}))
        engine.on("/v1/completions", Reply(hang=True))
        engine.kill()
        with RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(lambda beat: beat.evidence.reason == "connection refused")
            engine.revive()
            control.wait_for(lambda beat: beat.evidence.reason == "/health answers 503")
            engine.on("/health", Reply())
            beat = control.wait_for(lambda beat: beat.evidence.model_listed is False).heartbeat
            assert beat.evidence.reachable is True
            assert beat.evidence.reason == "/v1/models lists no model"
            engine.on("/v1/models", models_reply(["m"]))
            control.wait_for(lambda beat: beat.evidence.model_listed and not beat.evidence.warmed_up)
            assert not any(ready(beat.heartbeat) for beat in control.beats)
            engine.on("/v1/completions", json_reply({"choices": []}))
            engine.drop_connections()  # the hanging warm-up is asked again
            control.wait_for(ready)
        warm_ups = engine.requests("/v1/completions")
        assert warm_ups[-1].json() == {"model": "m", "prompt": "warm up", "max_tokens": 1}


def test_a_chat_only_engine_is_warmed_up_by_a_chat() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/v1/completions", json_reply({"detail": "Not Found"}, status=404))
        with RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(ready)
        assert engine.requests("/v1/chat/completions")[0].json()["max_tokens"] == 1


def test_an_engine_that_has_served_needs_no_warm_up_request() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.metrics(vllm_page() + 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5\n')
        with RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(ready)
        assert engine.requests("/v1/completions") == []


@pytest.mark.parametrize(
    "reply",
    [Reply(reset=True), Reply(hang=True), Reply(raw=b"nonsense\r\n\r\n", close=True), Reply(body=b"x" * 5_000_000)],
)
def test_an_engine_that_cannot_tell_its_version_serves_all_the_same(reply: Reply) -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/version", reply)
        with RunningAgent(cell_of(engine), controls=(control,)):
            beat = control.wait_for(ready).heartbeat
    assert beat.cell.capabilities.engine_version is None


def test_a_failing_warm_up_is_told_and_tried_again() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/v1/completions", [json_reply({}, status=500), json_reply({}, status=503), json_reply({})])
        with RunningAgent(cell_of(engine), controls=(control,)):
            beat = control.wait_for(lambda beat: beat.evidence.warmed_up is False).heartbeat
            assert beat.evidence.reason == "the warm-up request was answered 500"
            control.wait_for(ready)


# death and life


def test_a_killed_engine_is_told_at_once_and_warmed_up_again_when_it_is_back() -> None:
    slow = AgentConfig(interval_s=3600.0, scrape_s=0.1, liveness_s=3600.0)  # only events may tell
    with FakeEngine() as engine, FakeControl() as control:
        with RunningAgent(cell_of(engine), controls=(control,), timing=slow):
            control.wait_for(ready)
            seen = len(control.beats)
            engine.kill()
            dead = control.wait_for(lambda beat: beat.evidence.reachable is False, after=seen).heartbeat
            assert dead.evidence.reason == "connection refused"
            assert dead.telemetry.engine is None
            assert dead.cell.capabilities.models == ("m",)
            seen = len(control.beats)
            engine.revive()
            control.wait_for(ready, after=seen)
        assert len(engine.requests("/v1/completions")) == 2


def test_a_restart_between_two_looks_is_seen_by_the_start_time() -> None:
    def page(start_s: float) -> str:
        return vllm_page() + f"process_start_time_seconds {start_s}\n"

    with FakeEngine() as engine, FakeControl() as control:
        engine.metrics(page(100.0))
        with RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine)
            seen = len(control.beats)
            engine.on("/v1/completions", Reply(body=b"{}", delay_s=0.3))
            engine.metrics(page(200.0))
            control.wait_for(lambda beat: beat.evidence.warmed_up is None, after=seen)
            control.wait_for(ready, after=seen + 1)
        assert len(engine.requests("/v1/completions")) == 2


def test_an_engines_control_group_is_looked_for_once_its_page_tells_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def find(_host: str, _port: int, *, start_time_s: float | None) -> str:
        asked.append(start_time_s)
        return "the engine has no CPU limit"

    monkeypatch.setattr(cell_module, "find_throttle", find)
    page = Reply(body=(vllm_page() + "process_start_time_seconds 100.0\n").encode())
    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/metrics", [Reply(status=500)] * 8 + [page])
        with RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine is None)
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine is not None)
            seen = len(engine.requests("/metrics"))
            control.wait_for(lambda _: len(engine.requests("/metrics")) > seen + 2)
    assert asked == [100.0]


def test_fc_04_a_slow_health_answer_under_load_is_not_death() -> None:
    with FakeEngine() as engine, FakeControl() as control, RunningAgent(cell_of(engine), controls=(control,)):
        control.wait_for(ready)
        engine.on("/health", Reply(delay_s=30.0))
        asked = len(engine.requests("/health"))
        deadline_s = time.monotonic() + 10
        while len(engine.requests("/health")) < asked + 2 and time.monotonic() < deadline_s:
            time.sleep(0.02)
        seen = len(control.beats)
        control.wait_for(ready, after=seen)
        assert all(ready(beat.heartbeat) for beat in control.beats[seen:])


# FC-33, FC-36: telemetry that fails


@pytest.mark.parametrize(
    "reply", [Reply(status=500), Reply(body=b"<html>"), Reply(hang=True), Reply(reset=True), Reply(body=b"")]
)
def test_fc_33_a_broken_page_takes_only_its_own_cells_telemetry(reply: Reply) -> None:
    with FakeEngine() as good, FakeEngine() as bad, FakeControl() as control:
        good.metrics(vllm_page(waiting=2))
        bad.on("/metrics", reply)
        cells = (cell_of(good), cell_of(bad, id="east-1"))
        with RunningAgent(*cells, controls=(control,)):
            broken = control.wait_for(
                lambda beat: (
                    ready(beat) and beat.cell.cell_id == "east-1" and "engine_metrics_stale" in beat.telemetry.flags
                )
            ).heartbeat
            assert broken.telemetry.engine is None
            assert broken.telemetry.unknown[0].signal == "engine"
            seen = len(control.beats)
            other = control.wait_for(
                lambda beat: beat.cell.cell_id == "east-0" and beat.telemetry.engine is not None, after=seen
            ).heartbeat
            assert other.telemetry.engine is not None
            assert other.telemetry.engine.queue_requests == 2.0
            assert other.telemetry.flags == ()


def test_fc_05_a_page_that_drops_every_third_connection_changes_nothing() -> None:
    asked = [0]

    def flaky(_request: SeenRequest) -> Reply:
        asked[0] += 1
        return Reply(reset=True) if asked[0] % 3 == 0 else Reply(body=vllm_page(waiting=2).encode())

    with FakeEngine() as engine, FakeControl() as control:
        engine.on("/metrics", flaky)
        timing = replace_timing(scrape_s=0.05)
        with RunningAgent(cell_of(engine), controls=(control,), timing=timing):
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine)
            seen = len(control.beats)
            control.wait_for(lambda _: asked[0] >= 60, timeout_s=30)
            beats = [beat.heartbeat for beat in control.beats[seen:]]
    assert all(ready(beat) and beat.telemetry.engine and not beat.telemetry.flags for beat in beats)


def dcgm_cells(engine: FakeEngine, exporter: FakeEngine) -> tuple[CellConfig, CellConfig]:
    exporter.on("/metrics", Reply(body=DCGM_PAGE, content_type="text/plain"))
    gpus = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001")
    url = f"{exporter.url}/metrics"
    return (
        cell_of(engine, dcgm_url=url, gpu_uuids=[gpus[0]]),
        cell_of(engine, id="east-1", dcgm_url=url, gpu_uuids=[gpus[1]]),
    )


def test_cells_share_one_scrape_of_their_exporter() -> None:
    with FakeEngine() as engine, FakeEngine() as exporter, FakeControl() as control:
        cells = dcgm_cells(engine, exporter)
        with RunningAgent(*cells, controls=(control,), timing=replace_timing(scrape_s=3600.0)):
            for cell in cells:
                beat = control.wait_for(
                    lambda beat, cell=cell: beat.cell.cell_id == cell.id and beat.telemetry.gpu  # type: ignore[misc]
                ).heartbeat
                assert beat.telemetry.gpu is not None
                assert (beat.telemetry.gpu.gpus, beat.telemetry.gpu.util_ratio) == (1, 0.87)
            assert len(exporter.requests("/metrics")) == 1


def replace_timing(**changes: float) -> AgentConfig:
    return msgspec.structs.replace(TIMING, **changes)


def test_fc_36_the_death_of_an_exporter_is_an_event_and_its_value_is_held() -> None:
    rare = AgentConfig(interval_s=3600.0, scrape_s=1.0, liveness_s=0.25)
    with FakeEngine() as engine, FakeEngine() as exporter, FakeControl() as control:
        cell, _ = dcgm_cells(engine, exporter)
        with RunningAgent(cell, controls=(control,), timing=rare):
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.gpu)
            exporter.kill()
            beat = control.wait_for(lambda beat: "dcgm_fallback" in beat.telemetry.flags).heartbeat
            assert ready(beat)
            assert beat.telemetry.gpu is not None, "one miss does not make it unknown"


def test_without_a_driver_nvml_says_why() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        cell = cell_of(engine, dcgm_url="nvml:", gpu_uuids=["GPU-none"])
        with RunningAgent(cell, controls=(control,)):
            beat = control.wait_for(lambda beat: "dcgm_fallback" in beat.telemetry.flags).heartbeat
    assert beat.telemetry.gpu is None
    reasons = {entry.signal: entry.reason for entry in beat.telemetry.unknown}
    assert "NVML" in reasons["gpu"] or "GPU" in reasons["gpu"] or "nvml" in reasons["gpu"]


# controls


def test_every_control_hears_and_a_dead_one_delays_nobody() -> None:
    with FakeEngine() as engine, FakeControl("a") as first, FakeControl("b") as second:
        agent = RunningAgent(cell_of(engine), controls=(first, second))
        with agent:
            first.wait_for(ready)
            second.wait_for(ready)
            first.stop()
            seen = len(second.beats)
            second.wait_for(lambda beat: True, after=seen + 5)
            silent = len(first.beats)
            first.start()
            again = first.wait_for(ready, after=silent)
            assert again.heartbeat.sequence > 1


def test_fc_41_an_agent_without_a_control_goes_on_and_converges_when_it_is_back() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        with RunningAgent(cell_of(engine), controls=(control,)):
            first = control.wait_for(ready).heartbeat
            control.stop()
            scraped = len(engine.requests("/metrics"))
            deadline_s = time.monotonic() + 10
            while len(engine.requests("/metrics")) < scraped + 3 and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert len(engine.requests("/metrics")) >= scraped + 3
            seen = len(control.beats)
            control.start()
            back = control.wait_for(ready, after=seen).heartbeat
            assert back.incarnation == first.incarnation
            assert back.sequence > first.sequence
        assert len(engine.requests("/v1/completions")) == 1, "losing control restarts nothing"


def test_a_refused_agent_says_so_and_keeps_trying_slowly(caplog: pytest.LogCaptureFixture) -> None:
    with FakeEngine() as engine, FakeControl() as control:
        control.refuse("east-0", "owned by agent-2")
        with caplog.at_level(logging.INFO), RunningAgent(cell_of(engine), controls=(control,)):
            control.wait_for(lambda beat: True)
            deadline_s = time.monotonic() + 10
            while "agent.refused" not in caplog.text and time.monotonic() < deadline_s:
                time.sleep(0.02)
            assert 'reason="owned by agent-2"' in caplog.text
            seen = len(control.beats)
            time.sleep(0.5)  # five beats' time
            assert len(control.beats) <= seen + 1


# FC-63


def test_fc_63_the_engines_key_opens_it_and_shows_nowhere_else(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    key = "CANARY-8f3"

    def guarded(reply: Reply) -> object:
        def answer(request: SeenRequest) -> Reply:
            allowed = request.headers.get("authorization") == f"Bearer {key}"
            return reply if allowed else json_reply({"error": f"Unauthorized {key}"}, status=401)

        return answer

    with FakeEngine() as engine, FakeEngine() as exporter, FakeControl() as control:
        engine.on("/v1/models", guarded(models_reply(["m"])))  # type: ignore[arg-type]
        engine.on("/v1/completions", guarded(json_reply({})))  # type: ignore[arg-type]
        exporter.on("/metrics", Reply(body=DCGM_PAGE))
        locked = cell_of(engine, id="east-1", dcgm_url=f"{exporter.url}/metrics")
        wrong = cell_of(engine, id="east-2", api_key_env="WRONG_KEY")
        opened = cell_of(engine, api_key_env="ENGINE_KEY", dcgm_url=f"{exporter.url}/metrics")
        environment = {"ENGINE_KEY": key, "WRONG_KEY": "CANARY-wrong"}
        with (
            caplog.at_level(logging.DEBUG),
            RunningAgent(opened, locked, wrong, controls=(control,), environment=environment),
        ):
            control.wait_for(lambda beat: beat.cell.cell_id == "east-0" and ready(beat))
            refused = control.wait_for(
                lambda beat: beat.cell.cell_id == "east-1" and beat.evidence.model_listed is False
            ).heartbeat
            assert "401" in refused.evidence.reason
            assert "set api_key_env" in refused.evidence.reason
            assert refused.evidence.reachable is True, "a locked engine is not a dead one"
            other = control.wait_for(
                lambda beat: beat.cell.cell_id == "east-2" and beat.evidence.model_listed is False
            ).heartbeat
            assert "$WRONG_KEY is not accepted" in other.evidence.reason
        payloads = b"".join(heartbeat_to_pb(beat.heartbeat).SerializeToString() for beat in control.beats)
        assert b"CANARY" not in payloads
        assert "CANARY" not in caplog.text
        assert "CANARY" not in "".join(capfd.readouterr())
        for request in (*engine.requests("/metrics"), *engine.requests("/health"), *exporter.requests()):
            assert "authorization" not in request.headers


# its own metrics


def test_the_agents_metrics_name_units_and_hold_no_secrets(free_port: int) -> None:
    timing = replace_metrics(f"127.0.0.1:{free_port}")
    with FakeEngine() as engine, FakeControl() as control:
        agent = RunningAgent(cell_of(engine), controls=(control,), timing=timing)
        with agent:
            control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine)

            async def read() -> str:
                fetcher = Fetcher(f"http://127.0.0.1:{free_port}")
                page = await fetcher.page("/metrics")
                fetcher.close()
                return page.body.decode()

            text = asyncio.run(read())
    assert 'tradewind_agent_scrapes_total{cell="east-0",result="ok",target="engine"}' in text
    assert 'tradewind_agent_control_connected_ratio{control="control"} 1.0' in text
    assert 'tradewind_agent_engine_reachable_ratio{cell="east-0"} 1.0' in text
    assert 'tradewind_agent_telemetry_age_seconds{cell="east-0",target="engine"}' in text


def replace_metrics(address: str) -> AgentConfig:
    return msgspec.structs.replace(TIMING, metrics=address)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_agent_that_the_grid_does_not_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="no agent 'nobody'"):
        run(GridConfig(), "nobody")


# dry run


def test_the_dry_run_shows_every_signal_its_source_and_every_reason() -> None:
    with FakeEngine() as engine:
        engine.metrics((DATA / "vllm_versions" / "vllm_0.32.0_metrics_under_load.txt").read_bytes())
        engine.on("/dcgm", Reply(body=DCGM_PAGE))
        report = dry_run(engine.url, dcgm_url=f"{engine.url}/dcgm")
        assert engine.requests("/v1/completions") == [], "it only looks"
    rows = {(row.group, row.signal): row for row in report.rows}
    assert report.reachable
    assert rows["engine", "queue_requests"].value == "8"
    assert rows["engine", "queue_requests"].source == "vllm:num_requests_waiting"
    assert rows["engine", "ttft_s"].value == "1238 samples, mean 0.09994"
    assert rows["gpu", "temperature_c"].unit == "C"
    assert rows["gpu", "sm_active_ratio"].value == ""
    assert rows["gpu", "sm_active_ratio"].reason == "DCGM_FI_PROF_SM_ACTIVE is not exported"
    assert all(row.reason for row in report.unknown)
    assert json.loads(json.dumps(report.as_dict()))["reachable"] is True
    assert report.as_table().row_count == len(report.rows)


def test_the_dry_run_of_nothing_says_why_for_everything() -> None:
    with FakeEngine() as engine:
        engine.kill()
        report = dry_run(engine.url)
    assert not report.reachable
    assert len(report.unknown) == len(report.rows)
    assert all("refused" in row.reason or "GPU telemetry" in row.reason for row in report.rows if row.group != "host")


def test_the_dry_run_tells_what_is_wrong_with_a_value() -> None:
    with FakeEngine() as engine:
        engine.metrics(vllm_page(kv=37.5))
        report = dry_run(engine.url)
    row = next(row for row in report.rows if row.signal == "kv_fill_ratio")
    assert row.reason == "vllm:kv_cache_usage_perc is 37.5, outside 0..1"


def test_one_heartbeat_is_small() -> None:
    with FakeEngine() as engine, FakeControl() as control:
        engine.metrics((DATA / "vllm_versions" / "vllm_0.32.0_metrics_under_load.txt").read_bytes())
        with RunningAgent(cell_of(engine), controls=(control,)):
            beat = control.wait_for(lambda beat: ready(beat) and beat.telemetry.engine)
    assert beat.size < 2048
