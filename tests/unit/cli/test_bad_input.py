"""Bad input to every command: one message that says where and what to write, JSON for machines, no traceback."""

import gzip
import inspect
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.models import ParameterInfo
from typer.testing import CliRunner, Result

from tradewind.cli.main import app
from tradewind.cli.options import os_text, show
from tradewind.cli.processes import welcome


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def callbacks(group: typer.Typer, prefix: str = "") -> Iterator[tuple[str, Callable[..., object]]]:
    """Every command of the tree with its function."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield f"{prefix}{command.name or command.callback.__name__}", command.callback
    for sub in group.registered_groups:
        assert sub.typer_instance is not None
        yield from callbacks(sub.typer_instance, f"{prefix}{sub.name} ")


def floats() -> Iterator[tuple[str, ParameterInfo]]:
    for command, callback in callbacks(app):
        hints = typing.get_type_hints(callback, include_extras=True)
        for name in inspect.signature(callback).parameters:
            kind, *told = typing.get_args(hints[name]) or (hints[name],)
            if float in (kind, *typing.get_args(kind)):
                yield f"{command} {name}", next(item for item in told if isinstance(item, ParameterInfo))


def test_every_number_that_a_command_takes_has_both_ends() -> None:
    """`inf` is a float: `load --rate inf` planned requests for ever, `relay --rtt-ms inf` held every byte for ever."""
    found = dict(floats())
    assert len(found) > 20
    assert not [name for name, told in found.items() if told.min is None or told.max is None]


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "1e300"])
@pytest.mark.parametrize(
    "words",
    [
        "load http://127.0.0.1:9 --class baseline_mixed --rate",
        "load http://127.0.0.1:9 --class baseline_mixed --for",
        "load http://127.0.0.1:9 --class baseline_mixed --bytes-per-token",
        "workload make baseline_mixed --out x.jsonl --rate",
        "sim run grid.yaml --class baseline_mixed --rate",
        "tuner pretrain --class baseline_mixed --rate 2 --for",
        "tuner check --queue",
        "tuner set --yes 1",
        "relay --listen 127.0.0.1:0 --to 127.0.0.1:9 --rtt-ms",
        "epp-conformance --target 127.0.0.1:9 --deadline-ms",
        "demo --duration",
        "top --every",
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_begins(words: str, value: str) -> None:
    done = invoke(*words.split(), value)
    assert done.exit_code == 2
    assert not done.stdout


BAD = [
    "status -f DIR",
    "status --control nowhere",
    "top -f FILE --gateway nope",
    "explain x -f MISSING",
    "drain x --control foo:bar",
    "undrain x --control https://127.0.0.1:7401",
    "drain x --control 127.0.0.1:99999",
    "up -f MISSING",
    "replay MISSING",
    "replay BINARY",
    "load http://127.0.0.1:9",
    "load http://127.0.0.1:9 --trace MISSING.jsonl",
    "load http://127.0.0.1:9 --class nope",
    "agent --json -f FILE",
    "agent --dry-run nowhere",
    "epp-conformance",
    "epp-conformance --target 127.0.0.1:9 --expect x",
    "epp-conformance --target 127.0.0.1:9 --only nope",
    "workload stats MISSING.jsonl",
    "workload stats DIR",
    "workload stats BINARY.csv",
    "workload stats BINARY.csv.gz",
    "load http://127.0.0.1:9 --trace BINARY.jsonl",
    "workload make nope --out x.jsonl",
    "workload make baseline_mixed --out x.txt",
    "workload make baseline_mixed --out x.jsonl --rate 0.001 --for 0.1",
    "tuner status -f DIR",
    "tuner history --control nowhere",
    "tuner freeze -f MISSING",
    "tuner set 1 1 -f MISSING",
    "tuner reset -f MISSING --yes",
    "tuner check --requests 8000 --change 5 --control nowhere",
    "tuner pretrain --class baseline_mixed",
    "tuner pretrain --trace MISSING.jsonl",
]


@pytest.mark.parametrize("words", BAD)
def test_what_is_wrong_is_told_as_json_too(tmp_path: Path, words: str) -> None:
    file, binary = tmp_path / "grid.yaml", tmp_path / "binary"
    file.write_text("state_dir: run\ngateways: [{id: g}]")
    binary.write_bytes(bytes(range(256)))
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    (tmp_path / "binary.csv.gz").write_bytes(gzip.compress(bytes(range(256))))
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    names = {"DIR": tmp_path, "FILE": file, "BINARY": binary}
    arguments = [
        str(names.get(word, word.replace("MISSING", str(tmp_path / "none")).replace("BINARY.", f"{binary}.")))
        for word in words.split()
    ]
    if words.startswith("top"):
        assert not invoke("bootstrap", "-f", str(file)).exit_code  # settles the grid
    done = invoke(*arguments, *([] if "--json" in arguments else ["--json"]))
    assert done.exit_code == 2
    message = json.loads(done.stdout)["error"]["message"]
    assert done.stderr == f"error: {message}\n"
    assert "Errno" not in message


@pytest.mark.parametrize("name", ["foo", "foo:", ":7401", "http://", "127.0.0.1:0", "127.0.0.1:99999", "a/b:1"])
def test_the_address_of_a_control_is_checked_before_it_is_asked(name: str) -> None:
    done = invoke("status", "--control", name)
    assert done.exit_code == 2
    assert "write http://HOST:PORT" in done.stderr


def test_a_gateway_that_there_is_not_is_told_with_its_own_option(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("gateways: [{id: g0}]")
    invoke("bootstrap", "-f", str(file))
    assert "write --gateway with one of: g0" in invoke("top", "--gateway", "nope", "-f", str(file)).stderr


@pytest.mark.parametrize("command", ["status", "top"])
def test_a_grid_that_has_ended_is_told_with_how_to_start_it(tmp_path: Path, command: str) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("gateways: [{id: g0}]")
    invoke("bootstrap", "-f", str(file))  # settles the addresses, as a run that has ended did
    done = invoke(command, "-f", str(file), "--json")
    assert done.exit_code == 1
    assert f"if the grid is down: tradewind up -f {file}" in json.loads(done.stdout)["error"]["message"]


def test_what_belongs_to_a_dry_run_starts_no_agent(tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text("cells: []")
    done = invoke("agent", "-f", str(file), "--kv-events", "tcp://127.0.0.1:5557")
    assert done.exit_code == 2
    assert "--dry-run URL" in done.stderr


@pytest.mark.parametrize("name", ["nope", "cost,nope", "none.py:Mine"])
def test_an_unknown_policy_is_told_before_the_first_trial(tmp_path: Path, name: str) -> None:
    """Each of 2,320 trials failed with a traceback of its own."""
    done = invoke("lab", "run", "pick", "--policy", name, "--results", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: --policy {name.rpartition(',')[2]}: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_name_that_an_experiment_has_of_its_own_is_known() -> None:
    done = invoke("lab", "run", "pick", "--policy", "zero-queue floor", "--trial", "no such trial")
    assert "there is no trial" in done.stderr or "no trial" in done.stderr


@pytest.mark.parametrize("words", ["--listen foo --to 127.0.0.1:9", "--listen 127.0.0.1:0 --to 127.0.0.1:99999"])
def test_a_relay_wants_addresses(words: str) -> None:
    done = invoke("relay", *words.split())
    assert done.exit_code == 2
    assert "write ip:port" in done.stderr


def test_up_says_how_to_ask_the_grid_that_it_started() -> None:
    assert "`tradewind status`" in welcome({}, [], "", Path("grid.yaml"))
    assert "`tradewind top -f 'my grids/a.yaml'`" in welcome({}, [], "", Path("my grids/a.yaml"))


def test_a_table_in_a_narrow_terminal_is_folded_and_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.table import Table

    monkeypatch.setenv("COLUMNS", "30")
    table = Table("process", "log")
    table.add_row("gateway-gateway", "/a/folder/with/a/long/name/logs/gateway.log")
    show(table)
    narrow = capsys.readouterr().out
    assert "…" not in narrow
    monkeypatch.delenv("COLUMNS")
    show(table)
    assert "/a/folder/with/a/long/name/logs/gateway.log" in capsys.readouterr().out


def test_an_error_of_the_system_names_the_file_and_no_number() -> None:
    assert os_text(FileNotFoundError(2, "No such file or directory", "/x")) == "/x: No such file or directory"
    assert os_text(OSError("no free port")) == "no free port"


def run(*words: str, stdout: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tradewind", *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, timeout=60, check=False)


@pytest.mark.parametrize("words", ["version", "lab list --json", "workload list", "epp-conformance --list"])
def test_a_reader_that_leaves_is_no_error_worth_a_word(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run(*words.split(), stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", ["version", "version --json", "workload list --json"])
def test_a_full_disk_is_an_error_and_no_traceback(words: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run(*words.split(), stdout=full.fileno())
    assert done.returncode
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr
