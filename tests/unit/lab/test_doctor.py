"""What `tradewind doctor` finds, and that it changes nothing."""

import fcntl
import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tradewind.cli.main import app
from tradewind.gateway.gate import probe
from tradewind.lab import doctor
from tradewind.lab.doctor import Diagnosis, examine, healthy

CELL = 'cells: [{id: a, site: eu, url: "http://127.0.0.1:8000"}]\n'


def grid_file(folder: Path, text: str = "") -> Path:
    file = folder / "grid.yaml"
    file.write_text(CELL + text)
    return file


def named(found: list[Diagnosis], what: str) -> Diagnosis:
    return next(item for item in found if item.what == what)


def test_a_good_machine_and_file(tmp_path: Path) -> None:
    found = examine(grid_file(tmp_path))
    assert healthy(found), found
    assert named(found, "gate of gateway").found.startswith("wasm: ")
    assert named(found, "envoy").found.startswith("1.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.yaml"], "nothing is written"


def test_the_machine_alone() -> None:
    assert [item.what for item in examine(None)] == ["python", "uvloop", "envoy", "compiler", "gate"]


def test_a_bad_file_is_told_with_the_machine(tmp_path: Path) -> None:
    found = examine(grid_file(tmp_path, "grdi: x"))
    assert not healthy(found)
    assert "unknown key 'grdi'" in named(found, "grid file").found
    assert named(found, "envoy").state == "good"


def test_a_taken_port_and_a_grid_that_is_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = grid_file(tmp_path, f"gateways: [{{listen: '{address}'}}]\nplaintext: true")
        port = named(examine(file), "$.gateways[0].listen")
        assert (port.state, address in port.found) == ("bad", True)
        lock = tmp_path / "run" / "up.lock"
        lock.parent.mkdir()
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert named(examine(file), "ports").state == "good"


def test_an_address_of_another_host_is_not_tried(tmp_path: Path) -> None:
    file = grid_file(tmp_path, "gateways: [{listen: '192.0.2.1:80'}]")
    assert named(examine(file), "ports").state == "good"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert named(examine(grid_file(tmp_path, "state_dir: locked/run")), "state").state == "bad"


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    assert named(examine(grid_file(tmp_path)), "state").state == "bad"


@pytest.mark.parametrize(("mode", "state"), [("auto", "warning"), ("wasm", "bad"), ("none", "good")])
def test_an_envoy_without_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, state: str) -> None:
    envoy = tmp_path / "envoy"
    envoy.write_text("#!/bin/sh\n[ $1 = --version ] && { echo version: 1/1.38.3/x; exit; }\nexit 1\n")
    envoy.chmod(0o755)
    monkeypatch.setattr(doctor, "executable", lambda: str(envoy))
    monkeypatch.setattr(probe, "COMPILERS", ())
    gate = named(examine(grid_file(tmp_path, f"gateways: [{{gate: {{mode: {mode}}}}}]")), "gate of gateway")
    assert gate.state == state
    assert ("lost" in gate.advice) is (state != "good")


def test_the_command(tmp_path: Path) -> None:
    good = CliRunner().invoke(app, ["doctor", "-f", str(grid_file(tmp_path)), "--json"])
    assert (good.exit_code, json.loads(good.stdout)["healthy"]) == (0, True)
    bad = CliRunner().invoke(app, ["doctor", "-f", str(grid_file(tmp_path, "grdi: x"))])
    assert bad.exit_code == 1
    assert "unknown key 'grdi'" in bad.stdout.replace("\n", "")
