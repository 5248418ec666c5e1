"""One run of one what-if on one seed, to plain figures."""

from collections.abc import Mapping

from tradewind.config.load import load
from tradewind.config.resolve import load_checked
from tradewind.config.schema import GridConfig
from tradewind.engine.profiles import Profile
from tradewind.engine.scheduler import EngineLimits
from tradewind.lab.experiments.what_if.changes import changed
from tradewind.lab.experiments.what_if.fleet import Fleet, fleet_of
from tradewind.lab.experiments.what_if.load import load_of
from tradewind.lab.experiments.what_if.setup import Setup, setup_of
from tradewind.lab.harness.experiment import Json, Trial
from tradewind.lab.simulated.policies import maker
from tradewind.measure.record import Record
from tradewind.measure.summary import summarise
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.invariants import run_checked
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.wan import PRIVATE, WanProfile
from tradewind.workload.mooncake import Trace

WARM_UP_RATIO = 0.1  # of the time: requests that arrive in it are not counted


def run(trial: Trial) -> dict[str, Json]:
    """Figures of one trial. Raises SetupError, UnknownPolicyError, OwnPolicyError."""
    setup, seed = setup_of(trial.args), int(trial.args["seed"] or 0)
    fleet = changed(described(setup), str(trial.args["what_if"]))
    trace, for_s = load_of(setup, seed=seed, factor=fleet.load)
    scenario = scenario_of(fleet, setup, trace, for_s=for_s)
    grid = SimGrid(scenario, maker(fleet.policy), seed=seed)
    result = run_checked(grid, replay="add --trial to the command") if setup.check else grid.run()
    return {"policy": fleet.policy, **_figures(result, scenario, setup), **_by_site(result, fleet, scenario)}


def described(setup: Setup) -> Fleet:
    """The fleet as it is."""
    return fleet_of(grid_of(setup), setup).fleet


def grid_of(setup: Setup) -> GridConfig:
    """The grid file. Raises ConfigError."""
    return load(setup.grid) if setup.grid.endswith(".json") else load_checked(setup.grid)


def scenario_of(fleet: Fleet, setup: Setup, trace: Trace, *, for_s: float) -> Scenario:
    """The fleet under this load, for the simulator. All what-ifs share one name, and with it their chance."""
    wan = WanProfile(wander_ratio=PRIVATE.wander_ratio, jitter_s=fleet.jitter_s)
    return Scenario(
        name="what-if",
        title=setup.grid,
        cells=tuple(
            CellSpec(
                cell_id=cell.cell_id,
                site=cell.site,
                profile=cell.profile,
                limits=EngineLimits(max_num_seqs=cell.max_num_seqs, block_size_tokens=trace.block_tokens),
            )
            for cell in fleet.cells
        ),
        numbers=tuple(cell.number for cell in fleet.cells),
        rtts_s=tuple(
            tuple(fleet.rtts_s[frozenset((site, cell.site))] for cell in fleet.cells) for site in fleet.gateways
        ),
        load=lambda _: trace,
        for_s=for_s,
        wan=wan,
        disturbance=setup.disturbance,
        warm_up_ratio=WARM_UP_RATIO,
    )


def _figures(result: RunResult, scenario: Scenario, setup: Setup) -> Mapping[str, Json]:
    from_s = scenario.warm_up_ratio * scenario.for_s
    records = [record for record in result.records if record.intended_s >= from_s]
    found = summarise(records, slo_ttft_s=setup.slo_ttft_s, for_s=scenario.for_s - from_s)
    prompt = sum(record.prompt_tokens for record in records)
    cached = sum(record.usage_cached_tokens or 0 for record in records)
    return {
        "requests": found.requests,
        "trace_hash": result.trace_hash,
        "success": found.success_ratio,
        "ttft_p50": found.ttft_s.p50,
        "ttft_p95": found.ttft_s.p95,
        "ttft_p99": found.ttft_s.p99,
        "e2e_p50": found.e2e_s.p50,
        "e2e_p95": found.e2e_s.p95,
        "e2e_p99": found.e2e_s.p99,
        "goodput": found.goodput_per_s,
        "good": found.good / found.requests if found.requests else None,
        "hit": cached / prompt if prompt else None,
    }


def _by_site(result: RunResult, fleet: Fleet, scenario: Scenario) -> Mapping[str, Json]:
    """Mean over a site's cells: utilisation by what arrived, and requests in flight."""
    found: dict[str, Json] = {}
    from_s = scenario.warm_up_ratio * scenario.for_s
    for site in fleet.sites:
        cells = {cell.cell_id: cell.profile for cell in fleet.cells if cell.site == site}
        here = [record for record in result.records if record.cell in cells and record.intended_s >= from_s]
        work_s = sum(work_of(cells[record.cell], record) for record in here if record.cell is not None)
        found[f"utilisation {site}"] = work_s / (scenario.for_s - from_s) / len(cells)
        held_s = sum(_held_s(record, scenario.for_s) for record in here)
        found[f"in flight {site}"] = held_s / (scenario.for_s - from_s) / len(cells)
    return found


def work_of(profile: Profile, record: Record) -> float:
    """Seconds of its GPU that a request takes in a full batch, where reading the weights is shared by all.

    What is left of the step law then. A GPU is at work as soon as one request is there, so its busy time says little;
    this is how much of it is taken, and above 1 the queue grows.
    """
    prompt, output = record.prompt_tokens, record.output_tokens
    uncached = prompt - (record.usage_cached_tokens or 0)
    prefill_s = profile.b_s * uncached + profile.e_s * uncached * (prompt - uncached / 2)
    return prefill_s + output * (profile.b_s + profile.c_s + profile.d_s * (prompt + output / 2))


def _held_s(record: Record, for_s: float) -> float:
    end_s = for_s if record.end_s is None else min(for_s, record.end_s)
    return max(0.0, end_s - record.intended_s)
