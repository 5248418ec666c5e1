"""Runs the trials of an experiment over the cores, keeps every result, and goes on where it was stopped."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from tradewind.lab.checks import Check
from tradewind.lab.facts import machine_facts
from tradewind.lab.harness.experiment import Experiment, Options, Result, Trial, Work
from tradewind.lab.harness.row import Row
from tradewind.lab.harness.store import Store, trial_key
from tradewind.lab.simulated.policies import UnknownPolicyError, fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A trial that raised; its neighbours went on."""

    trial: Trial
    error: str  # a traceback
    replay: str  # the command that runs it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One experiment as it was run."""

    experiment: Experiment
    command: str
    rows: tuple[Row, ...]
    claims: tuple[Check, ...]
    failures: tuple[Failure, ...]
    trials: int
    reused: int  # results that were there from a run before
    took_s: float
    quick: bool


class Watch:
    """Hears how a run goes on; this one says nothing."""

    def began(self, name: str, trials: int, reused: int) -> None:
        """A run of so many trials, of which so many have results."""

    def did(self, trial: Trial) -> None:
        """One more trial has ended."""

    def said(self, line: str) -> None:
        """Something to tell."""


class NoSuchFormError(ValueError):
    """The experiment has no live form, or no simulated one."""


def run_experiment(
    experiment: Experiment, options: Options, *, live: bool, folder: Path, jobs: int, watch: Watch
) -> Report:
    """All trials, in `jobs` processes; live ones one at a time in this one. Raises NoSuchFormError, OSError."""
    work = _work(experiment, live=live)
    trials = list(work.plan(options))
    store = Store(folder, live=live)
    begin_s = time.monotonic()
    results: dict[str, Result] = {}
    for trial in trials:
        found = store.get(trial, extra=_extra(trial))
        if found is not None:
            results[trial_key(trial)] = found
    reused = len(results)
    missing = [trial for trial in trials if trial_key(trial) not in results]
    watch.began(experiment.name, len(trials), reused)
    failures: list[Failure] = []
    for trial, result in _results(work, missing, jobs=1 if live else jobs, live=live):
        if isinstance(result, str):
            replay = f"{_command(experiment, options, live=live)} --trial {trial_key(trial)}"
            failures.append(Failure(trial=trial, error=result, replay=replay))
            watch.said(f"{experiment.name}: a trial failed: {result.strip().splitlines()[-1]}")
        else:
            results[trial_key(trial)] = store.put(trial, result, extra=_extra(trial))
        watch.did(trial)
    done = [(trial, results[trial_key(trial)]) for trial in trials if trial_key(trial) in results]
    commit = str(machine_facts()["commit"])
    rows = tuple(msgspec.structs.replace(row, commit=commit) for row in experiment.rows(done)) if done else ()
    return Report(
        experiment=experiment,
        command=_command(experiment, options, live=live),
        rows=rows,
        claims=_claims(experiment, rows, quick=options.quick),
        failures=tuple(failures),
        trials=len(trials),
        reused=reused,
        took_s=time.monotonic() - begin_s,
        quick=options.quick,
    )


def _claims(experiment: Experiment, rows: Sequence[Row], *, quick: bool) -> tuple[Check, ...]:
    """A quick run shows what is demanded, and judges nothing."""
    claims = experiment.claims(rows) if rows else ()
    return tuple(msgspec.structs.replace(claim, holds=None) if quick else claim for claim in claims)


def run_alone(experiment: Experiment, options: Options, *, key: str, live: bool) -> Result:
    """One trial of the plan, in this process, nothing kept. Raises ValueError if there is none with this key."""
    work = _work(experiment, live=live)
    for trial in work.plan(options):
        if trial_key(trial).startswith(key):
            return work.run(trial)
    raise ValueError(f"no trial {key!r} of {experiment.name} in this plan; the other options must be those of its run")


def _work(experiment: Experiment, *, live: bool) -> Work:
    work = experiment.work(live=live)
    if work is None:
        form = "no live form; leave --live out" if live else "only a live form; add --live"
        raise NoSuchFormError(f"{experiment.name} has {form}")
    return work


def _results(work: Work, trials: Sequence[Trial], *, jobs: int, live: bool) -> Iterator[tuple[Trial, Result | str]]:
    """Each trial with its result, or with the traceback of what it raised, as they end."""
    if jobs <= 1 or len(trials) <= 1:
        for trial in trials:
            yield trial, _tried(work.run, trial)
        return
    assert not live, "live trials share this machine's ports and cores"
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()  # nothing goes through it; that our end is closed ends the workers
    with theirs, ours, ProcessPoolExecutor(jobs, context, _begin_worker, (theirs,)) as pool:
        try:
            futures = {pool.submit(_tried, work.run, trial): trial for trial in trials}
            for future in as_completed(futures):
                yield futures[future], _ended(future)
        except BaseException:
            ours.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin_worker(parent: Connection) -> None:
    """An interruption is the parent's to answer; a worker ends with it, whatever ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv_bytes()
    os._exit(1)


def _ended(future: Future[Result | str]) -> Result | str:
    try:
        return future.result()
    except BrokenProcessPool:
        return "the worker process died; was there memory enough? fewer at a time: --jobs 1"


def _tried(run: Callable[[Trial], Result], trial: Trial) -> Result | str:
    try:
        return run(trial)
    except Exception:  # noqa: BLE001  whatever it is, it is told with its traceback, and the others go on
        return traceback.format_exc()


def _extra(trial: Trial) -> str:
    """The content of every file of policies that the trial names: a changed policy is another trial."""
    found = []
    for value in trial.args.values():
        with contextlib.suppress(UnknownPolicyError):  # a file that cannot be read is told by the trial itself
            found.append(fingerprint(value) if isinstance(value, str) else "")
    return "".join(found)


def _command(experiment: Experiment, options: Options, *, live: bool) -> str:
    parts = [experiment.command or f"tradewind lab run {experiment.name}"]
    parts += ["--live"] if live else []
    parts += [f"--policy '{','.join(options.policies)}'"] if options.policies else []
    parts += [f"--seeds {options.seeds}"] if options.seeds else []
    parts += [f"--first-seed {options.first_seed}"] if options.first_seed is not None else []
    parts += ["--quick"] if options.quick else []
    return " ".join(parts)
