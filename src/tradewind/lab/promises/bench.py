"""What every item is made of: a name, where it runs, and the ways to measure that items of several issues use."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tradewind.config.schema import GridConfig
from tradewind.lab.checks import Check, at_most
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid

Say = Callable[[str], None]
Result = TypeVar("Result")
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")  # quiet by pyproject.toml; twice hides the names


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One promise: `item` as "issue/number", and what measures it."""

    item: str
    title: str
    run: Callable[["Bench"], list[Check]]


class Bench:
    """Where the items run: a folder for their grids, and a voice."""

    def __init__(self, folder: Path, say: Say) -> None:
        self.folder = folder
        self.say = say

    def live(self, config: GridConfig, script: Callable[[LiveGrid], Awaitable[Result]]) -> Result:
        """Run a script against a fresh grid. Raises StartFailed, TimeoutError."""

        async def main() -> Result:
            async with LiveGrid(config) as grid:
                return await script(grid)

        shutil.rmtree(config.state_dir, ignore_errors=True)
        return asyncio.run(main())

    @property
    def state_dir(self) -> str:
        """Where a grid keeps its state; each run begins with an empty one."""
        return str(self.folder / "state")

    def nine_cells(self, *, baseline: str = "", policy: str = "", gate: Literal["auto", "none"] = "auto") -> GridConfig:
        """The grid of the issues: three sites of three emulated RTX PRO 6000."""
        return emulated_grid(state_dir=self.state_dir, baseline=baseline, policy=policy, gate=gate)


def tests_pass(name: str, files: Sequence[str]) -> Check:
    """Run files of tests as they stand, from the repository's root. The note is what pytest says last."""
    done = subprocess.run([*PYTEST, *files], capture_output=True, text=True, check=False)
    return at_most(f"{name}: exit status", done.returncode, 0, note=last_line(done.stdout))


def bench_rows(bench: Bench, *only: str) -> list[Check]:
    """The rows of `make bench`, or of some benchmarks alone, taken over."""
    out = bench.folder / "bench.json"
    out.unlink(missing_ok=True)
    chosen = [argument for name in only for argument in ("--only", name)]
    command = [sys.executable, "-m", "benchmarks", *chosen, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not out.exists():
        return [at_most("make bench: exit status", done.returncode, 0, note=done.stderr[-200:])]
    return [Check(**row) for row in json.loads(out.read_text())["rows"]]


def last_line(text: str) -> str:
    """The last line that says something; "" without one."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
