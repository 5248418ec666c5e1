"""`make verify`: every promise of the issues in full, as a table and as build/verify.json.

python -m tradewind.lab.verify [--only 2/3 ...] [--out build/verify.json]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from tradewind.lab.checks import Check, all_hold, checks_table, reported, write_checks
from tradewind.lab.facts import machine_facts
from tradewind.lab.promises import gate, grid, laboratory, pick, tuner
from tradewind.lab.promises.bench import Bench, Item
from tradewind.runtime.supervise import StartFailed

ITEMS: tuple[Item, ...] = (*grid.ITEMS, *pick.ITEMS, *gate.ITEMS, *laboratory.ITEMS, *tuner.ITEMS)


def verify(items: Sequence[Item], bench: Bench) -> list[Check]:
    """Run items one after the other; an item that cannot run is a check that does not hold."""
    rows: list[Check] = []
    for item in items:
        bench.say(f"{item.item} {item.title}")
        begin_s = time.monotonic()
        try:
            checks = item.run(bench)
        except (StartFailed, TimeoutError, OSError, subprocess.CalledProcessError) as error:
            checks = [Check(name=item.title, value=None, holds=False, note=f"could not run: {error}"[:400])]
        command = f"python -m tradewind.lab.verify --only {item.item}"
        rows += [replace(check, item=item.item, command=command) for check in checks]
        rows.append(replace(reported("took", time.monotonic() - begin_s, unit="s"), item=item.item, command=command))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tradewind.lab.verify", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=[item.item for item in ITEMS], help="this item; repeatable")
    parser.add_argument("--out", type=Path, default=Path("build/verify.json"))
    options = parser.parse_args(arguments)
    chosen = [item for item in ITEMS if not options.only or item.item in options.only]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tradewind-verify-") as folder:
        rows = verify(chosen, Bench(Path(folder), lambda line: console.print(line, style="dim")))
    console.print(checks_table(rows, title="what must be true"))
    write_checks(options.out, rows, facts=machine_facts())
    return 0 if all_hold(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
