"""The request log: bounded, rotated, never fatal, and without anything a client typed but ids and model names."""

import json
import resource
import signal
from pathlib import Path

import msgspec
import pytest

from tradewind.core.tokens.shape import exact_shape
from tradewind.gateway import requestlog
from tradewind.gateway.pick.memory import Sent
from tradewind.gateway.requestlog import RequestLog, line_of
from tradewind.model.outcome import Outcome

OUTCOME = Outcome(request_id="r1", cell_id="x", model="m", status=200, ttft_s=0.2, duration_s=1.5, completion_tokens=9)


def test_a_line_holds_ids_status_and_times(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests.ndjson")
    log.add(line_of(OUTCOME, at_unix_s=1.23456))
    log.write(log.take())
    line = json.loads((tmp_path / "requests.ndjson").read_text())
    assert line == {
        "at_unix_s": 1.235,
        "id": "r1",
        "cell": "x",
        "model": "m",
        "status": 200,
        "ttft_s": 0.2,
        "duration_s": 1.5,
        "completion_tokens": 9,
    }


SENT = Sent(
    model="m",
    shape=exact_shape(100),
    policy="cost",
    cell_id="x",
    cost_s=0.12345678,
    probability=0.25,
    expected_ttft_s=0.1,
    prompt_tokens=100,
    matched_tokens=64,
    fingerprint=0,
)


def test_a_line_joins_the_decision_with_its_outcome() -> None:
    picked = OUTCOME._replace(decision_id="b-d1")
    line = msgspec.to_builtins(line_of(picked, at_unix_s=1.0, sent=SENT))
    assert line["pick"] == {
        "decision": "b-d1",
        "policy": "cost",
        "cost_s": 0.123457,
        "probability": 0.25,
        "expected_ttft_s": 0.1,
        "prompt_tokens": 100,
        "cached_tokens": 64,
    }
    elsewhere = line_of(picked._replace(cell_id="y"), at_unix_s=1.0, sent=SENT)
    assert (elsewhere.cell, elsewhere.pick and elsewhere.pick.cell) == ("y", "x")
    assert msgspec.to_builtins(line_of(picked, at_unix_s=1.0))["pick"] == {"decision": "b-d1"}
    assert line_of(OUTCOME, at_unix_s=1.0, sent=SENT).pick is None


def test_long_strings_are_cut() -> None:
    line = line_of(Outcome(request_id="r" * 10_000, cell_id=None, model="m" * 10_000), at_unix_s=0.0)
    assert len(line.id) == len(line.model or "") == requestlog.MAX_TEXT


def test_two_files_at_most(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests.ndjson", max_file_bytes=500)
    for _ in range(50):
        log.add(line_of(OUTCOME, at_unix_s=0.0))
        log.write(log.take())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests.ndjson", "requests.ndjson.1"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000


def test_beyond_the_bound_the_oldest_lines_go_and_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requestlog, "MAX_WAITING_LINES", 3)
    log = RequestLog(tmp_path / "requests.ndjson")
    for number in range(5):
        log.add(line_of(Outcome(request_id=str(number), cell_id=None), at_unix_s=0.0))
    log.write(log.take())
    kept = [json.loads(line)["id"] for line in (tmp_path / "requests.ndjson").read_text().splitlines()]
    assert kept == ["2", "3", "4"]
    assert log.dropped == 2


def test_a_disk_that_refuses_costs_lines_only(tmp_path: Path) -> None:
    (tmp_path / "requests.ndjson").mkdir()
    log = RequestLog(tmp_path / "requests.ndjson")
    log.add(line_of(OUTCOME, at_unix_s=0.0))
    log.write(log.take())
    assert log.dropped == 1


def test_fc_40_a_disk_that_fills_up_leaves_no_half_line_and_its_space_is_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "requests.ndjson"
    log = RequestLog(path)
    log.write([line_of(OUTCOME, at_unix_s=1.0)])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limit[1]))  # room for half a line
    try:
        for _ in range(3):
            log.write([line_of(OUTCOME, at_unix_s=2.0)] * 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    log.write([line_of(OUTCOME, at_unix_s=3.0)])
    assert [json.loads(text)["at_unix_s"] for text in path.read_text().splitlines()] == [1.0, 3.0]
    assert log.dropped == 6
    assert caplog.text.count("request_log.not_written") == 1


def test_a_line_that_a_kill_has_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "requests.ndjson"
    path.write_text('{"at_unix_s":1.0,"id":"r')
    RequestLog(path).write([line_of(OUTCOME, at_unix_s=2.0)])
    cut, whole = path.read_text().splitlines()
    assert cut == '{"at_unix_s":1.0,"id":"r'
    assert json.loads(whole)["at_unix_s"] == 2.0
