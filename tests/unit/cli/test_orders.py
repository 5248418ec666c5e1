"""A drain goes to every control; what did not answer is named, and the exit code says whether all is said."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from tests.support.envoy import free_port
from tests.support.listening import listening
from tradewind.cli.main import app
from tradewind.cli.orders import Asked, Report, order_all
from tradewind.config.schema import ControlConfig, GridConfig
from tradewind.runtime.ask import AskFailed

A, B, C = (Asked(id=name, address=f"10.0.0.{number}:7401") for number, name in enumerate("abc", 1))


class Controls:
    """Admin APIs by address: a reply, or why there is none."""

    def __init__(self, **replies: object) -> None:
        self.asked: list[tuple[str, str]] = []
        self._replies = {control.address: replies[control.id] for control in (A, B, C) if control.id in replies}

    def send(self, address: str, path: str) -> object:
        self.asked.append((address, path))
        reply = self._replies[address]
        if isinstance(reply, AskFailed):
            raise reply
        return reply


OBEYED = {"cell_id": "x", "state": "draining", "draining": True, "saved": True}
SILENT = AskFailed("does not answer: refused")
UNKNOWN = AskFailed("answers 404: no such cell", status=404)


def given(order: str = "drain", **replies: object) -> Report:
    controls = Controls(**replies)
    asked = [control for control in (A, B, C) if control.id in replies]
    report = order_all(asked, "east/0", "drain" if order == "drain" else "undrain", controls.send)
    assert sorted(controls.asked) == [(control.address, f"/v1/cells/east%2F0/{order}") for control in asked]
    return report


def test_an_order_that_every_control_obeys_is_complete() -> None:
    report = given(a=OBEYED, b=OBEYED)
    assert report.complete
    assert report.lines() == ["east/0: drained, state draining (control a, control b)"]


def test_a_control_that_does_not_answer_is_named_and_the_order_is_not_complete() -> None:
    report = given(a=OBEYED, b=SILENT, c=OBEYED)
    assert not report.complete
    text = "\n".join(report.lines())
    assert "drained" in text
    assert "control b: does not answer" in text
    assert "holds where control a, control c is heard" in text


def test_an_end_that_did_not_reach_every_control_says_what_may_come_back() -> None:
    report = given("undrain", a=OBEYED, b=SILENT)
    assert not report.complete
    assert "if it holds the drain" in "\n".join(report.lines())


def test_a_control_that_does_not_know_the_cell_holds_nothing() -> None:
    report = given(a=UNKNOWN, b=OBEYED)
    assert report.complete
    assert "control a does not know east/0" in report.lines()
    assert not given(a=UNKNOWN, b=UNKNOWN).complete


def test_a_refusal_is_not_told_as_an_absence() -> None:
    """`drain` without a token was answered 401, and advised to wait until control is back."""
    text = "\n".join(given(a=OBEYED, b=AskFailed("answers 401: token", status=401)).lines())
    assert "answers 401: token; the drain holds where control a is heard." in text
    assert "is back" not in text


def test_a_cell_that_nobody_knows_is_told_with_where_to_look() -> None:
    assert "`tradewind status` shows the cells that there are" in given(a=UNKNOWN, b=UNKNOWN).lines()[-1]
    assert len(given(a=UNKNOWN, b=OBEYED).lines()) == 2


def test_what_is_not_saved_is_said() -> None:
    report = given(a={**OBEYED, "saved": False})
    assert report.complete
    assert report.as_json()["saved"] is False
    assert any("restart of control a" in line for line in report.lines())


def test_an_answer_that_is_no_cell_is_no_obedience() -> None:
    assert not given(a=[1]).complete


@contextmanager
def admin(seen: list[tuple[str, str]], *, name: str) -> Iterator[str]:
    """An admin API that obeys; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append((name, self.path))
            body = json.dumps(OBEYED).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        yield address


def run(tmp_path: Path, command: str, *controls: ControlConfig) -> Result:
    file = tmp_path / "grid.json"
    file.write_bytes(msgspec.json.encode(GridConfig(controls=list(controls))))
    return CliRunner().invoke(app, [command, "east-0", "-f", str(file), "--json"])


@pytest.mark.parametrize("command", ["drain", "undrain"])
def test_the_command_reaches_every_control_of_the_file(tmp_path: Path, command: str) -> None:
    seen: list[tuple[str, str]] = []
    with ExitStack() as stack:
        first, second = (stack.enter_context(admin(seen, name=name)) for name in "ab")
        alive = [ControlConfig(id="a", admin=first), ControlConfig(id="b", admin=second)]
        done = run(tmp_path, command, *alive)
        assert done.exit_code == 0, done.output
        assert sorted(seen) == [(name, f"/v1/cells/east-0/{command}") for name in "ab"]
        half = run(tmp_path, command, *alive, ControlConfig(id="c", admin=f"127.0.0.1:{free_port()}"))
    assert half.exit_code == 1
    answer = json.loads(half.stdout)
    assert (answer["complete"], answer["state"]) == (False, "draining")
    assert [control["obeyed"] for control in answer["controls"]] == [True, True, False]
