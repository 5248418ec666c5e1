"""A gateway process, a real Envoy and fake engines: what users see when cells, controls and gateways misbehave."""

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.engine import CHAT, FakeEngine, Reply, SeenRequest, json_reply, sse_reply
from tests.fakes.views import ViewControl, ready_cell
from tests.support.envoy import running_envoy
from tests.support.gateway import Answer, Load, Rig, gateway_rig
from tradewind.gateway.files import bootstrap_path, envoy_config
from tradewind.model.cell import CellState

TOO_LONG = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens",
        "type": "BadRequestError",
        "code": 400,
    }
}
LONG_PROMPT = "wind " * 7_200  # some 9,000 tokens
CELLS = ("a", "b", "c")


class Fleet:
    """Three engines behind one gateway and its Envoy."""

    def __init__(self, rig: Rig, control: ViewControl, engines: dict[str, FakeEngine]) -> None:
        self.rig = rig
        self.control = control
        self.engines = engines

    def served(self, cell: str, *, of: str = "/v1/chat/completions") -> list[SeenRequest]:
        """Clients' requests that an engine saw; probes left out."""
        return [seen for seen in self.engines[cell].requests(of) if "x-tw-probe" not in seen.headers]

    def total(self) -> int:
        return sum(len(self.served(cell)) for cell in CELLS)


@contextlib.contextmanager
def fleet(directory: Path, **settings: object) -> Iterator[Fleet]:
    with contextlib.ExitStack() as stack:
        engines = {cell: stack.enter_context(FakeEngine()) for cell in CELLS}
        control = stack.enter_context(ViewControl())
        rig = stack.enter_context(gateway_rig(directory, [control.address], **settings))  # type: ignore[arg-type]
        control.show(*(ready_cell(cell, engine.address) for cell, engine in engines.items()))
        rig.serving(*CELLS)
        yield Fleet(rig, control, engines)


def refuse_long(request: SeenRequest) -> Reply:
    if len(request.body) > 20_000:
        return json_reply(TOO_LONG, status=400)
    return json_reply(CHAT)


def slow_ok(request: SeenRequest) -> Reply:
    return Reply(body=json.dumps(CHAT).encode(), delay_s=0.1)


def mixed(count: int) -> list[str]:
    return [LONG_PROMPT if number % 2 else "hi" for number in range(count)]


