"""`tradewind tuner pretrain`: weights from the simulator, proposed with intervals and never applied."""

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import (
    DEFAULT_FILE,
    EXIT_USAGE,
    MAX_RATE_PER_S,
    MAX_SPAN_S,
    FileOption,
    JsonOption,
    explained,
    fail,
    print_json,
)

if TYPE_CHECKING:
    from tradewind.core.tuner.box import Box
    from tradewind.lab.experiments.what_if.setup import Setup
    from tradewind.lab.harness.experiment import Experiment, Options
    from tradewind.lab.harness.runner import Report
    from tradewind.lab.pretrain import Change, Pretrained

_Trace = Annotated[
    str,
    typer.Option(
        "--trace",
        help="Yesterday's request log (.ndjson), a Mooncake trace (.jsonl) or an Azure trace (.csv), also .gz.",
    ),
]
_Class = Annotated[str, typer.Option("--class", help="In place of a trace: one of `tradewind workload list`.")]
_Rate = Annotated[float, typer.Option("--rate", min=0.0, max=MAX_RATE_PER_S, help="Requests per second, with --class.")]
_For = Annotated[
    float, typer.Option("--for", min=0.0, max=MAX_SPAN_S, help="Seconds; of a trace, each seed takes a window so long.")
]
_Policy = Annotated[str, typer.Option("--policy", help="cost or gorgo; default: as the grid file says.")]
_Model = Annotated[str, typer.Option("--model", help="Which pool, where the grid serves several.")]
_Hardware = Annotated[
    list[str], typer.Option("--hardware", help="PROFILE, SITE=PROFILE or CELL=PROFILE, e.g. east=h100; repeatable.")
]
_Rtt = Annotated[list[str], typer.Option("--rtt", help="SITE-SITE=TIME or TIME, e.g. east-west=40ms; repeatable.")]
_Seeds = Annotated[int, typer.Option("--seeds", min=5, help="Fresh seeds on which the best is held against 1 and 1.")]
_Search = Annotated[int, typer.Option("--search-seeds", min=1, help="Seeds on which settings are searched.")]
_First = Annotated[int, typer.Option("--first-seed", help="The seeds are this one and those after it.")]
_Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Runs at a time; 0 = one per core.")]
_Folder = Annotated[Path, typer.Option("--results", help="Results are kept here; a search that was cut goes on.")]


def pretrain(
    file: FileOption = DEFAULT_FILE,
    trace: _Trace = "",
    workload: _Class = "",
    rate: _Rate = 0.0,
    for_s: _For = 0.0,
    policy: _Policy = "",
    model: _Model = "",
    hardware: _Hardware = [],  # noqa: B006  typer copies it
    rtt: _Rtt = [],  # noqa: B006
    seeds: _Seeds = 8,
    search_seeds: _Search = 3,
    first_seed: _First = 1,
    jobs: _Jobs = 0,
    results: _Folder = Path("build/lab"),
    as_json: JsonOption = False,
) -> None:
    """Search weights in the simulator for the fleet of the grid file under a trace, yesterday's request log or a class
    of load, hold the best against 1 and 1 on fresh seeds, and propose it, or say that the default should stay. Needs
    no running grid and changes nothing: it prints the command that would."""
    from tradewind.lab.experiments.what_if.setup import Setup, SetupError, content_hash

    with explained(as_json=as_json):
        if bool(trace) == bool(workload):
            fail("write --trace FILE, or --class NAME with --rate R", code=EXIT_USAGE)
        if workload and not rate:
            fail(f"--class {workload} needs --rate, in requests per second", code=EXIT_USAGE)
        setup = Setup(
            grid=str(file),
            grid_hash=content_hash(str(file)),
            trace=trace,
            trace_hash=content_hash(trace) if trace else "",
            workload=workload,
            rate_per_s=rate,
            for_s=for_s,
            policy=policy,
            model=model,
            hardware=",".join(hardware),
            rtt=",".join(rtt),
        )
        searched = range(first_seed, first_seed + search_seeds)
        held = range(searched.stop, searched.stop + seeds)
        try:
            found = _found(setup, searched, held, folder=results, jobs=jobs or os.cpu_count() or 1)
        except SetupError as error:
            fail(str(error), code=EXIT_USAGE)
        command = _command(found, file)
        if as_json:
            print_json(_as_json(found, command))
        else:
            print("\n".join(_lines(found, command)))


