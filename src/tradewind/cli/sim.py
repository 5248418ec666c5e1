"""The simulator's commands."""

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli import whatif
from tradewind.cli.options import EXIT_USAGE, explained, fail, say

app = typer.Typer(
    help="The grid in virtual time: the live decision code on simulated engines and paths.", no_args_is_help=True
)


@app.command("list", epilog="Example: tradewind sim list")
def listed() -> None:
    """The declared scenarios, and the sets of policies that have a name."""
    from tradewind.lab.simulated.sweep import listing

    for line in listing():
        print(line)


app.command("run", epilog="Example: tradewind sim run grid.yaml --class baseline_mixed --rate 12 --what-if add:east:1")(
    whatif.run
)


@app.command(epilog="Example: tradewind sim compare --scenario S2-D --policy cost,round_robin --seeds 4")
def compare(
    scenario: Annotated[
        str, typer.Option("--scenario", help="One or more, by comma; `tradewind sim list` shows them.")
    ],
    policy: Annotated[
        str, typer.Option("--policy", help="By comma: policies, e.g. gorgo:.5/.1 or cost;tie_s=0, and sets of them")
    ] = "baselines",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many runs of each.")] = 4,
    first_seed: Annotated[int, typer.Option("--first-seed", help="The seeds are this one and those after it.")] = 1,
    check: Annotated[bool, typer.Option("--check", help="Check invariants after every event (slow).")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every run's figures to this file.")] = None,
) -> None:
    """Compare ways to pick a cell in declared scenarios, every one on the same seeds."""
    from tradewind.lab.simulated.policies import UnknownPolicyError
    from tradewind.lab.simulated.sets import expanded
    from tradewind.lab.simulated.sweep import sweep, write_rows
    from tradewind.sim.scenarios import scenario_named

    with explained(as_json=False):
        try:
            chosen = [scenario_named(name.strip()) for name in scenario.split(",")]
            rows, failures = sweep(
                chosen, expanded(policy), seeds=range(first_seed, first_seed + seeds), check=check, say=say
            )
        except KeyError as error:
            fail(str(error.args[0]), code=EXIT_USAGE)
        except UnknownPolicyError as error:
            fail(str(error), code=EXIT_USAGE)
        if json_file is not None:
            write_rows(json_file, rows)
        for failure in failures:
            say(f"\n{failure.error}{failure.policy} failed; replay: {failure.replay}")
        if failures:
            fail(f"{len(failures)} runs failed; their policies are not in the tables")
