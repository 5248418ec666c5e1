"""Cells that die, come back, refuse, vanish, throttle, and lose their exporter; and what gateways make of it."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest

from tests.sim.policies import InTurn, in_turn
from tests.sim.test_grid import short
from tradewind.engine.board import Contention, Heat
from tradewind.lab.simulated.policies import maker
from tradewind.measure.record import Failure
from tradewind.model.cell import CellState
from tradewind.model.view import CellView, GridView
from tradewind.sim.carrier import PATH_TIMEOUT_S
from tradewind.sim.disturbances import PROFILES, described
from tradewind.sim.faults import (
    Change,
    Contended,
    Cut,
    Detour,
    Effect,
    Engine,
    Exporter,
    Foreign,
    Heated,
    Host,
    Limit,
    Noise,
)
from tradewind.sim.grid import RunResult, SimGrid
from tradewind.sim.invariants import InvariantBrokenError, run_checked
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy, WeightsPolicy
from tradewind.workload.classes import baseline_mixed

CELL = 4


class Watching(InTurn):
    """Round robin over READY cells that writes down how each view showed one cell."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, CellView]] = []
        self.rtts_s: list[float] = []

    def observe_view(self, view: GridView, now_s: float) -> None:
        super().observe_view(view, now_s)
        ready = [item.cell for item in view.cells if item.state is CellState.READY]
        self.cells = tuple((cell.cell_id, cell.address) for cell in ready)
        self.seen.append((now_s, view.cells[CELL]))

    def first(self, state: CellState, *, after_s: float) -> float:
        return next(at_s for at_s, view in self.seen if at_s > after_s and view.state is state)

    def flagged(self, flag: str) -> float:
        return next(at_s for at_s, view in self.seen if flag in view.telemetry.flags)


def world(*changes: tuple[float, Effect], for_s: float = 20.0, gate: bool = True, rate_per_s: float = 10.0) -> Scenario:
    """Nine cells at a moderate load; everything happens to the fifth."""
    return replace(
        short("S2-D", for_s=for_s),
        load=partial(baseline_mixed, rate_per_s=rate_per_s, for_s=for_s),
        disturbance="clean",
        changes=tuple(Change(at_s=at_s, cell=CELL, effect=effect) for at_s, effect in changes),
        gate=gate,
    )


def watched(scenario: Scenario) -> tuple[RunResult, Watching, SimGrid]:
    """A checked run under round robin."""
    policy = Watching()
    grid = SimGrid(scenario, lambda _: policy, seed=3)
    return run_checked(grid, replay="-"), policy, grid


def steered(scenario: Scenario, written: str) -> tuple[RunResult, Policy]:
    made: list[Policy] = []

    def make(of: Scenario) -> Policy:
        made.append(maker(written)(of))
        return made[-1]

    return run_checked(SimGrid(scenario, make, seed=3), replay="-"), made[0]


def kinds(result: RunResult) -> Counter[Failure]:
    return Counter(record.failure for record in result.records)


KILL: tuple[float, Effect] = (10.2, Engine(up=False))


def test_behind_the_gate_only_what_had_a_token_is_lost_with_an_engine() -> None:
    result, policy, _ = watched(world(KILL))
    assert kinds(result).keys() <= {Failure.NONE, Failure.BYTES_DELIVERED}
    assert kinds(result)[Failure.BYTES_DELIVERED] > 0
    again = [record for record in result.records if len(record.attempted) > 1]
    assert again
    assert all(record.ok and record.attempt_s is not None and record.attempt_s >= 10.2 for record in again)
    outcome = next(item for item in policy.outcomes.values() if item.attempts > 1)
    assert outcome.attempt_failures
    assert outcome.attempted_cells[-1] == outcome.cell_id


