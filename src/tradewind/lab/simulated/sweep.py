"""Runs every policy on every seed of every scenario, and shows each scenario as it is done."""

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from tradewind.lab.simulated.compare import RunRow, replay_of, run_once
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sets import SETS
from tradewind.lab.simulated.tables import best_lines, comparison_table
from tradewind.sim.policy import MakePolicy
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import SCENARIOS

_TABLE_WIDTH = 190


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run that raised; the others went on."""

    policy: str
    error: str  # a traceback
    replay: str  # the command that runs it alone


def sweep(
    scenarios: Sequence[Scenario],
    policies: Sequence[str],
    *,
    seeds: Iterable[int],
    check: bool,
    say: Callable[[str], None],
) -> tuple[list[RunRow], list[FailedRun]]:
    """All runs, and those that raised. Raises UnknownPolicyError before the first one."""
    makers = {policy: maker(policy) for policy in policies}
    console = Console(width=_TABLE_WIDTH)
    rows: list[RunRow] = []
    failures: list[FailedRun] = []
    seeds = list(seeds)
    for scenario in scenarios:
        done: list[RunRow] = []
        failed: list[FailedRun] = []
        for seed in seeds:
            for policy, make in makers.items():
                found = _tried(scenario, make, policy=policy, seed=seed, check=check)
                if isinstance(found, RunRow):
                    done.append(found)
                    say(progress(found, len(done) + len(failed), len(seeds) * len(makers)))
                else:
                    failed.append(found)
                    say(f"{scenario.name} seed {seed} {policy}: failed")
        _show(console, scenario, done, failed)
        rows += done
        failures += failed
    return rows, failures


def _tried(scenario: Scenario, make: MakePolicy, *, policy: str, seed: int, check: bool) -> RunRow | FailedRun:
    try:
        return run_once(scenario, make, policy=policy, seed=seed, check=check)
    except Exception:  # noqa: BLE001  whatever it is, it is told with its traceback, and the others go on
        return FailedRun(policy=policy, error=traceback.format_exc(), replay=replay_of(scenario, policy, seed))


def _show(console: Console, scenario: Scenario, done: Sequence[RunRow], failed: Sequence[FailedRun]) -> None:
    """The table of those policies that have all seeds: a mean over others would compare different loads."""
    out = {failure.policy for failure in failed}
    whole = [row for row in done if row.policy not in out]
    if not whole:
        return
    console.print(comparison_table(whole, title=f"{scenario.name}: {scenario.title}, {scenario.disturbance}"))
    for line in best_lines(whole):
        console.print(line)


def progress(row: RunRow, number: int, of: int) -> str:
    """One line about one run."""
    figures = f"TTFT p95 {1e3 * row.ttft_p95_s:.0f} ms, E2E p95 {1e3 * row.e2e_p95_s:.0f} ms"
    return f"{row.scenario} {number}/{of} seed {row.seed} {row.policy}: {figures}"


def listing() -> list[str]:
    """One line for each scenario, then one for each set of policies."""
    scenarios = [f"{scenario.name:16} {scenario.title}, {scenario.disturbance}" for scenario in SCENARIOS.values()]
    return scenarios + [f"{name:16} {', '.join(policies)}" for name, policies in SETS.items()]


def write_rows(path: Path, rows: Sequence[RunRow]) -> None:
    """One JSON document: the list of runs. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
