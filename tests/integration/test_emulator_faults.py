"""Faults on demand: what each one looks like from outside, and that it ends when it is cleared."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_emulator import LONG_STREAM, SHORT, metric, running, silent, take_head, wait_for
from tests.support.emulator import EmulatorHandle, EngineSpec, emulator, get_json, post_json
from tests.support.rawhttp import ask, connect, receive, send


def refused(url: str) -> bool:
    try:
        connect(url).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.fixture(scope="module")
def shared() -> Iterator[EmulatorHandle]:
    with emulator(EngineSpec(cell="a1", model="tiny"), EngineSpec(cell="b1", site="west", model="tiny")) as handle:
        yield handle


@pytest.fixture
def grid(shared: EmulatorHandle) -> Iterator[EmulatorHandle]:
    yield shared
    shared.clear()
    wait_for(lambda: shared.pid("a1") is not None and shared.pid("b1") is not None)
    for url in shared.urls.values():
        wait_for(lambda url=url: not refused(url) and ask(url, "GET", "/health").status == 200)  # type: ignore[misc]


def dcgm(handle: EmulatorHandle, site: str, name: str) -> float:
    page = ask(handle.dcgm_urls[site], "GET", "/metrics").body.decode()
    return next(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{"))


def test_kill_is_a_real_sigkill_of_one_engine(grid: EmulatorHandle) -> None:
    pid, other = grid.pid("a1"), grid.pid("b1")
    with connect(grid.urls["a1"]) as connection:
        send(connection, "POST", "/v1/completions", LONG_STREAM)
        wait_for(lambda: metric(grid, "vllm:generation_tokens_total{") > 3)
        grid.inject("kill", cell="a1")
        with contextlib.suppress(ConnectionResetError):
            assert not receive(connection).complete
    wait_for(lambda: refused(grid.urls["a1"]), within_s=2)
    assert grid.pid("a1") is None
    assert grid.pid("b1") == other
    exits = [entry for entry in grid.log() if entry["event"] == "exited" and entry["target"] == "engine:a1"]
    assert exits[-1]["detail"] == f"pid {pid}, status -9"
    grid.clear(cell="a1")
    wait_for(lambda: not refused(grid.urls["a1"]))
    assert metric(grid, "vllm:generation_tokens_total{") == 0


def test_a_fault_ends_by_itself(grid: EmulatorHandle) -> None:
    grid.inject("kill", cell="a1", for_s=0.3)
    wait_for(lambda: refused(grid.urls["a1"]), within_s=2)
    wait_for(lambda: not refused(grid.urls["a1"]))
    assert [entry["fault"] for entry in grid.log() if entry["event"] == "cleared"][-1] == "kill"


def test_hang_is_green_and_makes_no_progress(grid: EmulatorHandle) -> None:
    with connect(grid.urls["a1"]) as busy:
        send(busy, "POST", "/v1/completions", LONG_STREAM)
        wait_for(lambda: running(grid) == 1)
        grid.inject("hang", cell="a1")
        with connect(grid.urls["a1"]) as connection:
            send(connection, "POST", "/v1/completions", {**SHORT, "stream": True})
            assert take_head(connection).startswith(b"HTTP/1.1 200")
            assert silent(connection, 0.3)
            tokens = metric(grid, "vllm:generation_tokens_total{")
            assert ask(grid.urls["a1"], "GET", "/health").status == 200
            assert ask(grid.urls["a1"], "GET", "/v1/models").status == 200
            busy.close()
            assert silent(connection, 0.1)
            assert running(grid) == 1, "a hung core does not even report that its client left"
            assert metric(grid, "vllm:generation_tokens_total{") == tokens
            grid.clear()
            assert connection.recv(5)
    wait_for(lambda: running(grid) == 0)


def test_slow_multiplies_the_chosen_terms(grid: EmulatorHandle) -> None:
    def mean_itl_s() -> float:
        before = metric(grid, "vllm:inter_token_latency_seconds_sum{")
        count = metric(grid, "vllm:inter_token_latency_seconds_count{")
        ask(grid.urls["a1"], "POST", "/v1/completions", {**SHORT, "max_tokens": 11})
        tokens = metric(grid, "vllm:inter_token_latency_seconds_count{") - count
        assert tokens == 10
        return (metric(grid, "vllm:inter_token_latency_seconds_sum{") - before) / tokens

    healthy_s = mean_itl_s()
    grid.inject("slow", cell="a1", params={"factor": 20, "terms": ["w", "a0"]})
    assert mean_itl_s() > 5 * healthy_s
    grid.clear()
    grid.inject("slow", cell="a1", params={"factor": 20, "terms": ["b", "e"]})
    assert mean_itl_s() < 5 * healthy_s, "prefill terms do not slow decodes"


@pytest.mark.parametrize("advertise", [True, False])
def test_a_smaller_context_told_or_hidden(grid: EmulatorHandle, *, advertise: bool) -> None:
    grid.inject("max_model_len", cell="a1", params={"tokens": 1024, "advertise": advertise})
    long = {"model": "tiny", "prompt": list(range(2000)), "max_tokens": 1}
    answer = ask(grid.urls["a1"], "POST", "/v1/completions", long)
    assert answer.status == 400
    assert b"maximum context length is 1024 tokens" in answer.body
    assert ask(grid.urls["b1"], "POST", "/v1/completions", long).status == 200
    told = ask(grid.urls["a1"], "GET", "/v1/models").json()["data"][0]["max_model_len"]  # type: ignore[index]
    assert told == (1024 if advertise else 32_768)


def test_a_share_of_requests_is_refused_evenly(grid: EmulatorHandle) -> None:
    grid.inject("refuse", cell="a1", params={"share": 0.25, "status": 400, "min_prompt_tokens": 10})
    long = {"model": "tiny", "prompt": "x" * 100, "max_tokens": 1}
    statuses = [ask(grid.urls["a1"], "POST", "/v1/completions", long).status for _ in range(20)]
    assert statuses.count(400) == 5
    assert statuses[3::4] == [400] * 5
    assert all(ask(grid.urls["a1"], "POST", "/v1/completions", SHORT).status == 200 for _ in range(8))


@pytest.mark.parametrize(
    ("mode", "status", "start"),
    [("500", 500, b"Internal"), ("html", 200, b"<html>"), ("empty", 200, b""), ("truncated", 200, b"# HELP")],
)
def test_broken_metrics(grid: EmulatorHandle, mode: str, status: int, start: bytes) -> None:
    whole = ask(grid.urls["a1"], "GET", "/metrics")
    grid.inject("metrics_broken", cell="a1", params={"mode": mode})
    answer = ask(grid.urls["a1"], "GET", "/metrics")
    assert answer.status == status
    assert answer.body.startswith(start)
    assert len(answer.body) < len(whole.body)
    assert ask(grid.urls["a1"], "POST", "/v1/completions", SHORT).status == 200


def test_slow_and_frozen_metrics(grid: EmulatorHandle) -> None:
    grid.inject("metrics_broken", cell="a1", params={"mode": "frozen"})
    page = ask(grid.urls["a1"], "GET", "/metrics").body
    ask(grid.urls["a1"], "POST", "/v1/completions", SHORT)
    assert ask(grid.urls["a1"], "GET", "/metrics").body == page
    grid.clear()
    grid.inject("metrics_broken", cell="a1", params={"mode": "slow", "delay_s": 0.4})
    start_s = time.monotonic()
    assert ask(grid.urls["a1"], "GET", "/metrics").status == 200
    assert time.monotonic() - start_s >= 0.39


def test_cold_start_refuses_then_is_not_healthy_then_serves(grid: EmulatorHandle) -> None:
    grid.inject("cold_start", cell="a1", params={"start_delay_s": 1.0})
    seen: list[int] = []

    def look() -> bool:
        try:
            status = ask(grid.urls["a1"], "GET", "/health").status
        except (ConnectionRefusedError, ConnectionResetError, IndexError):
            status = 0
        if not seen or seen[-1] != status:
            seen.append(status)
        return len(seen) > 1 and status == 200

    wait_for(look)
    assert seen[-3:] == [0, 503, 200]
    ask(grid.urls["a1"], "POST", "/v1/completions", SHORT)
    assert metric(grid, "vllm:time_to_first_token_seconds_sum{") > 0.4, "the first request is slow"


def test_restart_makes_a_new_process(grid: EmulatorHandle) -> None:
    pid = grid.pid("a1")
    start = metric(grid, "process_start_time_seconds")
    grid.inject("restart", cell="a1")
    wait_for(lambda: grid.pid("a1") not in (pid, None))
    wait_for(lambda: not refused(grid.urls["a1"]))
    assert metric(grid, "process_start_time_seconds") > start


def test_a_dead_exporter_harms_no_request(grid: EmulatorHandle) -> None:
    grid.inject("exporter_dead", site="east")
    wait_for(lambda: refused(grid.dcgm_urls["east"]), within_s=2)
    assert ask(grid.urls["a1"], "POST", "/v1/completions", SHORT).status == 200
    assert not refused(grid.dcgm_urls["west"])
    grid.clear(site="east")
    wait_for(lambda: not refused(grid.dcgm_urls["east"]))


def test_one_gpu_can_vanish_from_the_page(grid: EmulatorHandle) -> None:
    assert b"GPU-" in ask(grid.dcgm_urls["west"], "GET", "/metrics").body
    grid.inject("exporter_dead", cell="b1")
    wait_for(lambda: b"GPU-" not in ask(grid.dcgm_urls["west"], "GET", "/metrics").body)


def test_frozen_and_sentinel_pages(grid: EmulatorHandle) -> None:
    grid.inject("exporter_frozen", site="east")
    page = ask(grid.dcgm_urls["east"], "GET", "/metrics").body
    energy = dcgm(grid, "east", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    wait_for(lambda: dcgm(grid, "west", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") > 0)
    grid.inject("exporter_sentinels", site="west")
    wait_for(lambda: dcgm(grid, "west", "DCGM_FI_DEV_GPU_TEMP") > 9.2e18)
    assert ask(grid.dcgm_urls["east"], "GET", "/metrics").body == page
    grid.clear()
    wait_for(lambda: dcgm(grid, "east", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") > energy)


def test_a_cooling_failure_shows_on_the_exporter_and_slows_prefill(grid: EmulatorHandle) -> None:
    grid.inject("thermal", cell="a1", params={"heat_c": 80, "tau_s": 0.2})
    wait_for(lambda: int(dcgm(grid, "east", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")) & 0x20 != 0)
    wait_for(lambda: dcgm(grid, "east", "DCGM_FI_DEV_SM_CLOCK") < 1000)
    assert dcgm(grid, "east", "DCGM_FI_DEV_GPU_TEMP") > 90
    assert dcgm(grid, "west", "DCGM_FI_DEV_SM_CLOCK") > 2000


def test_pcie_contention_shows_as_traffic(grid: EmulatorHandle) -> None:
    grid.inject("pcie", cell="a1", params={"ramp_s": 0.2})
    wait_for(lambda: dcgm(grid, "east", "DCGM_FI_PROF_PCIE_TX_BYTES") > 1e10)


def test_load_shows_on_the_exporter(grid: EmulatorHandle) -> None:
    with connect(grid.urls["a1"]) as connection:
        send(connection, "POST", "/v1/completions", LONG_STREAM)
        wait_for(lambda: dcgm(grid, "east", "DCGM_FI_DEV_GPU_UTIL") > 80)
        assert dcgm(grid, "east", "DCGM_FI_PROF_DRAM_ACTIVE") > 0.5
        assert dcgm(grid, "west", "DCGM_FI_DEV_GPU_UTIL") == 0
    wait_for(lambda: dcgm(grid, "east", "DCGM_FI_DEV_GPU_UTIL") == 0)


def test_a_dead_engine_frees_its_memory(grid: EmulatorHandle) -> None:
    assert dcgm(grid, "east", "DCGM_FI_DEV_FB_USED") > 80_000
    grid.inject("kill", cell="a1")
    wait_for(lambda: dcgm(grid, "east", "DCGM_FI_DEV_FB_USED") == 0)


def test_the_4_9_names() -> None:
    with emulator(EngineSpec(model="tiny"), dcgm_names="new") as handle:
        wait_for(lambda: dcgm(handle, "east", "DCGM_FI_DEV_SM_CLOCK_HERTZ") > 2e9)
        assert 0 <= dcgm(handle, "east", "DCGM_FI_DEV_GPU_UTIL_RATIO") <= 1
        wait_for(lambda: dcgm(handle, "east", "DCGM_FI_DEV_FB_USED_BYTES") > 8e10)


def test_state_lists_engines_and_what_is_wrong(grid: EmulatorHandle) -> None:
    fault_id = grid.inject("slow", cell="a1", params={"factor": 2, "terms": ["b"]}, for_s=60)
    engines = grid.state()["engines"]
    assert isinstance(engines, list)
    first = engines[0]
    assert (first["cell"], first["site"], first["address"]) == ("a1", "east", grid.urls["a1"].removeprefix("http://"))
    assert first["faults"][0]["fault"] == "slow"
    assert first["faults"][0]["params"] == {"factor": 2.0, "terms": ["b"]}
    assert engines[1]["faults"] == []
    assert ask(grid.api_url, "DELETE", f"/faults/{fault_id}").status == 200
    assert ask(grid.api_url, "DELETE", f"/faults/{fault_id}").status == 404


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "body: "),
        ({"fault": "explode", "cell": "a1"}, "write one of cold_start"),
        ({"fault": "slow", "cell": "a1"}, "factor"),
        ({"fault": "slow", "cell": "a1", "params": {"factor": 2, "terms": ["q"]}}, "slow.params"),
        ({"fault": "hang", "cell": "zz"}, "write one of a1, b1"),
        ({"fault": "hang"}, "exactly one target, cell"),
        ({"fault": "hang", "cell": "a1", "site": "east"}, "exactly one target"),
        ({"fault": "partition", "path": ["east", "mars"]}, "'mars' is not a site"),
        ({"fault": "hang", "cell": "a1", "params": {"x": 1}}, "unknown field"),
        ({"fault": "hang", "cell": "a1", "for_s": -1}, "for_s"),
        ({"fault": "exporter_frozen", "site": "north"}, "has no exporter"),
    ],
)
def test_errors_say_what_to_write(grid: EmulatorHandle, body: object, says: str) -> None:
    answer = ask(grid.api_url, "POST", "/faults", body)
    assert answer.status == 400
    assert says in str(answer.json()["error"])


def test_a_scenario_runs_from_its_start(grid: EmulatorHandle) -> None:
    events = [
        {"at_s": 0.3, "fault": "clear", "cell": "a1"},
        {"at_s": 0.0, "fault": "hang", "cell": "a1"},
        {"at_s": 0.1, "fault": "slow", "cell": "b1", "params": {"factor": 2}, "for_s": 0.1},
    ]
    assert post_json(grid.api_url + "/scenario", events) == {"events": 3}
    seen = len(grid.log())
    post_json(grid.api_url + "/scenario/start", {})
    wait_for(lambda: len([entry for entry in grid.log()[seen:] if entry["event"] == "cleared"]) == 2)
    told = [(entry["event"], entry["fault"]) for entry in grid.log()[seen:]]
    assert told == [
        ("scenario", ""),
        ("injected", "hang"),
        ("injected", "slow"),
        ("cleared", "slow"),
        ("cleared", "hang"),
    ]


def test_a_wrong_scenario_names_the_line(grid: EmulatorHandle) -> None:
    events = [{"at_s": 0, "fault": "hang", "cell": "a1"}, {"at_s": 1, "fault": "slow", "cell": "a1"}]
    answer = ask(grid.api_url, "POST", "/scenario", events)
    assert answer.status == 400
    assert "scenario[1]: slow.params" in str(answer.json()["error"])


def test_a_scenario_file_is_loaded_at_start(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("- {at_s: 0.0, fault: hang, cell: a1, for_s: 30}\n")
    with emulator(EngineSpec(model="tiny"), scenario=str(path)) as handle:
        assert get_json(handle.api_url + "/scenario")["events"][0]["fault"] == "hang"  # type: ignore[index]
        post_json(handle.api_url + "/scenario/start", {})
        wait_for(lambda: bool(handle.log()) and handle.log()[-1]["fault"] == "hang")