def test_without_a_gate_what_waits_in_an_engine_is_lost_with_it() -> None:
    changes: list[tuple[float, Effect]] = [(10.1, Foreign(prompt_tokens=8_000, output_tokens=4))] * 3 + [KILL]
    lost, _, _ = watched(world(*changes, gate=False))
    made_good, _, _ = watched(world(*changes))
    assert kinds(lost)[Failure.HEADERS_ONLY] > 0
    assert kinds(made_good)[Failure.HEADERS_ONLY] == 0


def test_a_request_that_two_engines_died_under_is_refused() -> None:
    kills = tuple(Change(at_s=5.0 + 0.03 * cell, cell=cell, effect=Engine(up=False)) for cell in range(9))
    scenario = replace(world(rate_per_s=50.0, for_s=6.0), changes=kills)
    result = run_checked(SimGrid(scenario, in_turn([]), seed=3), replay="-")
    refused = [record for record in result.records if record.status == 422]
    assert refused
    assert all(len(record.attempted) >= 2 for record in refused)


def test_an_engine_comes_back_cold_by_way_of_loading() -> None:
    result, policy, grid = watched(world(KILL, (12.0, Engine(up=True, load_s=5.0)), for_s=22.0))
    assert policy.first(CellState.FAULTED, after_s=10.0) == pytest.approx(10.31)
    assert policy.first(CellState.LOADING, after_s=10.5) == pytest.approx(17.1)
    assert policy.first(CellState.READY, after_s=10.5) == pytest.approx(18.1)
    assert {event.name for event in grid.feed.events if event.cell_id == policy.seen[0][1].cell.cell_id} >= {
        "cell.faulted", "cell.loading", "cell.ready",
    }  # fmt: skip
    served = [record.intended_s for record in result.records if record.cell == policy.seen[0][1].cell.cell_id]
    assert not [at_s for at_s in served if 10.4 < at_s < 18.0]
    assert [at_s for at_s in served if at_s > 18.2]
    starts = {view.telemetry.engine.start_time_s for _, view in policy.seen if view.telemetry.engine is not None}
    assert starts == {0.0, 17.0}


def test_a_hidden_limit_refuses_what_is_longer_and_only_there() -> None:
    result, policy, _ = watched(world((0.0, Limit(tokens=600))))
    cell_id = policy.seen[0][1].cell.cell_id
    refused = [record for record in result.records if record.status == 400]
    assert refused
    assert all(record.cell == cell_id and record.prompt_tokens + record.output_tokens > 600 for record in refused)
    served = [record for record in result.records if record.cell == cell_id and record.ok]
    assert served
    assert all(record.prompt_tokens + record.output_tokens <= 600 for record in served)
    assert policy.seen[0][1].cell.capabilities.max_model_len is None


def test_a_site_that_vanishes_is_found_out_by_silence_and_probes() -> None:
    result, policy, _ = watched(world((10.0, Cut(on=True)), (45.0, Cut(on=False)), for_s=50.0))
    assert 10.75 < policy.first(CellState.FAULTED, after_s=10.0) < 13.0
    assert policy.first(CellState.READY, after_s=14.0) > 45.0
    cut = [record for record in result.records if record.failure is Failure.BYTES_DELIVERED]
    assert all(record.end_s == pytest.approx(10.0 + PATH_TIMEOUT_S) for record in cut)
    assert cut
    tried = [record for record in result.records if len(record.attempted) > 1]
    assert all(record.ok for record in tried)


def test_what_comes_back_before_the_path_is_given_up_is_only_late() -> None:
    result, _, _ = watched(world((10.0, Cut(on=True)), (14.0, Cut(on=False))))
    assert kinds(result).keys() == {Failure.NONE}
    waited = [r for r in result.records if r.end_s is not None and 10.0 < r.intended_s < 14.0 < r.end_s]
    assert waited


