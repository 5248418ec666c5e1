"""Gateways that tell each other what went where, and agents that hear what caches drop."""

from dataclasses import replace

from tradewind.core.prefix.index import PrefixIndex
from tradewind.lab.experiments import several_gateways
from tradewind.lab.harness.experiment import Options
from tradewind.lab.simulated.nine import ran
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.trials import shortened
from tradewind.sim.faults import Change, Emptied
from tradewind.sim.grid import SimGrid
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy

FOR_S = 60.0


def two(*, exchange_s: float = 0.25, kv_events: bool = False) -> Scenario:
    scenario = several_gateways.scenario_of(2, exchange_s=exchange_s, kv_events=kv_events)
    return shortened(scenario, FOR_S)


def cached_ratio(policy: str) -> float:
    records = [record for record in ran(two(), policy, seed=1).records if record.ok]
    return sum(record.usage_cached_tokens or 0 for record in records) / sum(r.prompt_tokens or 0 for r in records)


def index_of(grid: SimGrid, gateway: int) -> PrefixIndex:
    policy = grid.gateways[gateway].policy
    assert isinstance(policy, PicksPolicy)
    index = policy.picker._index
    assert isinstance(index, PrefixIndex)
    return index


def test_two_gateways_that_tell_each_other_find_more_in_caches() -> None:
    assert cached_ratio("cost") > 1.1 * cached_ratio("cost;index=own")


def test_both_believe_the_same_of_a_cell_but_for_the_last_moments() -> None:
    grid = SimGrid(two(), maker("cost"), seed=1)
    grid.run()
    cells = [spec.cell_id for spec in grid.scenario.cells]
    one, other = ([index_of(grid, gateway).blocks_of(cell) for cell in cells] for gateway in (0, 1))
    assert all(blocks > 50 for blocks in one)
    assert all(abs(mine - theirs) <= 0.1 * mine for mine, theirs in zip(one, other, strict=True))


def test_a_cache_that_somebody_emptied_is_believed_empty_where_events_are_heard() -> None:
    """Of the first cell, near the end of the load: what is believed of it then is what was sent since."""

    def believed(*, kv_events: bool) -> int:
        scenario = two(kv_events=kv_events)
        empty = Change(at_s=FOR_S - 10.0, cell=0, effect=Emptied())
        grid = SimGrid(replace(scenario, changes=(empty,)), maker("cost"), seed=1)
        grid.run()
        return index_of(grid, 0).blocks_of(scenario.cells[0].cell_id)

    assert believed(kv_events=True) < 0.5 * believed(kv_events=False)


def test_the_plan_has_each_arm_once() -> None:
    trials = several_gateways.plan(Options(seeds=1))
    assert len({str(sorted(trial.args.items(), key=str)) for trial in trials}) == len(trials) == 19