def _found(setup: "Setup", searched: range, held: range, *, folder: Path, jobs: int) -> "Pretrained":
    from tradewind.cli.progress import Bars
    from tradewind.lab.experiments.what_if.run import grid_of
    from tradewind.lab.harness.runner import run_experiment
    from tradewind.lab.pretrain import policy_of, pretrain, written_as
    from tradewind.model.tuning import PHYSICS

    base = policy_of(setup)
    with Bars() as watch:

        def simulate(made: "Experiment", options: "Options") -> "Report":
            return run_experiment(made, options, live=False, folder=folder, jobs=jobs, watch=watch)

        return pretrain(
            replace(setup, policy=written_as(base, PHYSICS)),
            base=base,
            box=_box(grid_of(setup).tuner),
            search_seeds=searched,
            seeds=held,
            simulate=simulate,
        )


def _box(tuner: object) -> "Box":
    """The bounds of the grid file's tuner, else those that one would have."""
    from tradewind.config.check_tuner import box_of
    from tradewind.config.schema import TunerConfig

    return box_of(tuner if isinstance(tuner, TunerConfig) else TunerConfig())


def _command(found: "Pretrained", file: Path) -> str:
    """That would apply it; "" where the default should stay."""
    if found.proposed is None:
        return ""
    rtt, queue = found.proposed
    where = "" if file == DEFAULT_FILE else f" -f {shlex.quote(str(file))}"
    return f"tradewind tuner set {rtt:g} {queue:g}{where} --reason pretrain"


def _lines(found: "Pretrained", command: str) -> Iterator[str]:
    yield f"{'weights':24}p95 TTFT against 1/1    p95 E2E against 1/1"
    for one in found.searched:
        name = f"rtt {one.weights.rtt:g}, queue {one.weights.queue:g}"
        yield f"{name:24}{_shown(one.ttft):24}{_shown(one.e2e)}"
    yield f"searched on {_named(found.search_seeds)}; means, {_INTERVAL}"
    if found.held is not None:
        rtt, queue = found.held.weights
        yield f"the best, rtt {rtt:g}, queue {queue:g}, on {_named(found.seeds)}, which the search did not see:"
        yield f"{'':24}{_shown(found.held.ttft):24}{_shown(found.held.e2e)}"
    if found.proposed is None:
        yield f"Keep the default, 1 and 1: {found.reason}."
    else:
        yield f"Proposed: rtt {found.proposed.rtt:g}, queue {found.proposed.queue:g}: {found.reason}."
        yield f"Nothing has been changed. This would: {command}"
    yield found.assumed


_INTERVAL = "95 % by bootstrap over seeds, same arrivals and paths for all"


def _shown(change: "Change") -> str:
    if change.value is None:
        return "unknown"
    ends = "" if change.low is None or change.high is None else f" ({change.low:+.1f} .. {change.high:+.1f})"
    return f"{change.value:+.1f} %{ends}"


def _named(seeds: range) -> str:
    return f"seed {seeds.start}" if len(seeds) == 1 else f"seeds {seeds.start} to {seeds.stop - 1}"


def _as_json(found: "Pretrained", command: str) -> dict[str, object]:
    return {
        "proposed": None if found.proposed is None else found.proposed._asdict(),
        "reason": found.reason,
        "command": command,
        "held": None if found.held is None else _plain(found.held),
        "searched": [_plain(one) for one in found.searched],
        "search_seeds": list(found.search_seeds),
        "seeds": list(found.seeds),
        "assumed": found.assumed,
    }


def _plain(one: object) -> object:
    """Named tuples as mappings, all the way down."""
    if isinstance(one, tuple) and hasattr(one, "_asdict"):
        return {name: _plain(value) for name, value in one._asdict().items()}
    return one
