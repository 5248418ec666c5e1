"""Runs `tradewind up` on a grid as a user would, in a process of its own, and asks it what its gateway sees."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tradewind.config.schema import GridConfig
from tradewind.lab.locate import running
from tradewind.lab.truth import RequestTruth, read_request_log
from tradewind.lab.watch import CellSeen, control_grid, gateway_cells

UP_TIMEOUT_S = 90.0
END_TIMEOUT_S = 20.0
POLL_S = 0.1
_READY = "The grid is up."


@dataclass(frozen=True, slots=True)
class Up:
    """A running grid, its ports settled."""

    grid: GridConfig

    @property
    def port(self) -> int:
        """Where clients of the first gateway connect."""
        return int(self.grid.gateways[0].listen.rpartition(":")[2])

    def cells(self) -> dict[str, CellSeen]:
        """The cells as the first gateway sees them. Raises AskFailed."""
        return {cell.cell_id: cell for cell in asyncio.run(gateway_cells(self.grid.gateways[0]))}

    def at_control(self) -> list[Mapping[str, object]]:
        """The cells as the first control sees them. Raises AskFailed."""
        cells = asyncio.run(control_grid(self.grid)).get("cells")
        assert isinstance(cells, list)
        return cells

    def until(self, holds: Callable[[dict[str, CellSeen]], bool], *, within_s: float, what: str) -> None:
        """Polls the cells until they are as wanted; fails with what they are at the deadline."""
        deadline_s = time.monotonic() + within_s
        while not holds(seen := self.cells()):
            assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}; {seen}"
            time.sleep(POLL_S)

    def requests(self) -> dict[str, RequestTruth]:
        """The first gateway's request log by request id; it is written twice a second."""
        folder = Path(self.grid.state_dir) / f"gateway-{self.grid.gateways[0].id}"
        return read_request_log(folder / "requests.ndjson")


@contextlib.contextmanager
def running_up(grid: GridConfig, folder: Path) -> Iterator[Up]:
    """The grid's `state_dir` is taken relative to `folder`, where the log stays when the grid fails."""
    file, log = folder / "grid.yaml", folder / "up.log"
    file.write_bytes(msgspec.yaml.encode(grid))
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tradewind.cli.main", "up", "-f", str(file)]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        _wait(process, log)
        yield Up(running(file))
    finally:
        _end(process)


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline_s = time.monotonic() + UP_TIMEOUT_S
    while _READY not in log.read_text():
        assert process.poll() is None, f"`up` ended with {process.returncode}: {log.read_text()}"
        assert time.monotonic() < deadline_s, f"not up within {UP_TIMEOUT_S:g} s: {log.read_text()}"
        time.sleep(POLL_S)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
