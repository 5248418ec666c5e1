"""`tradewind tuner check`: what it says before it starts, what it asks of control, and what it says at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.listening import listening
from tests.unit.cli.test_tuner import NONE, TUNER
from tradewind.cli import tuner_check
from tradewind.cli.main import app
from tradewind.cli.tuner_check_text import requests_for
from tradewind.core.tuner.power import STUDY, requests_needed

RUNNING: dict[str, Any] = {
    "present": {"rtt": 1.0, "queue": 0.5},
    "other": {"rtt": 1.0, "queue": 0.25},
    "requests": 8_400,
    "heard": 2_400,
    "running": True,
    "answer": None,
}
ESTIMATE = {
    "figure": "p95 TTFT",
    "unit": "s",
    "present": 1.6,
    "other": 1.44,
    "change": -0.1,
    "low": -0.15,
    "high": -0.04,
    "pairs": 7,
}
ANSWER = {
    "told": "the other setting is better: p95 TTFT -10.0 % (-15.0 .. -4.0)",
    "winner": "other",
    "failed_present": 0,
    "failed_other": 0,
    "estimates": [ESTIMATE],
}
ENDED = {**RUNNING, "running": False, "heard": 8_423, "answer": ANSWER}
GIVEN_UP = {**RUNNING, "running": False}
SPREAD = {"p95_ttft": 0.845, "log_ttft": 0.4, "mean_e2e": 0.2}
ASKED = ("--queue", "0.25", "--yes")


class FakeControl:
    """An admin API whose check is asked for, runs for some looks, and ends."""

    def __init__(self, *, tuner: object = TUNER, looks: int = 2, refuses: str = "", check: object = None) -> None:
        self.address = ""
        self.bodies: list[dict[str, Any]] = []
        self._tuner = tuner
        self._looks = looks
        self._refuses = refuses
        self._check = check

    def reply(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        if path == "/v1/tuner":
            return (200, self._tuner) if self._tuner else (404, NONE)
        if path != "/v1/tuner/check" or not self._tuner:
            return 404, NONE
        if method == "POST":
            if self._refuses:
                return 409, {"error": {"code": "refused", "message": self._refuses}}
            self.bodies.append(json.loads(body))
            self._check = RUNNING
        elif method == "DELETE":
            self._check = GIVEN_UP
        elif self._check is RUNNING:
            self._looks -= 1
            self._check = RUNNING if self._looks > 0 else ENDED
        return (200, self._check) if self._check else (404, {"error": {"message": "no check has begun"}})


@contextmanager
def serving(control: FakeControl) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, reply = control.reply(self.command, self.path, body)
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        yield address


def ran(control: FakeControl, *words: str, answer: str = "") -> Result:
    with serving(control) as address:
        return CliRunner().invoke(app, ["tuner", "check", *words, "--control", f"http://{address}"], input=answer)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner_check, "LOOK_EACH_S", 0.001)


def test_it_says_what_it_costs_begins_waits_and_tells_who_won() -> None:
    control = FakeControl(tuner={**TUNER, "requests_per_s": 10.0})
    done = ran(control, *ASKED)
    assert done.exit_code == 0
    assert control.bodies == [{"other": {"rtt": 1.0, "queue": 0.25}, "requests": 8_000, "seed": 0}]
    assert "present rtt 1, queue 0.5; other rtt 1, queue 0.25" in done.stderr
    assert "8,400 requests in blocks of 600" in done.stderr
    assert "about 14 min at 10.0 requests/s" in done.stderr
    assert "p95 TTFT 16.7 %, typical TTFT 7.9 %" in done.stderr
    assert "the other setting is better: p95 TTFT -10.0 % (-15.0 .. -4.0)" in done.stdout
    assert "1,600 ms" in done.stdout


def test_the_smallest_change_that_it_tells_is_that_of_recent_requests_where_control_has_them() -> None:
    done = ran(FakeControl(tuner={**TUNER, "spread": SPREAD}), *ASKED)
    assert "p95 TTFT 8.3 %" in done.stderr, "half the spread"
    assert "as recent requests spread" in done.stderr
    unknown = ran(FakeControl(), *ASKED)
    assert "under an even load: control has heard too few requests" in unknown.stderr
    assert "is not known: control has heard no requests" in unknown.stderr


def test_as_many_requests_as_tell_a_change() -> None:
    control = FakeControl()
    assert ran(control, *ASKED, "--change", "5").exit_code == 0
    assert control.bodies[0]["requests"] == requests_needed(0.05) > 40_000
    assert requests_for(0.05, {**TUNER, "spread": SPREAD}) == requests_needed(0.05, error=STUDY.p95_ttft / 2)


def test_a_change_that_no_check_tells_is_refused_with_what_one_could() -> None:
    control = FakeControl()
    done = ran(control, *ASKED, "--change", "1")
    assert done.exit_code == 1
    assert "a check may take 200,000, which tell 2." in done.stderr
    assert not control.bodies


def test_it_asks_first() -> None:
    control = FakeControl()
    done = ran(control, "--queue", "0.25", answer="n\n")
    assert (done.exit_code, control.bodies) == (1, [])
    assert "nothing was changed" in done.stderr
    assert ran(control, "--queue", "0.25", answer="y\n").exit_code == 0
    assert len(control.bodies) == 1
    assert ran(control, "--queue", "0.25", "--json").exit_code == 2


def test_it_need_not_wait() -> None:
    done = ran(FakeControl(), *ASKED, "--no-wait")
    assert done.exit_code == 0
    assert "it runs: 2,400 of 8,400 requests" in done.stdout


def test_at_the_end_it_waits_for_the_last_answers_and_counts_none_too_many() -> None:
    done = ran(FakeControl(check={**RUNNING, "heard": 8_538}))
    assert "all 8,400 requests; the last of them are awaited" in done.stdout


def test_without_weights_it_shows_the_newest_check_and_stops_one() -> None:
    assert "the other setting is better" in ran(FakeControl(check=ENDED)).stdout
    stopped = ran(FakeControl(check=RUNNING), "--stop")
    assert stopped.exit_code == 0
    assert "given up and has no answer" in stopped.stdout
    assert ran(FakeControl(check=GIVEN_UP)).exit_code == 1
    none = ran(FakeControl())
    assert none.exit_code == 1
    assert "no check has begun since control's start; write other weights, e.g. --queue 0.5" in none.stderr


def test_json_is_the_check_and_nothing_else() -> None:
    assert json.loads(ran(FakeControl(), *ASKED, "--json").stdout) == ENDED


def test_what_control_refuses_is_told() -> None:
    done = ran(FakeControl(refuses="both settings are the same: there is nothing to check"), *ASKED)
    assert done.exit_code == 1
    assert "both settings are the same" in done.stderr


def test_without_a_tuner_or_weights_it_says_what_to_write() -> None:
    assert "this control has no tuner" in ran(FakeControl(tuner=None), *ASKED).stderr
    unknown = ran(FakeControl(tuner={**TUNER, "weights": None}), *ASKED)
    assert unknown.exit_code == 2
    assert "write --rtt too" in unknown.stderr


def test_requests_and_change_exclude_each_other() -> None:
    done = ran(FakeControl(), *ASKED, "--change", "5", "--requests", "9000")
    assert done.exit_code == 2
    assert "not both" in done.stderr
