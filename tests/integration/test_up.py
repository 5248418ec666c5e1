"""`tradewind up` end to end as an operator runs it: one command, one file, and everything gone afterwards."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import alive
from tradewind.runtime.ask import ask

GRID = """
grid: test
state_dir: state
sites: [east, west]
models: [demo-70b]
gateways: [{id: gateway, site: east}]
cells:
  - {id: east-0, site: east, url: "http://127.0.0.1:0"}
  - {id: west-0, site: west, url: "http://127.0.0.1:0"}
emulation:
  engines: [{cell: east-0, profile: fast}, {cell: west-0, profile: fast}]
  wan: [{a: east, b: west, rtt_ms: 5}]
"""
TRADEWIND = (sys.executable, "-m", "tradewind.cli.main")
START_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Up:
    """A running `tradewind up --json`."""

    process: "subprocess.Popen[bytes]"
    file: Path
    places: dict[str, object]

    @property
    def clients(self) -> str:
        gateways = self.places["gateways"]
        assert isinstance(gateways, dict)
        return str(gateways["gateway"]).removeprefix("http://")

    def children(self) -> dict[str, int]:
        written = json.loads((self.file.parent / "state" / "processes.json").read_text())
        return {row["name"]: row["pid"] for row in written["processes"] if row["pid"]}

    def cells(self) -> dict[str, dict[str, object]]:
        status = run("status", "-f", str(self.file), "--json")
        return {str(row["cell_id"]): row for row in status["grid"]["cells"]}


def run(*arguments: str) -> dict[str, dict[str, list[dict[str, object]]]]:
    """The JSON that a command prints."""
    done = subprocess.run([*TRADEWIND, *arguments], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
    parsed: dict[str, dict[str, list[dict[str, object]]]] = json.loads(done.stdout)
    return parsed


@contextmanager
def up(folder: Path, text: str = GRID) -> Iterator[Up]:
    file = folder / "grid.yaml"
    file.write_text(text)
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen([*TRADEWIND, "up", "-f", str(file), "--json"], stdout=stdout, stderr=stderr)
    try:
        yield Up(process, file, _wait_for_places(process, folder))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait_for_places(process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, object]:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        assert process.poll() is None, (folder / "stderr").read_text()
        text = (folder / "stdout").read_text()
        if text.endswith("}\n"):
            parsed: dict[str, object] = json.loads(text)
            return parsed
        time.sleep(0.05)
    raise TimeoutError((folder / "stderr").read_text())


def chat(address: str, tokens: int = 4) -> dict[str, object]:
    body = json.dumps({"model": "demo-70b", "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens})
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{address}/v1/chat/completions", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        parsed: dict[str, object] = json.load(answer)
    return parsed


def wait_for(holds: object, within_s: float = 20.0) -> None:
    assert callable(holds)
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "not in time"
        time.sleep(0.05)


def test_a_grid_comes_up_serves_drains_mends_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with up(tmp_path) as grid:
        usage = chat(grid.clients)["usage"]
        assert isinstance(usage, dict)
        assert usage["completion_tokens"] == 4
        assert {row["state"] for row in grid.cells().values()} == {"ready"}

        run("drain", "west-0", "-f", str(grid.file), "--reason", "test", "--json")
        assert grid.cells()["west-0"]["draining"] is True
        run("undrain", "west-0", "-f", str(grid.file), "--json")
        assert grid.cells()["west-0"]["draining"] is False

        top = run("top", "-f", str(grid.file), "--json")
        assert len(top) == 2
        page = ask(str(grid.places["dashboard"]).removeprefix("http://"), "/api/state")
        assert isinstance(page, dict)
        assert page["grid"] == "test"

        second = subprocess.run([*TRADEWIND, "up", "-f", str(grid.file)], capture_output=True, timeout=60, check=False)
        assert second.returncode == 1
        assert b"up already" in second.stderr

        for name in ("control-control", "agent-agent", "gateway-gateway", "envoy-gateway"):
            before = grid.children()[name]
            os.kill(before, signal.SIGKILL)
            wait_for(functools.partial(_is_another, grid, name, before))
            wait_for(lambda: _serves(grid.clients))

        children = grid.children()
        assert {"emulator", "control-control", "agent-agent", "gateway-gateway", "envoy-gateway"} <= children.keys()
    assert grid.process.returncode == 0
    assert not any(alive(pid) for pid in children.values())


def _is_another(grid: Up, name: str, before: int) -> bool:
    return grid.children().get(name) not in {None, before}


def _serves(address: str) -> bool:
    try:
        return bool(chat(address)["choices"])
    except OSError:
        return False


def test_fc_48_valid_invalid_valid_and_a_swapped_symlink(tmp_path: Path) -> None:
    more = "\n  - {id: far-0, site: west, url: 'http://127.0.0.1:9'}\nemulation:"
    real = tmp_path / "one.yaml"
    with up(tmp_path) as grid:
        children = grid.children()
        grid.file.write_text("grid: [broken")
        wait_for(lambda: "mistake" in (tmp_path / "stderr").read_text())
        assert _serves(grid.clients)
        assert grid.children() == children

        real.write_text(GRID.replace("\nemulation:", more))
        swapped = tmp_path / "swapped.yaml"
        swapped.symlink_to(real)
        swapped.replace(grid.file)  # as a ConfigMap does
        wait_for(lambda: "far-0" in grid.cells())
        assert grid.children()["envoy-gateway"] == children["envoy-gateway"]
        assert _serves(grid.clients)

        (tmp_path / "two.yaml").write_text(GRID)
        swapped.symlink_to(tmp_path / "two.yaml")
        swapped.replace(grid.file)
        wait_for(lambda: (tmp_path / "stderr").read_text().count("in force") == 2)
        assert _serves(grid.clients)
