"""`tradewind load` against a scripted engine: what is sent, what counts, what the exit code says."""

import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.sse_engine import FAILS, REFUSES, SseEngine, sse_engine
from tradewind.cli.main import app
from tradewind.lab.load import LoadError, Progress, target_of
from tradewind.measure.record import Failure, Record, read_records


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["load", *arguments])


def trace_of(folder: Path, *outputs: int, every_ms: int = 20) -> Path:
    path = folder / "trace.jsonl"
    rows = [
        {"timestamp": every_ms * index, "input_length": 600, "output_length": tokens, "hash_ids": [7, 100 + index]}
        for index, tokens in enumerate(outputs)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def prompts(engine: SseEngine) -> list[str]:
    return [body["messages"][0]["content"] for body in engine.bodies]  # type: ignore[index]


def test_fc_66_failures_inside_200_fail_the_run_and_stay_out_of_latencies(tmp_path: Path) -> None:
    trace, out = trace_of(tmp_path, 4, FAILS, 4, REFUSES, 4), tmp_path / "out" / "records.ndjson"
    with sse_engine("m") as engine:
        result = invoke(engine.address, "--trace", str(trace), "--out", str(out), "--json")
    report = json.loads(result.stdout)
    summary = report["summary"]
    assert result.exit_code == 1
    assert not report["holds"]
    assert (summary["requests"], summary["succeeded"], summary["ttft_s"]["count"]) == (5, 3, 3)
    assert summary["failures"] == {"stream_error": 1, "status_400": 1}
    assert any("engine died" in line for line in report["failed"])
    records = list(read_records(out))
    assert {record.failure for record in records} == {Failure.NONE, Failure.STREAM_ERROR, Failure.STATUS}
    assert all(record.ttft_s is not None and record.content_events == 4 for record in records if record.ok)


def test_the_gate_of_failures_is_the_callers(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, 4, FAILS, 4, 4)
    with sse_engine("m") as engine:
        assert invoke(engine.address, "--trace", str(trace), "--max-failed", "0.25").exit_code == 0
        result = invoke(engine.address, "--trace", str(trace), "--max-failed", "0.2")
    assert result.exit_code == 1
    assert "1 stream_error" in result.stdout
    assert "TTFT from the intended sending" in result.stdout


def test_prompts_share_what_the_trace_shares_and_nothing_with_another_run(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, 2, 2)
    with sse_engine("m") as engine:
        for salt in ("one", "one", "two"):
            options = ("--salt", salt, "--header", "Authorization: Bearer x")
            assert invoke(engine.address, "--trace", str(trace), *options).exit_code == 0
    first, again, other = (sorted(prompts(engine)[start : start + 2]) for start in (0, 2, 4))
    assert first == again
    assert first[0][:2_048] == first[1][:2_048]
    assert first[0][:2_100] != first[1][:2_100]
    assert first[0][:30] != other[0][:30]
    assert {headers["authorization"] for headers in engine.headers} == {"Bearer x"}
    assert all(2_300 < len(text) <= 2_400 for text in prompts(engine))


def test_a_class_is_sent_at_its_rate_and_its_goodput_is_over_its_time(tmp_path: Path) -> None:
    with sse_engine("m") as engine:
        options = ("--class", "baseline_mixed", "--rate", "20", "--for", "1", "--arrivals", "constant", "--json")
        report = json.loads(invoke(f"http://{engine.address}/v1", *options).stdout)
    assert (report["planned"], report["summary"]["for_s"], report["model"]) == (20, 1.0, "m")
    assert report["summary"]["goodput_per_s"] == pytest.approx(20.0)
    assert report["summary"]["cached_ratio"] == 0.0
    assert not list(tmp_path.iterdir())


def test_a_part_of_a_trace_at_another_pace(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, 2, 2, 2, 2, every_ms=100)
    with sse_engine("m") as engine:
        options = ("--trace", str(trace), "--time-scale", "0.5", "--for", "0.12", "--json")
        report = json.loads(invoke(engine.address, *options).stdout)
    assert report["planned"] == 3  # at 0, 50 and 100 ms


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "either --trace FILE or --class"),
        (("--class", "rag"), "rag_multidoc"),
        (("--class", "art", "--arrivals", "gamma"), "gamma:CV"),
        (("--class", "art", "--header", "nothing"), "name: value"),
        (("--trace", "none.json"), "NAME.jsonl"),
        (("--class", "art"), "lists 2 models; write --model with one of: a, b"),
    ],
)
def test_bad_orders_are_refused_with_advice(arguments: tuple[str, ...], told: str) -> None:
    with sse_engine("a", "b") as engine:
        result = invoke(engine.address, *arguments)
        assert not engine.bodies
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_an_interrupt_ends_the_load_and_what_had_ended_is_reported(tmp_path: Path) -> None:
    trace, out = trace_of(tmp_path, *(2,) * 200, every_ms=50), tmp_path / "records.ndjson"
    with sse_engine("m", on_post=lambda count: os.kill(os.getpid(), signal.SIGINT) if count == 4 else None) as engine:
        result = invoke(engine.address, "--trace", str(trace), "--out", str(out), "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["stopped"]
    assert not report["holds"]
    assert 3 <= report["summary"]["requests"] == len(list(read_records(out))) < 10
    assert report["planned"] == 200
    assert report["summary"]["success_ratio"] == 1.0


def test_nobody_there_is_a_failure_of_every_request() -> None:
    result = invoke(
        "127.0.0.1:9", "--class", "baseline_mixed", "--for", "0.5", "--rate", "10", "--model", "m", "--json"
    )
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["summary"]["failures"] == {"refused": report["planned"]}
    assert report["summary"]["ttft_s"]["p50"] is None


@pytest.mark.parametrize(
    ("url", "address", "path", "tls"),
    [
        ("host:81", "host:81", "/v1/chat/completions", False),
        ("http://host", "host:80", "/v1/chat/completions", False),
        ("https://host/", "host:443", "/v1/chat/completions", True),
        ("http://[::1]:8000/v1", "[::1]:8000", "/v1/chat/completions", False),
        ("http://host/openai/v1/chat/completions", "host:80", "/openai/v1/chat/completions", False),
        ("http://host/openai", "host:80", "/openai/v1/chat/completions", False),
    ],
)
def test_addresses(url: str, address: str, path: str, *, tls: bool) -> None:
    target = target_of(url, model="m", timeout_s=1.0)
    assert (target.address, target.path, target.tls) == (address, path, tls)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://host:70000"])
def test_what_is_no_address_says_what_to_write(url: str) -> None:
    with pytest.raises(LoadError, match="write http://"):
        target_of(url, model="m", timeout_s=1.0)


def test_progress_tells_failures_and_recent_first_tokens() -> None:
    progress = Progress(planned=3)
    progress.take(Record(request_id="a", intended_s=0.0, sent_s=0.0, content_s=0.25, end_s=1.0))
    progress.take(Record(request_id="b", intended_s=0.0, failure=Failure.RESET))
    assert progress.text() == "0 open, 1 failed, TTFT p50 250, p95 250 ms of the last 1"
