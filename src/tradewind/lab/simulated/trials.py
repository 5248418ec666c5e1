"""One policy on one seed of a declared scenario as a trial of an experiment."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from tradewind.lab.harness.experiment import Argument, Done, Result
from tradewind.lab.simulated.compare import RunRow, run_once
from tradewind.lab.simulated.floor import FLOOR, floor_row
from tradewind.lab.simulated.policies import maker
from tradewind.sim.scenario import Scenario
from tradewind.workload.mooncake import Trace


def run_policy(scenario: Scenario, *, policy: str, seed: int) -> Result:
    """The figures of one run, or of the floor under all."""
    if policy == FLOOR:
        row = floor_row(scenario, seed=seed)
    else:
        row = run_once(scenario, maker(policy), policy=policy, seed=seed)
    return msgspec.structs.asdict(row)


def shortened(scenario: Scenario, for_s: Argument) -> Scenario:
    """The first `for_s` seconds of its load; all of it for None."""
    if for_s is None:
        return scenario
    until_s = float(for_s)
    load = scenario.load

    def part(rng: random.Random) -> Trace:
        trace = load(rng)
        return replace(trace, requests=tuple(request for request in trace.requests if request.at_s < until_s))

    return replace(scenario, load=part, for_s=until_s)


def runs_by(done: Done, keys: Sequence[str]) -> dict[tuple[Argument, ...], dict[str, list[RunRow]]]:
    """Runs by the named arguments, then by the argument `policy`, each in the order of the plan.

    Only seeds that all policies of a group have: a comparison is paired, and a trial may have failed.
    """
    found: dict[tuple[Argument, ...], dict[str, list[RunRow]]] = {}
    for trial, result in done:
        group = found.setdefault(tuple(trial.args[key] for key in keys), {})
        group.setdefault(str(trial.args["policy"]), []).append(msgspec.convert(result, RunRow))
    return {key: _paired(group) for key, group in found.items()}


def _paired(group: dict[str, list[RunRow]]) -> dict[str, list[RunRow]]:
    shared = _shared({run.seed for run in runs} for runs in group.values())
    return {policy: [run for run in runs if run.seed in shared] for policy, runs in group.items()}


def _shared(seeds: Iterable[set[int]]) -> set[int]:
    """In all of them."""
    return set.intersection(*seeds)
