"""Runs every policy on every seed of every scenario, and shows each scenario as it is done."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from tradewind.lab.simulated.compare import RunRow, run_once
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sets import SETS
from tradewind.lab.simulated.tables import best_lines, comparison_table
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import SCENARIOS

_TABLE_WIDTH = 190


def sweep(
    scenarios: Sequence[Scenario],
    policies: Sequence[str],
    *,
    seeds: Iterable[int],
    check: bool,
    say: Callable[[str], None],
) -> list[RunRow]:
    """All runs. Raises UnknownPolicyError before the first one, InvariantBrokenError if `check` finds something."""
    makers = {policy: maker(policy) for policy in policies}
    console = Console(width=_TABLE_WIDTH)
    rows: list[RunRow] = []
    seeds = list(seeds)
    for scenario in scenarios:
        done: list[RunRow] = []
        for seed in seeds:
            for policy, make in makers.items():
                done.append(run_once(scenario, make, policy=policy, seed=seed, check=check))
                say(progress(done[-1], len(done), len(seeds) * len(makers)))
        console.print(comparison_table(done, title=f"{scenario.name}: {scenario.title}, {scenario.disturbance}"))
        for line in best_lines(done):
            console.print(line)
        rows += done
    return rows


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
