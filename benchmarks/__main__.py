"""Run the benchmarks, print a table, write build/bench.json.

    python -m benchmarks [--only NAME ...] [--quick] [--out FILE]

Machines are shared and noisy: figures are medians, and where two things are compared they take turns in one run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop
from rich.console import Console

from benchmarks import (
    agents,
    chain,
    controls,
    decisions,
    emulators,
    epp,
    gate,
    outcomes,
    pick,
    prefix,
    push,
    router,
    simulator,
)
from tradewind.lab.checks import Check, checks_table

BENCHES: dict[str, Callable[[bool], list[Check]]] = {
    "decisions": decisions.bench,
    "prefix": prefix.bench,
    "pick": pick.bench,
    "push": lambda quick: uvloop.run(push.bench(quick)),
    "outcomes": outcomes.bench,
    "router": router.bench,
    "chain": chain.bench,
    "epp": epp.bench,
    "gate": gate.bench,
    "agent": agents.bench,
    "control": controls.bench,
    "emulator": emulators.bench,
    "simulator": simulator.bench,
}


def facts() -> dict[str, object]:
    """Where and on what the figures were taken."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=sorted(BENCHES), help="run this one; may be given again")
    parser.add_argument("--quick", action="store_true", help="shorter runs, coarser figures")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), help="where the figures are written")
    options = parser.parse_args(arguments)
    console = Console()
    rows: list[Check] = []
    before = facts()
    for name in options.only or BENCHES:
        console.print(f"running {name} ...", style="dim")
        rows += BENCHES[name](options.quick)
    console.print(checks_table(rows, title="benchmarks"))
    options.out.parent.mkdir(exist_ok=True)
    body = [{name: getattr(row, name) for name in ("name", "value", "unit", "bound", "holds", "note")} for row in rows]
    options.out.write_text(json.dumps({"facts": before, "rows": body}, indent=1) + "\n")
    console.print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
