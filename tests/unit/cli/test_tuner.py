"""`tradewind tuner`: what is in force at every control, orders that reach all of them, and a history with a picture."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.support.envoy import free_port
from tests.support.listening import listening
from tradewind.cli.main import app
from tradewind.config.schema import ControlConfig, GatewayConfig, GridConfig
from tradewind.lab.tuner_page import history_page

TUNER = {
    "kind": "calibrator",
    "driver": "a.1",
    "generation": 7,
    "weights": {"rtt": 1.0, "queue": 0.5},
    "child": {"rtt": 0.5, "queue": 0.5},
    "child_share": 0.5,
    "frozen": False,
    "problem": "",
    "start": {"rtt": 1.0, "queue": 1.0},
    "box": {"rtt": [0.05, 2.0], "queue": [0.2, 2.0], "most_ratio": 4.0},
    "samples": 812,
    "sample_age_s": 3.2,
    "events": {"accepted": 1, "rolled_back": 2},
}
LINES: list[dict[str, Any]] = [
    {
        "sequence": number + 1,
        "at_unix_s": 1_700_000_000.0 + 60 * number,
        "what": what,
        "generation": number + 2,
        "weights": {"rtt": 1.0, "queue": queue},
        "child": child,
        "reason": f"because of <{what}>",
        "figures": {"z": 2.5},
    }
    for number, (what, queue, child) in enumerate(
        [("proposed", 1.0, {"rtt": 1.0, "queue": 0.5}), ("accepted", 0.5, None), ("frozen", 0.5, None)]
    )
]
HISTORY = {"events": LINES, "first": 1, "last": 3}
NONE = {"error": {"code": "no_tuner", "message": "this control has no tuner; write a section `tuner: {}`"}}
STATUS = {"pick": {"tuner": {"driver": "a.1", "generation": 7, "weights": {"rtt": 1.0, "queue": 0.5}}}}


@contextmanager
def serving(seen: list[tuple[str, str, str]], name: str, replies: Mapping[str, tuple[int, object]]) -> Iterator[str]:
    """An admin API with these replies by path; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            seen.append((name, f"{self.command} {self.path}", body))
            status, reply = replies.get(self.path.partition("?")[0], (404, NONE))
            data = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        yield address


OBEYS: dict[str, tuple[int, object]] = {
    "/v1/tuner": (200, TUNER),
    "/v1/tuner/history": (200, HISTORY),
    **{f"/v1/tuner/{order}": (200, {"tuner": TUNER, "saved": True}) for order in ("freeze", "thaw", "set", "reset")},
}


class Rig:
    """Two controls and a gateway behind one grid file."""

    def __init__(self, folder: Path, stack: ExitStack, **replies: Mapping[str, tuple[int, object]]) -> None:
        self.seen: list[tuple[str, str, str]] = []
        addresses = {name: stack.enter_context(serving(self.seen, name, replies[name])) for name in sorted(replies)}
        gateway = stack.enter_context(serving(self.seen, "gw", {"/v1/status": (200, STATUS)}))
        controls = [ControlConfig(id=name, admin=address) for name, address in addresses.items()]
        self.grid = GridConfig(controls=controls, gateways=[GatewayConfig(id="gw", admin=gateway)])
        self.file = folder / "grid.json"
        self.file.write_bytes(msgspec.json.encode(self.grid))

    def run(self, *words: str, answer: str = "") -> Result:
        return CliRunner().invoke(app, ["tuner", *words, "-f", str(self.file)], input=answer)

    def asked(self, path: str) -> list[str]:
        return [name for name, asked, _ in self.seen if asked.partition("?")[0] == path]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_status_tells_what_is_in_force_compared_and_followed(tmp_path: Path, stack: ExitStack) -> None:
    rig = Rig(tmp_path, stack, a=OBEYS, b={})
    done = rig.run("status")
    assert done.exit_code == 0
    assert "control a: calibrator: rtt 1, queue 0.5; 50 % of requests try rtt 0.5, queue 0.5" in done.output
    assert "812 requests heard, the newest 3 s ago" in done.output
    assert "1 accepted, 2 rolled back" in done.output
    assert "box rtt 0.05..2, queue 0.2..2, rtt at most 4 x queue" in done.output
    assert "no tuner; write a section `tuner: {}`" in done.output
    assert "gateway gw: rtt 1, queue 0.5 by a.1, generation 7" in done.output
    told = json.loads(rig.run("status", "--json").output)
    assert [control["has_none"] for control in told["controls"]] == [False, True]
    assert told["gateways"][0]["order"] == STATUS["pick"]["tuner"]


