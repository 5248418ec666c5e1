"""Nine equal cells in three sites, as the published set-up has them: runs of policies on it, and their rows."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from tradewind.lab.harness.experiment import Argument, Trial
from tradewind.lab.harness.row import Row
from tradewind.lab.simulated.policies import maker
from tradewind.measure.record import Record
from tradewind.measure.statistics import bootstrap_interval, percentile
from tradewind.sim.faults import Change
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.policy import MakePolicy, Policy
from tradewind.sim.scenario import Load, Scenario
from tradewind.sim.scenarios import scenario_named

ROUND_ROBIN, LEAST_REQUEST, LEAST_OF_ALL = "envoy_round_robin", "envoy_least_request:2", "envoy_least_request:N"
AS_PUBLISHED, WEIGHTS, COST = "published:10", "weights", "cost"
POLICIES = (ROUND_ROBIN, LEAST_REQUEST, LEAST_OF_ALL, AS_PUBLISHED, WEIGHTS, COST)
SOURCE = "Solyx AI Grid (2026)"
SLO_S = 1.5
CELLS = 9


def nine(
    name: str,
    load: Load,
    *,
    for_s: float,
    changes: Sequence[Change] = (),
    disturbance: str = "clean",
    gate: bool = True,
) -> Scenario:
    """Nine RTX PRO 6000 at 8, 22 and 38 ms, with this load and these events."""
    return replace(
        scenario_named("S2"),
        name=name,
        title=name,
        load=load,
        for_s=for_s,
        changes=tuple(changes),
        disturbance=disturbance,
        gate=gate,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run, with the grid and the policy as they were left."""

    result: RunResult
    grid: SimGrid
    policy: Policy

    @property
    def records(self) -> Sequence[Record]:
        """In order of arrival."""
        return self.result.records


def ran(
    scenario: Scenario, policy: str | MakePolicy, *, seed: int, watch: Callable[[SimGrid, Policy], None] | None = None
) -> Ran:
    """One run to its end; `watch` looks on after each event."""
    grid = SimGrid(scenario, maker(policy) if isinstance(policy, str) else policy, seed=seed)
    first = grid.gateways[0].policy
    if watch is None:
        return Ran(result=grid.run(), grid=grid, policy=first)
    while grid.step():
        watch(grid, first)
    return Ran(result=grid.result(), grid=grid, policy=first)


def between(records: Iterable[Record], from_s: float, until_s: float) -> list[Record]:
    """Those that arrived then."""
    return [record for record in records if from_s <= record.intended_s < until_s]


def success(records: Sequence[Record]) -> float | None:
    """Percent served in full; None without requests."""
    return 1e2 * fmean(record.ok for record in records) if records else None


def ttft_ms(records: Iterable[Record], ratio: float) -> float | None:
    """A percentile of the served, in milliseconds."""
    found = percentile([r.ttft_s for r in records if r.ok and r.ttft_s is not None], ratio)
    return None if found is None else 1e3 * found


def e2e_ms(records: Iterable[Record], ratio: float) -> float | None:
    """A percentile of the served, in milliseconds."""
    found = percentile([r.e2e_s for r in records if r.ok and r.e2e_s is not None], ratio)
    return None if found is None else 1e3 * found


def text(trial: Trial, name: str) -> str:
    """An argument that is a text."""
    return str(trial.args[name])


def number(trial: Trial, name: str) -> float:
    """An argument that is a number."""
    found: Argument = trial.args[name]
    assert isinstance(found, int | float)
    return float(found)


def mean_row(
    experiment: str,
    *,
    profile: str,
    policy: str,
    metric: str,
    values: Mapping[int, float | None] | Sequence[float | None],
    unit: str,
    seed: int | None = None,
) -> Row:
    """The mean over seeds (or samples) that have a value, with its 95 % interval; None if none has."""
    known = [value for value in (values.values() if isinstance(values, Mapping) else values) if value is not None]
    low, high = bootstrap_interval(known, fmean, random.Random(0)) or (None, None)
    first = min(values, default=None) if isinstance(values, Mapping) else seed
    return Row(
        experiment=experiment,
        profile=profile,
        policy=policy,
        metric=metric,
        value=fmean(known) if known else None,
        unit=unit,
        lo=low,
        hi=high,
        n=len(known),
        seed=first,
    )


def pooled_row(
    experiment: str,
    *,
    profile: str,
    policy: str,
    metric: str,
    samples: Sequence[float],
    ratio: float,
    unit: str,
    seed: int | None,
) -> Row:
    """A percentile of samples of all seeds together, with its 95 % interval."""
    interval = bootstrap_interval(samples, lambda drawn: percentile(drawn, ratio), random.Random(0), resamples=300)
    low, high = interval or (None, None)
    return Row(
        experiment=experiment,
        profile=profile,
        policy=policy,
        metric=metric,
        value=percentile(samples, ratio),
        unit=unit,
        lo=low,
        hi=high,
        n=len(samples),
        seed=seed,
    )