def test_a_host_without_power_loses_its_engine_and_agent() -> None:
    result, policy, _ = watched(world((10.0, Host(up=False)), (14.0, Host(up=True, load_s=3.0))))
    assert policy.first(CellState.READY, after_s=14.0) == pytest.approx(18.1)
    assert {view.incarnation for _, view in policy.seen} == {"sim", "sim-1"}
    assert kinds(result)[Failure.BYTES_DELIVERED] > 0


def test_a_dead_exporter_is_flagged_and_the_rest_goes_on() -> None:
    _, policy, _ = watched(world((10.2, Exporter(mode="dead")), (17.0, Exporter(mode="ok")), for_s=23.0))
    assert policy.flagged("dcgm_fallback") == pytest.approx(10.31)
    late = [view.telemetry for at_s, view in policy.seen if 14.5 < at_s < 17.0]
    assert all(telemetry.gpu is None and telemetry.engine is not None for telemetry in late)
    last = policy.seen[-1][1].telemetry
    assert last.gpu is not None
    assert last.flags == ()


def test_frozen_values_are_found_out_and_their_age_is_not_the_sign() -> None:
    _, policy, _ = watched(world((10.0, Exporter(mode="frozen"))))
    assert 14.0 < policy.flagged("gpu_frozen") < 18.0
    before = [view.telemetry for at_s, view in policy.seen if 10.5 < at_s < 14.0]
    assert all(telemetry.gpu is not None and (telemetry.gpu_age_s or 0.0) < 1.1 for telemetry in before)


def test_heat_throttles_and_alerts_drain_the_cell_before_users_notice() -> None:
    scenario = world((5.0, Heated(heat=Heat())), for_s=40.0, rate_per_s=14.0)
    result, policy = steered(scenario, "weights")
    assert isinstance(policy, WeightsPolicy)
    alert = next(event for event in policy.steer.events if event.name == "alert.thermal")
    assert alert.cell_id == scenario.cells[CELL].cell_id
    assert 6.0 < alert.at_s < 14.0
    late = [record for record in result.records if record.intended_s > alert.at_s + 0.1]
    assert alert.cell_id not in {record.cell for record in late}
    clocks: list[float] = []
    grid = SimGrid(scenario, lambda _: InTurn(), seed=3)
    grid.loop.at(30.0, lambda: clocks.append(grid.cells[CELL].board.model.clock_ratio))
    blind = grid.run()
    assert clocks[0] < 0.5
    slow = [r.ttft_s for r in blind.records if r.cell == alert.cell_id and r.ttft_s is not None and r.intended_s > 20.0]
    assert max(slow) > 1.5


def test_contention_is_seen_once_the_usual_traffic_is_known() -> None:
    scenario = world((22.0, Contended(contention=Contention(terms=2.5))), for_s=32.0)
    # Boards begin cold here: what they get to in a few seconds is no limit.
    _, policy = steered(scenario, "weights;alerts.learn_s=20;temperature_margin_c=40;temperature_ahead_s=0")
    assert isinstance(policy, WeightsPolicy)
    alerts = [(event.name, event.cell_id) for event in policy.steer.events if event.at_s > 22.0]
    assert ("alert.pcie", scenario.cells[CELL].cell_id) in alerts


def test_foreign_requests_take_the_engine_and_no_outcome() -> None:
    foreign = [(1.0 + 0.2 * n, Foreign(prompt_tokens=1_024, output_tokens=128)) for n in range(100)]
    calm, _, _ = watched(world())
    result, policy, grid = watched(world(*foreign))
    assert len(policy.outcomes) == len(result.records)
    assert grid.foreign == 100

    def worst(run: RunResult) -> float:
        cell_id = policy.seen[0][1].cell.cell_id
        return max(record.ttft_s or 0.0 for record in run.records if record.cell == cell_id)

    assert worst(result) > worst(calm) + 0.3