def test_status_without_any_tuner_fails_and_says_what_to_write(tmp_path: Path, stack: ExitStack) -> None:
    done = Rig(tmp_path, stack, a={}).run("status")
    assert done.exit_code == 1
    assert "write a section `tuner: {}`" in done.output


@pytest.mark.parametrize("order", ["freeze", "thaw"])
def test_an_order_reaches_every_control(tmp_path: Path, stack: ExitStack, order: str) -> None:
    rig = Rig(tmp_path, stack, a=OBEYS, b=OBEYS)
    assert rig.run(order).exit_code == 0
    assert sorted(rig.asked(f"POST /v1/tuner/{order}")) == ["a", "b"]


def test_a_control_that_does_not_answer_is_named(tmp_path: Path, stack: ExitStack) -> None:
    rig = Rig(tmp_path, stack, a=OBEYS)
    dead = ControlConfig(id="dead", admin=f"127.0.0.1:{free_port()}")
    rig.file.write_bytes(msgspec.json.encode(msgspec.structs.replace(rig.grid, controls=[*rig.grid.controls, dead])))
    done = rig.run("freeze")
    assert done.exit_code == 1
    assert "control a: rtt 1" in done.output
    assert "repeat the order when control dead is back" in done.output


def test_what_is_refused_or_not_saved_is_told(tmp_path: Path, stack: ExitStack) -> None:
    refused = (409, {"error": {"code": "refused", "message": "the rtt weight must be between 0.05 and 2, not 9"}})
    unsaved = (200, {"tuner": TUNER, "saved": False})
    rig = Rig(tmp_path, stack, a={**OBEYS, "/v1/tuner/set": refused, "/v1/tuner/freeze": unsaved})
    done = rig.run("set", "9", "1", "--yes")
    assert done.exit_code == 1
    assert "must be between 0.05 and 2" in done.output
    assert "repeat the order" not in done.output, "it answers: to repeat the order would change nothing"
    assert "a restart of control a would forget it" in rig.run("freeze").output


def test_set_asks_first_and_a_no_changes_nothing(tmp_path: Path, stack: ExitStack) -> None:
    rig = Rig(tmp_path, stack, a=OBEYS)
    for answer in ("n\n", ""):
        done = rig.run("set", "1", "0.5", answer=answer)
        assert done.exit_code == 1
        assert "control a: calibrator: rtt 1, queue 0.5" in done.output, "what is in force stands beside the question"
        assert rig.asked("POST /v1/tuner/set") == []
    assert rig.run("set", "1", "0.5", "--reason", "pretrain", answer="y\n").exit_code == 0
    (sent,) = (body for _, asked, body in rig.seen if asked == "POST /v1/tuner/set")
    assert json.loads(sent) == {"rtt": 1.0, "queue": 0.5, "reason": "pretrain"}
    assert rig.run("reset", answer="n\n").exit_code == 1
    assert rig.run("reset", "--yes").exit_code == 0
    assert rig.asked("POST /v1/tuner/reset") == ["a"]
    done = rig.run("reset", "--json")
    assert done.exit_code == 2
    assert "--yes" in done.output


def test_history_is_told_of_the_first_control_that_has_one(tmp_path: Path, stack: ExitStack) -> None:
    rig = Rig(tmp_path, stack, a={}, b=OBEYS)
    page = tmp_path / "out" / "tuner.html"
    done = rig.run("history", "--limit", "7", "--report", str(page))
    assert done.exit_code == 0
    assert done.output.index("proposed") < done.output.index("frozen")
    assert ("b", "GET /v1/tuner/history?limit=7", "") in rig.seen
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(rig.run("history", "--json").output) == HISTORY
    assert Rig(tmp_path, stack, a={}).run("history").exit_code == 1


def test_the_page_draws_every_event_and_shows_reasons_as_text() -> None:
    page = history_page(LINES)
    assert page.count("<tr><td>") == len(LINES)
    assert "because of &lt;accepted&gt;" in page
    for name in ("rtt", "queue", "proposed", "accepted", "frozen"):
        assert f'"name":"{name}"' in page
    assert "Nothing happened yet" in history_page([])
