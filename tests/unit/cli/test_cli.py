"""The command line: help teaches, errors say what to write, --json is JSON."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tradewind.cli.main import app

COMMANDS = [
    *("agent", "bootstrap", "control", "demo", "doctor", "drain", "emulate", "explain", "gateway", "load"),
    *("relay", "status", "top", "undrain", "up", "validate", "version"),
]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"Example: tradewind {command}" in " ".join(result.output.split())


def test_version_as_json() -> None:
    assert json.loads(invoke("version", "--json").output)["tradewind"]


def write(folder: Path, text: str) -> str:
    path = folder / "grid.yaml"
    path.write_text(text)
    return str(path)


def test_validate_tells_every_problem_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "models: [m, m]\ngateways: [{baseline: rr}]")
    result = invoke("validate", "-f", file)
    assert result.exit_code == 2
    assert "$.models[1]" in result.output
    assert "$.gateways[0].baseline" in result.output
    answer = json.loads(invoke("validate", "-f", file, "--json").stdout)
    assert answer["valid"] is False
    assert {problem["where"] for problem in answer["problems"]} == {"$.models[1]", "$.gateways[0].baseline"}


def test_validate_praises_a_good_file(tmp_path: Path) -> None:
    file = write(tmp_path, "grid: g")
    assert "good" in invoke("validate", "-f", file).output
    assert json.loads(invoke("validate", "-f", file, "--json").stdout)["valid"] is True


@pytest.mark.parametrize("command", ["status", "top", "explain x", "drain x", "undrain x"])
def test_asking_a_grid_that_was_never_started_says_how_to_start_it(tmp_path: Path, command: str) -> None:
    file = write(tmp_path, "grid: g")
    result = invoke(*command.split(), "-f", file)
    assert result.exit_code == 2
    assert f"tradewind up -f {file}" in " ".join(result.output.split())


def test_a_control_that_does_not_answer_is_named() -> None:
    result = invoke("status", "--control", "http://127.0.0.1:9", "--json")
    assert result.exit_code == 1
    assert "127.0.0.1:9" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize("command", ["control", "agent", "gateway", "bootstrap"])
def test_unknown_id_names_the_known_ones(tmp_path: Path, command: str) -> None:
    file = write(tmp_path, "controls: [{id: c0}]\ngateways: [{id: g0}]\nagents: [{id: a0}]")
    result = invoke(command, "-f", file, "--id", "nobody")
    assert result.exit_code == 2
    assert "nobody" in result.output
    assert {"control": "c0", "agent": "a0", "gateway": "g0", "bootstrap": "g0"}[command] in result.output


def test_bootstrap_is_json_for_an_envoy(tmp_path: Path) -> None:
    file = write(tmp_path, "gateways: [{id: g0, envoy: external}]")
    assert json.loads(invoke("bootstrap", "-f", file).stdout)["node"]["id"] == "g0"


@pytest.mark.parametrize("name", ["three-sites.yaml", "pick.yaml", "real-engines.yaml", "external-envoy.yaml"])
def test_examples_are_good(name: str) -> None:
    path = Path(__file__).parents[3] / "examples" / name
    assert invoke("validate", "-f", str(path)).exit_code == 0


def test_up_with_a_wrong_baseline_says_what_to_write(tmp_path: Path) -> None:
    result = invoke("up", "-f", write(tmp_path, "grid: g"), "--baseline", "rr")
    assert result.exit_code == 2
    assert "least-request" in result.output
