"""The simulator: requests and events per second, memory, and the cost of a request as the fleet grows."""

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time

from tradewind.lab.checks import Check, reported
from tradewind.lab.simulated.collection import uncollected
from tradewind.lab.simulated.policies import maker
from tradewind.sim.fleets import fleet
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.arrivals import CONSTANT
from tradewind.workload.classes import baseline_mixed

POLICIES = ("envoy_round_robin", "weights", "cost")
RATE, FOR_S, MEMORY_FOR_S = 22.0, 60.0, 300.0  # the nine cells of S2
SIZES = (9, 27, 81, 243, 1_000)
RATE_PER_CELL, REQUESTS, LEAST_S = 0.45, 1_500, 4.0
MIB = 1 << 20


def bench(quick: bool) -> list[Check]:
    rows: list[Check] = []
    for policy in POLICIES:
        ran, used_s = best(busy_fleet(15.0 if quick else FOR_S), policy, times=2 if quick else 3)
        requests = len(ran.records)
        name = f"simulator: nine cells at {RATE:g} RPS, {policy}"
        rows += [
            reported(f"{name}: CPU of a request", used_s / requests * 1e6, unit="us"),
            reported(f"{name}: requests in a second of CPU", requests / used_s, unit="1/s"),
            reported(f"{name}: events in a second of CPU", ran.events / used_s, unit="1/s"),
        ]
    for cells in SIZES[:3] if quick else SIZES:
        for_s = max(LEAST_S, (300 if quick else REQUESTS) / (RATE_PER_CELL * cells))
        scenario = fleet(cells, rate_per_cell=RATE_PER_CELL, for_s=for_s, disturbance="D")
        ran, used_s = best(scenario, "envoy_round_robin", times=1 if quick else 2)
        name = f"simulator: {cells} cells at {RATE_PER_CELL:g} RPS each, envoy_round_robin: CPU of a request"
        rows.append(
            reported(name, used_s / len(ran.records) * 1e6, unit="us", note=f"{ran.events / used_s:.0f} events/s")
        )
    rows.append(reported("simulator: memory of a run of 6,600 requests on nine cells", memory_mib(), unit="MiB"))
    return rows


def busy_fleet(for_s: float) -> Scenario:
    """Nine cells at about four fifths of what they can do."""
    return replace(
        scenario_named("S2"),
        load=lambda rng: baseline_mixed(rng, rate_per_s=RATE, for_s=for_s, arrivals=CONSTANT),
        for_s=for_s,
    )


def best(scenario: Scenario, policy: str, *, times: int) -> tuple[RunResult, float]:
    """A run, and the least CPU seconds that one took: the cores are shared."""
    least_s = float("inf")
    for _ in range(times):
        with uncollected():
            begin_s = process_time()
            ran = SimGrid(scenario, maker(policy), seed=1).run()
            least_s = min(least_s, process_time() - begin_s)
    return ran, least_s


def memory_mib() -> float:
    """What a process has more with a run's grid and result than before it, in a process that does nothing else."""
    code = "from benchmarks.simulator import grown_mib; print(grown_mib())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def grown_mib() -> float:
    """Growth of this process's resident memory over one run that is still there; for a process of its own."""
    scenario, make = busy_fleet(MEMORY_FOR_S), maker("envoy_round_robin")
    before = resident_bytes()
    with uncollected():
        grid = SimGrid(scenario, make, seed=1)
        ran = grid.run()
        grown = resident_bytes() - before
    assert len(ran.records) == len(grid.journal.entries)
    return grown / MIB


def resident_bytes() -> int:
    """Of this process, by Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
