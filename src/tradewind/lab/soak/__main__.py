"""`make soak`: python -m tradewind.lab.soak [--for 300] [--seed 1] [--out build/soak.json]."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from tradewind.lab.checks import Check, all_hold, checks_table, write_checks
from tradewind.lab.facts import machine_facts
from tradewind.lab.grid import LiveGrid
from tradewind.lab.soak.run import SoakOptions, soak, soak_grid


def main() -> int:
    """0 when everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tradewind.lab.soak", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--for", type=float, default=300.0, dest="for_s", metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/soak.json"))
    chosen = parser.parse_args()
    console = Console()
    options = SoakOptions(for_s=chosen.for_s, seed=chosen.seed)

    async def run(folder: str) -> list[Check]:
        async with LiveGrid(soak_grid(folder, seed=chosen.seed)) as grid:
            return await soak(grid, options, say=lambda line: console.print(line, style="dim"))

    with (
        tempfile.TemporaryDirectory(prefix="tradewind-soak-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        checks = runner.run(run(folder))
    console.print(checks_table(checks, title=f"{chosen.for_s:g} s of kills, seed {chosen.seed}"))
    write_checks(chosen.out, checks, facts=machine_facts())
    return 0 if all_hold(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