def test_fc_01_a_cell_that_refuses_long_prompts_does_not_attract_them(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        grid.engines["a"].on("/v1/chat/completions", refuse_long)
        for cell in ("b", "c"):
            grid.engines[cell].on("/v1/chat/completions", slow_ok)
        grid.rig.ask_many(mixed(60), at_once=8)
        grid.rig.until(lambda: ("verdict.refusal", "a") in grid.rig.events())
        before = len([seen for seen in grid.served("a") if len(seen.body) > 20_000])
        answers = grid.rig.ask_many(mixed(100), at_once=8)
        leaked = len([seen for seen in grid.served("a") if len(seen.body) > 20_000]) - before
        assert leaked <= 1
        assert sum(answer.status != 200 for answer in answers) == leaked
        # The fault ends: probes of the refused shape bring the cell back, without a client's request at risk.
        grid.engines["a"].on("/v1/chat/completions", json_reply(CHAT))
        grid.rig.until(lambda: grid.rig.weights().get("a", 0) > 10, within_s=60)


def test_fc_02_errors_that_every_cell_gives_are_the_clients(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        for engine in grid.engines.values():
            engine.on("/v1/chat/completions", refuse_long)
        before = grid.rig.weights()
        answers = grid.rig.ask_many([LONG_PROMPT] * 50)
        assert {answer.status for answer in answers} == {400}
        assert {answer.body for answer in answers} == {json.dumps(TOO_LONG).encode()}
        good = grid.rig.ask_many(["hi"] * 50)
        assert {answer.status for answer in good} == {200}
        after = grid.rig.weights()
        assert after.keys() == before.keys()
        assert all(abs(after[cell] - before[cell]) < 0.05 * before[cell] + 1 for cell in CELLS)


def test_fc_06_blind_observers_change_nothing(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        before = grid.rig.weights()
        for engine in grid.engines.values():
            engine.on("/health", Reply(status=503))  # every probe fails while the engines serve
        grid.control.change("a", state=CellState.FAULTED)
        grid.control.change("b", state=CellState.FAULTED)
        grid.control.change("c", state=CellState.FAULTED)
        grid.rig.until(lambda: ("pool.held", None) in grid.rig.events())
        answers = grid.rig.ask_many(["hi"] * 30)
        assert {answer.status for answer in answers} == {200}
        assert grid.rig.weights().keys() == before.keys()
        assert grid.rig.status()["pools"][0]["held"] is True  # type: ignore[index]


def test_fc_08_a_cell_that_never_answers_does_not_hold_up_the_others(tmp_path: Path) -> None:
    limits = {"connect_timeout_s": 1.0, "stream_idle_timeout_s": 5.0, "retries": 0}
    with fleet(tmp_path, limits=limits) as grid:
        grid.engines["a"].on("/v1/chat/completions", Reply(hang=True))
        answers = grid.rig.ask_many(["hi"] * 60, at_once=60)
        hung = len(grid.served("a"))
        assert [answer.status for answer in answers].count(200) == 60 - hung
        assert [answer.status for answer in answers].count(504) == hung
        assert 0 < hung < 40
        grid.rig.until(lambda: grid.rig.weights().get("a", 1) == 1)


BROKEN = b'{"error":{"message":"EngineCore encountered an issue","code":500}}'
BROKEN_STREAM = (b"data: " + BROKEN + b"\n\n", b"data: [DONE]\n\n")
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize(
    ("broken", "made_good"),
    [
        (Reply(content_type="text/event-stream", chunks=BROKEN_STREAM), True),
        (Reply(content_type="text/event-stream", chunks=(TOKEN, *BROKEN_STREAM)), False),
        (Reply(status=500, body=BROKEN), False),
    ],
    ids=["error-event-first", "error-event-behind-a-token", "status-500"],
)
def test_fc_15_an_error_inside_a_200_stream_counts_as_the_cells_failure(
    tmp_path: Path, broken: Reply, made_good: bool
) -> None:
    with fleet(tmp_path) as grid:
        for cell in ("b", "c"):
            grid.engines[cell].on("/v1/chat/completions", sse_reply(["a"]))
        grid.engines["a"].on("/v1/chat/completions", broken)
        seen: list[Answer] = []

        def judged() -> bool:
            seen.extend(grid.rig.ask_many(["hi"] * 10))
            return grid.rig.weights().get("a", 1) == 1

        grid.rig.until(judged)
        passed_on = [answer for answer in seen if b"EngineCore" in answer.body]
        assert len(grid.served("a")) > 0
        assert len(passed_on) == (0 if made_good else len(grid.served("a")))
        if made_good:
            assert all(answer.status == 200 for answer in seen)
        elif broken.status == 200:
            assert all(answer.status == 200 and answer.body.endswith(b"[DONE]\n\n") for answer in passed_on)


def test_fc_40_controls_that_restart_empty_and_gateways_that_restart_without_control(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid, Load(grid.rig, per_s=30) as load:
        rig, control = grid.rig, grid.control
        rig.until(lambda: len(load.answers) > 20)
        control.kill()
        control.revive(empty=True)
        rig.until(lambda: control.streams == 1)
        assert sorted(rig.weights()) == list(CELLS)
        control.kill()
        rig.kill()
        rig.start()
        rig.until(lambda: rig.get_admin("/readyz") is not None)
        assert sorted(rig.weights()) == list(CELLS)
        control.revive(empty=True)
        control.show(*(ready_cell(cell, engine.address) for cell, engine in grid.engines.items()))
        seen = len(load.answers)
        rig.until(lambda: rig.status()["control_live"] and len(load.answers) > seen + 20)
        assert rig.envoy is not None
        assert set(rig.envoy.stats("cluster.*membership_healthy").values()) >= {3}
    assert load.failed == []


def test_an_envoy_that_restarts_while_control_is_dead_gets_its_configuration(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        grid.control.kill()
        rig.kill()
        assert rig.envoy is not None
        rig.envoy.process.kill()
        rig.envoy.process.wait()
        rig.start()
        directory = tmp_path / "second"
        directory.mkdir()
        with running_envoy(envoy_config(rig.config, rig.gateway), directory):
            rig.until(lambda: rig.ask().status == 200)
            assert {answer.status for answer in rig.ask_many(["hi"] * 20)} == {200}


def test_fc_40_control_is_dead_and_the_saved_view_broken_it_waits_and_says_so(tmp_path: Path) -> None:
    """`tradewind gateway` as an operator starts it: before, it gave up after half a minute, and named Envoy."""
    with FakeEngine() as engine, ViewControl() as control, gateway_rig(tmp_path, [control.address], envoy=False) as rig:
        control.show(ready_cell("a", engine.address))
        assert rig.stop() == 0
        control.kill()
        (Path(rig.config.state_dir) / "gateway-gw" / "view.json").write_bytes(b'{"cells": [')
        argv = [sys.executable, "-m", "tradewind.cli.main", "gateway", "-f", str(rig.grid_file), "--id", "gw"]
        with rig.log.open("wb") as out:
            started = subprocess.Popen(argv, stdout=out, stderr=out)
        try:
            rig.until(lambda: b"waits for its first view" in rig.log.read_bytes())
            assert control.address.encode() in rig.log.read_bytes()
            control.revive(empty=False)
            rig.until(lambda: b"serves on" in rig.log.read_bytes())
            rig.until(lambda: rig.ask().status == 200)
        finally:
            started.terminate()
            assert started.wait(30) == 0
        log = Path(rig.config.state_dir) / "logs" / "gateway-gw.log"
        assert "saved_view.unusable" in log.read_text()


def test_fc_40_the_state_folder_goes_and_an_envoy_that_restarts_is_served_all_the_same(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        shutil.rmtree(rig.config.state_dir)
        assert {answer.status for answer in rig.ask_many(["hi"] * 20)} == {200}
        rig.until(lambda: bootstrap_path(rig.config, rig.gateway.id).exists())
        assert rig.envoy is not None
        rig.envoy.process.kill()
        rig.envoy.process.wait()
        directory = tmp_path / "second"
        directory.mkdir()
        with running_envoy(envoy_config(rig.config, rig.gateway), directory):
            rig.until(lambda: rig.ask().status == 200)
            assert {answer.status for answer in rig.ask_many(["hi"] * 20)} == {200}
        assert [name for name, _ in rig.events()].count("socket.renewed") == 2


def test_fc_41_a_cut_agent_link_keeps_the_cell_and_both_cut_removes_it(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        grid.control.hush("a")
        grid.control.change("a", silent=True)
        rig.until(lambda: ("cell.blind", "a") in rig.events())
        before = grid.total(), len(grid.served("a"))
        answers = rig.ask_many(["hi"] * 90)
        assert {answer.status for answer in answers} == {200}
        share = (len(grid.served("a")) - before[1]) / (grid.total() - before[0])
        assert share >= 0.8 / 3
        grid.engines["a"].kill()
        rig.until(lambda: "a" not in rig.weights())
        grid.engines["a"].revive()
        rig.until(lambda: "a" in rig.weights(), within_s=60)


def test_a_killed_engine_leaves_the_set_by_the_gateways_own_evidence_and_costs_nobody_a_request(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        grid.control.kill()
        with Load(rig, per_s=30) as load:
            rig.until(lambda: len(load.answers) > 15)
            grid.engines["b"].kill()
            rig.until(lambda: "b" not in rig.weights())
            seen = len(load.answers)
            rig.until(lambda: len(load.answers) > seen + 15)
        assert load.failed == []
        assert ("path.unreachable", "b") in rig.events()


def test_fc_43_a_drained_cell_gets_nothing_new_and_finishes_its_streams(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        for engine in grid.engines.values():
            engine.on("/v1/chat/completions", sse_reply(["a"] * 20, gap_s=0.1))
        answers: list[Answer] = []
        threads = [threading.Thread(target=lambda: answers.append(rig.ask(stream=True))) for _ in range(12)]
        for thread in threads:
            thread.start()
        rig.until(lambda: grid.total() == 12)
        on_a = len(grid.served("a"))
        grid.control.change("a", state=CellState.DRAINING, draining=True)
        rig.serving("b", "c")
        for engine in grid.engines.values():
            engine.on("/v1/chat/completions", json_reply(CHAT))
        assert {answer.status for answer in rig.ask_many(["hi"] * 30)} == {200}
        assert len(grid.served("a")) == on_a > 0
        for thread in threads:
            thread.join()
        assert all(answer.whole and answer.body.endswith(b"[DONE]\n\n") for answer in answers)
        assert len(answers) == 12


def test_a_baseline_gets_equal_weights_and_no_weight_push(tmp_path: Path) -> None:
    with fleet(tmp_path, baseline="round-robin") as grid:
        grid.rig.ask_many(["hi"] * 30)
        assert [len(grid.served(cell)) for cell in CELLS] == [10, 10, 10]
        push = grid.rig.status()["push"]
        assert isinstance(push, dict)
        grid.control.change("a", state=CellState.FAULTED)
        grid.rig.serving("b", "c")


def test_fc_63_outcomes_reach_status_log_and_metrics_without_prompts_or_keys(tmp_path: Path) -> None:
    with fleet(tmp_path) as grid:
        rig = grid.rig
        assert {answer.status for answer in rig.ask_many(["CANARY-prompt"] * 10)} == {200}

        def process() -> dict[str, int]:
            found = rig.status()["process"]
            assert isinstance(found, dict)
            return found

        rig.until(lambda: process()["outcomes"] == 10)
        assert process()["outcomes_unattributed"] == 0
        summary = json.loads(rig.page("/v1/outcomes"))
        assert summary["statuses"] == {"200": 10}
        assert summary["ttft_p50_s"] > 0
        log = Path(rig.config.state_dir) / "gateway-gw" / "requests.ndjson"
        rig.until(lambda: log.exists() and log.read_bytes().count(b"\n") == 10)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert {line["cell"] for line in lines} <= set(CELLS)
        assert {line["status"] for line in lines} == {200}
        page = rig.page("/metrics")
        for text in (log.read_bytes(), page, rig.log.read_bytes(), rig.page("/v1/status")):
            assert b"CANARY" not in text
        assert b'tradewind_gateway_model_ttft_seconds_count{model="m"} 10.0' in page
