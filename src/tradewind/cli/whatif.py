"""`tradewind sim run`: an operator's own grid in virtual time, as it is and as it might be."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import (
    EXIT_FAILED,
    EXIT_USAGE,
    MAX_RATE_PER_S,
    MAX_SPAN_S,
    MAX_WAIT_S,
    console,
    explained,
    fail,
    print_json,
    say,
)

if TYPE_CHECKING:
    from tradewind.lab.experiments.what_if.setup import Setup
    from tradewind.lab.harness.experiment import Experiment, Options
    from tradewind.lab.harness.runner import Report

_Grid = Annotated[Path, typer.Argument(help="The grid file (YAML).")]
_Trace = Annotated[
    str,
    typer.Option(
        "--trace", help="A Mooncake trace (.jsonl), an Azure trace (.csv) or a request log (.ndjson), also .gz."
    ),
]
_Class = Annotated[str, typer.Option("--class", help="In place of a trace: one of `tradewind workload list`.")]
_Rate = Annotated[float, typer.Option("--rate", min=0.0, max=MAX_RATE_PER_S, help="Requests per second, with --class.")]
_For = Annotated[
    float, typer.Option("--for", min=0.0, max=MAX_SPAN_S, help="Seconds; of a trace, each seed takes a window so long.")
]
_WhatIf = Annotated[
    list[str],
    typer.Option(
        "--what-if",
        help="add:SITE:COUNT, lose:SITE, lose:CELL, policy:POLICY, load:FACTOR, slow:CELL:SPEED or rtt:A-B:TIME; "
        "joined by commas they happen together; may be repeated.",
    ),
]
_Policy = Annotated[str, typer.Option("--policy", help="How all gateways decide; default: as the grid file says.")]
_Model = Annotated[str, typer.Option("--model", help="Which pool, where the grid serves several.")]
_Hardware = Annotated[
    list[str], typer.Option("--hardware", help="PROFILE, SITE=PROFILE or CELL=PROFILE, e.g. east=h100; repeatable.")
]
_Rtt = Annotated[list[str], typer.Option("--rtt", help="SITE-SITE=TIME or TIME, e.g. east-west=40ms; repeatable.")]
_Disturbance = Annotated[str, typer.Option("--disturbance", help="What goes wrong meanwhile, e.g. D or one-slow.")]
_Slo = Annotated[
    float,
    typer.Option("--slo-ttft", min=0.001, max=MAX_WAIT_S, help="Goodput counts first tokens within so many seconds."),
]
_Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many runs of each.")]
_First = Annotated[int, typer.Option("--first-seed", help="The seeds are this one and those after it.")]
_Check = Annotated[bool, typer.Option("--check", help="Check invariants after every event (slow).")]
_JsonFile = Annotated[Path | None, typer.Option("--json", help="Write rows to this file, as `lab run` does.")]
_Report = Annotated[Path | None, typer.Option("--report", help="Write one HTML page with figures to this file.")]
_Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Runs at a time; 0 = one per core.")]
_Folder = Annotated[Path, typer.Option("--results", help="Results are kept here; a run that was cut goes on.")]
_Trial = Annotated[str, typer.Option("--trial", help="Run this trial alone, in this process, and print its result.")]


def run(
    grid: _Grid,
    trace: _Trace = "",
    workload: _Class = "",
    rate: _Rate = 0.0,
    for_s: _For = 0.0,
    what_if: _WhatIf = [],  # noqa: B006  typer copies it
    policy: _Policy = "",
    model: _Model = "",
    hardware: _Hardware = [],  # noqa: B006
    rtt: _Rtt = [],  # noqa: B006
    disturbance: _Disturbance = "clean",
    slo_ttft_s: _Slo = 1.5,
    seeds: _Seeds = 5,
    first_seed: _First = 1,
    check: _Check = False,
    json_file: _JsonFile = None,
    report: _Report = None,
    jobs: _Jobs = 0,
    results: _Folder = Path("build/lab"),
    trial: _Trial = "",
) -> None:
    """Simulate your own grid under your own load, and what a change would do; every what-if on the same chance."""
    from tradewind.lab.experiments.what_if.setup import Setup, content_hash
    from tradewind.lab.harness.experiment import Options
    from tradewind.lab.harness.runner import run_alone

    with explained():
        setup = Setup(
            grid=str(grid),
            grid_hash=content_hash(str(grid)),
            trace=trace,
            trace_hash=content_hash(trace) if trace else "",
            workload=workload,
            rate_per_s=rate,
            for_s=for_s,
            policy=policy,
            model=model,
            hardware=",".join(hardware),
            rtt=",".join(rtt),
            disturbance=disturbance,
            slo_ttft_s=slo_ttft_s,
            check=check,
        )
        made = _made(setup, what_if)
        options = Options(seeds=seeds, first_seed=first_seed)
        if trial:
            print_json(run_alone(made, options, key=trial, live=False))
            return
        done = _run(made, options, slo_ttft_s=slo_ttft_s, folder=results, jobs=jobs or os.cpu_count() or 1)
        _write(done, json_file=json_file, report=report)
    if done.failures:
        raise typer.Exit(EXIT_FAILED)


def _made(setup: "Setup", what_ifs: list[str]) -> "Experiment":
    """The experiment, checked before any run; exits with what to write."""
    from tradewind.lab.experiments.what_if.experiment import experiment_of
    from tradewind.lab.experiments.what_if.setup import SetupError
    from tradewind.lab.simulated.policies import UnknownPolicyError
    from tradewind.sim.disturbances import PROFILES

    if bool(setup.trace) == bool(setup.workload):
        fail("write --trace FILE, or --class NAME with --rate R", code=EXIT_USAGE)
    if setup.workload and not setup.rate_per_s:
        fail(f"--class {setup.workload} needs --rate, in requests per second", code=EXIT_USAGE)
    if setup.disturbance not in PROFILES:
        fail(f"--disturbance {setup.disturbance}: write one of {', '.join(PROFILES)}", code=EXIT_USAGE)
    try:
        return experiment_of(setup, what_ifs, command=_command(setup, what_ifs))
    except (SetupError, UnknownPolicyError) as error:
        fail(str(error), code=EXIT_USAGE)


def _command(setup: "Setup", what_ifs: list[str]) -> str:
    """As it would be written again, seeds aside."""
    options = [
        ("--trace", setup.trace),
        ("--class", setup.workload),
        ("--rate", f"{setup.rate_per_s:g}" if setup.rate_per_s else ""),
        ("--for", f"{setup.for_s:g}" if setup.for_s else ""),
        ("--policy", setup.policy),
        ("--model", setup.model),
        *(("--hardware", part) for part in setup.hardware.split(",")),
        *(("--rtt", part) for part in setup.rtt.split(",")),
        ("--disturbance", "" if setup.disturbance == "clean" else setup.disturbance),
        ("--slo-ttft", "" if setup.slo_ttft_s == 1.5 else f"{setup.slo_ttft_s:g}"),
        *(("--what-if", what_if) for what_if in what_ifs),
    ]
    written = [f"{name} {shlex.quote(value)}" for name, value in options if value]
    return " ".join(["tradewind sim run", shlex.quote(setup.grid), *written, *(["--check"] if setup.check else [])])


def _run(made: "Experiment", options: "Options", *, slo_ttft_s: float, folder: Path, jobs: int) -> "Report":
    """All runs, then the table, a sentence for each what-if, and what was assumed."""
    from tradewind.cli.progress import Bars
    from tradewind.lab.experiments.what_if.answer import sentences
    from tradewind.lab.experiments.what_if.experiment import arms_table
    from tradewind.lab.harness.runner import run_experiment
    from tradewind.lab.harness.text import footer

    with Bars() as watch:
        done = run_experiment(made, options, live=False, folder=folder, jobs=jobs, watch=watch)
    screen = console()
    if done.rows:
        screen.print(made.title, style="bold", highlight=False)
        screen.print(arms_table(done.rows, slo_ttft_s=slo_ttft_s))
        for line in sentences(done.rows):
            print(line)
    print(f"{made.notes}\n{footer(done)}", flush=True)
    for failure in done.failures:
        say(f"\n{failure.error}failed; replay: {failure.replay}")
    return done


def _write(done: "Report", *, json_file: Path | None, report: Path | None) -> None:
    from tradewind.lab.facts import machine_facts
    from tradewind.lab.harness.document import document, write_document
    from tradewind.lab.harness.page import write_page

    facts = machine_facts()
    if json_file is not None:
        write_document(json_file, document([done], facts=facts))
        say(f"rows: {json_file}")
    if report is not None:
        write_page(report, [done], facts=facts)
        say(f"report: {report}")
