"""A simulated grid: conservation, causality, determinism, and exactness of its shortcuts."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.sim.policies import AtRandom, InTurn, in_turn
from tradewind.engine.law import SlowDown
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits
from tradewind.engine.sequence import Sequence, SequenceRequest
from tradewind.sim.cell import CellEvents, SimCell
from tradewind.sim.grid import SimGrid
from tradewind.sim.invariants import InvariantBrokenError, run_checked
from tradewind.sim.loop import EventLoop
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.scenarios import SCENARIOS, scenario_named
from tradewind.workload.art import art_trace
from tradewind.workload.classes import baseline_mixed, hot_prefix
from tradewind.workload.sessions import MULTITURN, sessions
from tradewind.workload.streams import stream

ROOT = Path(__file__).resolve().parents[2]


def short(name: str, *, for_s: float = 20.0) -> Scenario:
    """A declared scenario with a few seconds of the same kind of load."""
    whole = scenario_named(name)
    loads = {
        "S1-ts1": lambda rng: art_trace(rng, for_s=for_s),
        "S2-D": lambda rng: baseline_mixed(rng, rate_per_s=14.0, for_s=for_s),
        "S2-multiturn": lambda rng: sessions(rng, MULTITURN, rate_per_s=4.0, for_s=for_s),
        "S4-D": lambda rng: hot_prefix(rng, rate_per_s=13.0, for_s=for_s),
        "S5b-1s": lambda rng: baseline_mixed(rng, rate_per_s=14.0, for_s=for_s),
    }
    return replace(whole, load=loads[name], for_s=for_s)


@pytest.mark.parametrize("name", ["S1-ts1", "S2-D", "S2-multiturn", "S4-D", "S5b-1s"])
def test_every_request_ends_once_and_invariants_hold(name: str) -> None:
    made: list[InTurn] = []
    scenario = short(name)
    result = run_checked(SimGrid(scenario, in_turn(made), seed=3), replay="-")
    assert len(made) == len(scenario.rtts_s)
    assert len(result.records) > 30
    assert all(record.ok for record in result.records)
    told = [policy for policy in made for _ in policy.outcomes]
    assert len(told) == len(result.records)
    assert all(policy.firsts.keys() == policy.outcomes.keys() == policy.picked.keys() for policy in made)


def test_a_first_token_needs_the_path_ingest_and_prefill() -> None:
    scenario = short("S2-D")
    base_s = {cell.cell_id: rtt_s for cell, rtt_s in zip(scenario.cells, scenario.rtts_s[0], strict=True)}
    for record in SimGrid(scenario, in_turn([]), seed=3).run().records:
        assert record.cell is not None
        assert record.ttft_s is not None
        prefill_s = 0.5e-3 * record.prompt_tokens
        assert record.ttft_s > 0.5 * base_s[record.cell] + 15e-3 + prefill_s


def test_same_seed_same_trace_other_seed_other_trace() -> None:
    scenario = short("S4-D")
    hashes = [SimGrid(scenario, lambda _: AtRandom(), seed=seed).run().trace_hash for seed in (5, 5, 6)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_hash_seed_of_the_interpreter_does_not_matter() -> None:
    code = (
        "from tests.sim.test_grid import short; from tests.sim.policies import AtRandom; "
        "from tradewind.sim.grid import SimGrid; "
        "print(SimGrid(short('S1-ts1'), lambda _: AtRandom(), seed=5).run().trace_hash)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1


def test_policies_meet_the_same_world() -> None:
    scenario = short("S2-D")
    ours, theirs = (SimGrid(scenario, make, seed=9) for make in (in_turn([]), lambda _: AtRandom()))
    ours.run()
    theirs.run()
    assert [entry.traced for entry in ours.journal.entries] == [entry.traced for entry in theirs.journal.entries]
    assert [entry.late_s for entry in ours.journal.entries] == [entry.late_s for entry in theirs.journal.entries]
    # Asked in another order and at other times, the network was the same.
    paths = [[way.path.rtt_s(12.5) for way in grid.gateways[0].ways] for grid in (ours, theirs)]
    assert paths[0] == paths[1]


def test_telemetry_is_late() -> None:
    made: list[InTurn] = []
    SimGrid(short("S2-D"), in_turn(made), seed=3).run()
    assert made[0].views[0] == 0.0
    assert made[0].views[1] == pytest.approx(0.1)  # the beat at 0 is here 100 ms later
    assert set(made[0].paths) == {cell.cell_id for cell in SCENARIOS["S2-D"].cells}


def test_a_view_is_as_late_as_the_scenario_says() -> None:
    made: list[InTurn] = []
    scenario = short("S2-D")
    SimGrid(replace(scenario, delays=replace(scenario.delays, view_s=2.0)), in_turn(made), seed=3).run()
    assert made[0].views[:2] == [0.0, 2.0]


def test_gateways_hear_of_each_other_in_the_given_period() -> None:
    made: list[InTurn] = []
    SimGrid(short("S5b-1s"), in_turn(made), seed=3).run()
    first, second = made
    assert [at_s for at_s, _ in first.others][:3] == pytest.approx([0.1, 1.1, 2.1])
    heard = first.others[10][1]["a-near-0"]
    at_s = second.others[10][0] - 0.1
    open_then = sum(1 for picked_s in second.picked.values() if picked_s <= at_s)
    assert 0 < heard.requests <= open_then
    assert heard.age_s == pytest.approx(0.1)


def test_a_broken_invariant_tells_how_to_replay_it() -> None:
    grid = SimGrid(short("S2-D"), in_turn([]), seed=3)
    grid.gateways[0].in_flight = -1
    with pytest.raises(InvariantBrokenError, match="replay: tradewind sim compare --scenario X"):
        run_checked(grid, replay="tradewind sim compare --scenario X")


@pytest.mark.parametrize(("seed", "block_tokens"), [(0, 64), (1, 64), (2, 64), (3, 4)])
def test_runs_of_steps_give_what_single_steps_give(seed: int, block_tokens: int) -> None:
    singly, in_runs = (times_of_a_cell(most_steps=steps, seed=seed, block_tokens=block_tokens) for steps in (1, 16))
    assert singly == in_runs


def times_of_a_cell(
    *, most_steps: int, seed: int, block_tokens: int
) -> tuple[list[tuple[int, float, float]], list[object]]:
    """When each request's first and last token came, and what scrapes showed, with a small cache and a slow-down."""
    loop = EventLoop()
    times: list[tuple[int, float, float]] = []

    def last(sequence: Sequence) -> None:
        assert sequence.first_token_s is not None
        times.append((sequence.request.seq_id, sequence.first_token_s, loop.now_s))

    spec = CellSpec(
        cell_id="c",
        site="s",
        profile=PROFILES["rtx-pro-6000"],
        limits=EngineLimits(block_size_tokens=block_tokens, kv_capacity_tokens=12_000, max_num_seqs=24),
    )
    cell = SimCell(spec=spec, loop=loop, tell=CellEvents(first=lambda _: None, last=last), most_steps=most_steps)
    rng = stream(seed, "cell")
    for number in range(60):
        blocks = tuple(range(rng.randrange(3) * 100, 1000))[:4]
        request = SequenceRequest(
            seq_id=number,
            prompt_tokens=rng.randint(10, 900),
            output_tokens=rng.randint(1, 200),
            block_hashes=blocks,
        )
        loop.at(rng.uniform(0, 12), partial(cell.submit, request))
    loop.at(5.0, lambda: cell.slow_down(SlowDown(w=2.5, b=2.5)))
    readings: list[object] = []
    loop.every(0.7, lambda: readings.append(cell.reading()), until_s=30.0)
    while loop.step(until_s=500.0):
        pass
    cell.engine.pool.check()
    return times, readings
