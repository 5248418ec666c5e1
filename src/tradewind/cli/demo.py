"""The demo command."""

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.options import MAX_SPAN_S, JsonOption, explained, print_json, say


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the grid running; print a curl line.")] = False,
    duration_s: Annotated[
        float, typer.Option("--duration", min=20, max=MAX_SPAN_S, help="Seconds of traffic per run.")
    ] = 90.0,
    seed: Annotated[int, typer.Option("--seed", help="Same seed, same requests.")] = 1,
    no_baseline: Annotated[bool, typer.Option("--no-baseline", help="Leave out the round-robin run.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("build/demo"),
    as_json: JsonOption = False,
) -> None:
    """Nine emulated cells in three sites, real Envoy, real trace; five faults; a summary and a report."""
    with explained(as_json=as_json):
        from tradewind.lab.demo import DemoOptions, run_demo

        options = DemoOptions(duration_s=duration_s, seed=seed, baseline=not no_baseline, keep=keep, out=out)
        result = run_demo(options, live=not as_json, say=say)
        if as_json:
            print_json(result)
        raise typer.Exit(0 if result.holds else 1)