def test_noise_is_drawn_alike_for_every_policy_and_shows_in_probes() -> None:
    scenario = world((0.0, Noise(deviation_s=0.050)))
    grids = [SimGrid(scenario, make, seed=5) for make in (in_turn([]), maker("envoy_least_request:N"))]
    for grid in grids:
        grid.run()
    ours, theirs = ([entry.noise for entry in grid.journal.entries] for grid in grids)
    assert ours == theirs
    assert len(set(ours)) > 100
    jitters = [way.deviation_s or 0.0 for way in grids[0].gateways[0].ways]
    assert jitters[CELL] > 5 * max(jitter for index, jitter in enumerate(jitters) if index != CELL)


def test_a_detour_makes_the_way_longer_for_requests_and_probes() -> None:
    grid = SimGrid(world((1.0, Detour(factor=3.0)), (6.0, Detour(factor=1.0))), in_turn([]), seed=5)
    way = grid.gateways[0].ways[CELL]
    seen = []
    while grid.step():
        if way.rtt_s is not None:
            seen.append((grid.loop.now_s, way.rtt_s / grid.scenario.rtts_s[0][CELL]))
    assert max(ratio for at_s, ratio in seen if at_s < 1.0) < 1.6
    assert min(ratio for at_s, ratio in seen if 3.0 < at_s < 6.0) > 2.4
    assert max(ratio for at_s, ratio in seen if at_s > 8.0) < 1.6


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_says_what_it_is_and_keeps_the_invariants(profile: str) -> None:
    assert described(profile).endswith(".")
    assert "\n" not in described(profile)
    for_s = 65.0 if profile == "regional-outage" else 34.0
    scenario = replace(world(for_s=for_s, rate_per_s=4.0), disturbance=profile)
    result = run_checked(SimGrid(scenario, maker("round_robin"), seed=2), replay="-")
    assert len(result.records) > 90


@pytest.mark.parametrize(
    ("written", "gate"),
    [("weights", True), ("cost", True), ("envoy_least_request:2", True), ("published:10", True), ("weights", False)],
)
def test_invariants_hold_whatever_dies(written: str, gate: bool) -> None:
    changes = (
        KILL, (11.0, Engine(up=True, load_s=0.5)), (13.0, Host(up=False)), (14.0, Host(up=True, load_s=0.5)),
        (16.0, Cut(on=True)), (18.0, Cut(on=False)),
    )  # fmt: skip
    scenario = world(*changes, gate=gate)
    others = tuple(Change(at_s=10.25, cell=cell, effect=Engine(up=False)) for cell in (0, 8))
    scenario = replace(scenario, changes=(*scenario.changes, *others))
    result, _ = steered(scenario, written)
    assert len({record.failure for record in result.records}) > 1


def test_deaths_and_retries_are_the_same_in_every_run() -> None:
    scenario = world(KILL, (11.0, Engine(up=True, load_s=0.5)), for_s=14.0)
    hashes = [SimGrid(scenario, maker("cost"), seed=seed).run().trace_hash for seed in (5, 5, 6)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_picker_drains_on_alerts_too() -> None:
    scenario = world((2.0, Heated(heat=Heat())))
    result, policy = steered(scenario, "cost")
    assert isinstance(policy, PicksPolicy)
    alert = next(event for event in policy.steer.events if event.name == "alert.thermal")
    assert alert.cell_id not in {r.cell for r in result.records if r.intended_s > alert.at_s + 0.1}


def test_a_request_lost_behind_the_gate_breaks_an_invariant() -> None:
    grid = SimGrid(world(KILL), in_turn([]), seed=3)
    for gateway in grid.gateways:
        gateway.carrier._gate = False  # a carrier that does not do what the scenario says
    with pytest.raises(InvariantBrokenError, match="lost before its first token, behind a gate"):
        run_checked(grid, replay="-")


def test_the_page_has_every_profile_and_every_effect() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/lab/disturbances.md").read_text(encoding="utf-8")
    for profile in PROFILES:
        assert f"| `{profile}` | {described(profile)} |" in page
    for effect in get_args(Effect):
        assert f"| `{effect.__name__}` |" in page
