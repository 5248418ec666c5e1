"""The laboratory's commands."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.options import EXIT_FAILED, EXIT_USAGE, JsonOption, console, explained, fail, print_json, say

if TYPE_CHECKING:
    from tradewind.lab.harness.experiment import Experiment, Options
    from tradewind.lab.harness.runner import Report

app = typer.Typer(help="Run any experiment again: simulated in virtual time, or live; ours beside published figures.")

_Names = Annotated[list[str], typer.Argument(help="Experiments, or 'all'; `tradewind lab list` shows them.")]
_Live = Annotated[bool, typer.Option("--live", help="On a grid of real processes here, one trial at a time.")]
_Policy = Annotated[
    list[str], typer.Option("--policy", help="These policies in place of the experiment's own; may be repeated.")
]
_Seeds = Annotated[int | None, typer.Option("--seeds", min=1, help="How many; default: the experiment's own number.")]
_First = Annotated[int | None, typer.Option("--first-seed", help="The seeds are this one and those after it.")]
_Quick = Annotated[bool, typer.Option("--quick", help="A form of seconds, to see that it works: no figure to quote.")]
_JsonFile = Annotated[Path | None, typer.Option("--json", help="Write rows, claims and published figures here.")]
_Report = Annotated[Path | None, typer.Option("--report", help="Write one HTML page with figures to this file.")]
_Figures = Annotated[Path | None, typer.Option("--figures", help="Write the figures as SVG to this folder (kaleido).")]
_Jobs = Annotated[int, typer.Option("--jobs", min=0, help="Trials at a time; 0 = one per core.")]
_Folder = Annotated[Path, typer.Option("--results", help="Results are kept here; a run that was cut goes on.")]
_Trial = Annotated[str, typer.Option("--trial", help="Run this trial alone, in this process, and print its result.")]


@app.command("list", epilog="Example: tradewind lab list --json")
def list_experiments(as_json: JsonOption = False) -> None:
    """Every experiment and what it answers."""
    from tradewind.lab.experiments.registry import NAMES, experiment_named

    found = [experiment_named(name) for name in NAMES]
    if as_json:
        print_json(
            [{"name": one.name, "title": one.title, "question": one.question, "forms": forms(one)} for one in found]
        )
        return
    for one in found:
        print(f"{one.name:16} {one.title} ({', '.join(forms(one))})")


def forms(experiment: "Experiment") -> list[str]:
    """How it can be run."""
    return [form for form, live in (("simulated", False), ("live", True)) if experiment.work(live=live) is not None]


@app.command("run", epilog="Example: tradewind lab run impairment --report build/impairment.html")
def run(
    names: _Names,
    live: _Live = False,
    policy: _Policy = [],  # noqa: B006  typer copies it
    seeds: _Seeds = None,
    first_seed: _First = None,
    quick: _Quick = False,
    json_file: _JsonFile = None,
    report: _Report = None,
    figures: _Figures = None,
    jobs: _Jobs = 0,
    results: _Folder = Path("build/lab"),
    trial: _Trial = "",
) -> None:
    """Run experiments and show our figures beside the published ones. Exit code 1 if a trial failed."""
    from tradewind.lab.experiments.registry import UnknownExperimentError
    from tradewind.lab.harness.experiment import Options
    from tradewind.lab.harness.runner import NoSuchFormError, run_alone

    policies = tuple(name.strip() for written in policy for name in written.split(",")) or None
    options = Options(seeds=seeds, first_seed=first_seed, policies=policies, quick=quick)
    with explained():
        try:
            chosen = _chosen(names, live=live)
            if not live:
                _must_be_known(policies or (), chosen)
            if trial:
                print_json(run_alone(chosen[0], options, key=trial, live=live))
                return
            done = _run_all(chosen, options, live=live, folder=results, jobs=jobs or os.cpu_count() or 1)
        except (UnknownExperimentError, NoSuchFormError, ValueError) as error:
            fail(str(error), code=EXIT_USAGE)
        _write(done, json_file=json_file, report=report, figures=figures)
    if any(one.failures for one in done):
        raise typer.Exit(EXIT_FAILED)


def _chosen(names: list[str], *, live: bool) -> "list[Experiment]":
    from tradewind.lab.experiments.registry import NAMES, experiment_named

    if names != ["all"]:
        return [experiment_named(name) for name in names]
    return [one for one in map(experiment_named, NAMES) if one.work(live=live) is not None]


def _must_be_known(policies: tuple[str, ...], chosen: "list[Experiment]") -> None:
    """Before the first trial, not in each: a policy of the lab, or a name that an experiment has of its own."""
    from tradewind.lab.harness.experiment import Options
    from tradewind.lab.simulated.policies import UnknownPolicyError, maker

    for one in chosen if policies else ():
        work = one.work(live=False)
        own = {value for trial in work.plan(Options()) for value in trial.args.values()} if work else set()
        for name in policies:
            try:
                if name not in own:
                    maker(name)
            except UnknownPolicyError as error:
                fail(f"--policy {name}: {error}", code=EXIT_USAGE)


def _run_all(chosen: "list[Experiment]", options: "Options", *, live: bool, folder: Path, jobs: int) -> "list[Report]":
    """One after the other; each is shown as it is done."""
    from tradewind.cli.progress import Bars
    from tradewind.lab.harness.runner import run_experiment
    from tradewind.lab.harness.text import show

    screen = console()
    done = []
    for one in chosen:
        with Bars() as watch:
            done.append(run_experiment(one, options, live=live, folder=folder, jobs=jobs, watch=watch))
        show(screen, done[-1])
    return done


def _write(done: "list[Report]", *, json_file: Path | None, report: Path | None, figures: Path | None) -> None:
    from tradewind.lab.facts import machine_facts
    from tradewind.lab.harness.document import document, write_document
    from tradewind.lab.harness.page import write_page
    from tradewind.lab.harness.pictures import NoPicturesError, write_pictures

    facts = machine_facts()
    if json_file is not None:
        write_document(json_file, document(done, facts=facts))
        say(f"rows: {json_file}")
    if report is not None:
        write_page(report, done, facts=facts)
        say(f"report: {report}")
    if figures is not None:
        try:
            written = write_pictures(figures, done)
        except NoPicturesError as error:
            fail(str(error))
        say(f"{len(written)} figures in {figures}")
