"""Scoring and Envoy's policies in virtual time: what is heard, when it is pushed, and what follows from it."""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.policies import InTurn
from tests.sim.test_grid import short
from tradewind.core.scoring import make_scorer
from tradewind.engine.law import SlowDown
from tradewind.lab.simulated.policies import UnknownPolicyError, maker
from tradewind.lab.simulated.steered import SETTINGS
from tradewind.model.cell import CellState
from tradewind.model.routing import ProbeOrder
from tradewind.model.view import GridView
from tradewind.sim.cell import SimCell
from tradewind.sim.envoy import LeastRequest, RoundRobin, Shares
from tradewind.sim.grid import SimGrid
from tradewind.sim.invariants import run_checked
from tradewind.sim.journal import BYTES_PER_TOKEN
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PUSH_DELAY_S, PicksPolicy, Steer, WeightsPolicy

ROOT = Path(__file__).resolve().parents[2]
STEERED = (
    "weights",
    "published:8",
    "published:10",
    "envoy_round_robin",
    "envoy_least_request:2",
    "envoy_least_request:N",
    "envoy_random",
    "pressure",
    "cost",
)


def run_kept(written: str, scenario: Scenario, *, seed: int = 3) -> tuple[SimGrid, list[Policy]]:
    """A checked run, and the policies of its gateways."""
    made: list[Policy] = []

    def make(of: Scenario) -> Policy:
        made.append(maker(written)(of))
        return made[-1]

    grid = SimGrid(scenario, make, seed=seed)
    run_checked(grid, replay="-")
    return grid, made


@pytest.mark.parametrize("written", STEERED)
def test_every_form_serves_all(written: str) -> None:
    grid, made = run_kept(written, short("S5b-1s", for_s=10.0))
    assert len(made) == 2
    assert all(record.ok for record in grid.result().records)
    assert len({record.cell for record in grid.result().records}) == 9


def test_hash_seed_of_the_interpreter_does_not_matter_to_scoring() -> None:
    code = (
        "from tests.sim.test_grid import short; from tests.sim.test_steered import STEERED\n"
        "from tradewind.lab.simulated.policies import maker; from tradewind.sim.grid import SimGrid\n"
        "print([SimGrid(short('S2-D', for_s=6.0), maker(name), seed=5).run().trace_hash for name in STEERED])"
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


def test_a_slow_cell_gets_less_and_the_rest_its_share() -> None:
    scenario = replace(short("S2-D", for_s=30.0), disturbance="clean")
    made: list[Policy] = []

    def make(of: Scenario) -> Policy:
        made.append(maker("weights")(of))
        return made[-1]

    grid = SimGrid(scenario, make, seed=3)
    grid.loop.at(10.0, lambda: grid.cells[4].slow_down(SlowDown(w=2.5, b=2.5, c=2.5, d=2.5, e=2.5, a0=2.5)))
    grid.run()
    (policy,) = made
    assert isinstance(policy, WeightsPolicy)
    slow = scenario.cells[4].cell_id
    before = [weights[slow] for at_s, weights in policy.pushes if at_s <= 10.0]
    after = [weights[slow] for at_s, weights in policy.pushes if at_s > 16.0]
    assert min(before) > 100
    assert max(after) < 70
    assert all(max(weights.values()) == 134 for _, weights in policy.pushes)


def test_a_push_takes_effect_a_little_later_the_first_at_once() -> None:
    policy = WeightsPolicy(Steer(make_scorer("recipe", "", SETTINGS)), Shares, name="weights")
    grid = SimGrid(short("S2-D"), lambda _: InTurn(), seed=3)
    view = grid.feed.view(0.0)
    rng = random.Random(1)
    policy.observe_view(view, 0.0)
    policy.tick(0.0, rng)
    lost = replace(view, cells=(replace(view.cells[0], state=CellState.FAULTED), *view.cells[1:]))
    for at_s in (0.0, *40 * (0.5,)):
        policy.pick(grid.gateways[0]._request(0, grid.journal.entries[0].traced, ()), now_s=at_s, rng=rng)
    policy.observe_view(lost, 0.6)
    hurries = [policy.urgent]
    policy.tick(0.61, rng)
    assert [*hurries, policy.urgent] == [True, False]
    picked = [
        policy.pick(grid.gateways[0]._request(0, grid.journal.entries[0].traced, ()), now_s=0.62, rng=rng)
        for _ in range(40)
    ]
    gone = view.cells[0].cell.cell_id
    assert gone not in {getattr(decision, "cell_id", "") for decision in picked}
    assert gone not in {cell_id for decision in picked for cell_id in getattr(decision, "alternatives", ())}
    assert [at_s for at_s, _ in policy.pushes] == pytest.approx([0.0, 0.61 + PUSH_DELAY_S])


class Probing(InTurn):
    """Asks for one probe at its second tick and writes down the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.ticks: list[float] = []
        self.answers: list[tuple[float, int]] = []
        self.urgent = False

    def observe_view(self, view: GridView, now_s: float) -> None:
        super().observe_view(view, now_s)
        self.urgent = len(self.views) == 4

    def tick(self, now_s: float, rng: random.Random) -> Sequence[ProbeOrder]:
        self.ticks.append(now_s)
        self.urgent = False
        order = ProbeOrder(cell_id="a-near-0", model="sim", prompt_bytes=BYTES_PER_TOKEN * 2_000, max_tokens=1)
        return [order, order] if len(self.ticks) == 2 else []

    def probed(self, order: ProbeOrder, status: int, now_s: float) -> None:
        self.answers.append((now_s, status))


def test_a_policy_that_ticks_is_called_each_second_and_soon_when_urgent() -> None:
    made: list[Probing] = []

    def make(_: Scenario) -> Probing:
        made.append(Probing())
        return made[-1]

    SimGrid(short("S2-D", for_s=4.0), make, seed=3).run()
    (policy,) = made
    assert policy.ticks[:3] == pytest.approx([0.0, 1.01, 1.11])  # the fourth view came at 1.1
    assert policy.ticks[3] == pytest.approx(2.12)
    ((at_s, status),) = policy.answers  # one at a time for each cell
    assert status == 200
    assert at_s > policy.ticks[1] + 2_000 * 0.5e-3


def test_the_scorer_beside_the_picker_drains_for_it() -> None:
    _, made = run_kept("cost", short("S2-D"))
    (policy,) = made
    assert isinstance(policy, PicksPolicy)
    assert {row.cell_id for row in policy.steer.rows} == {cell.cell_id for cell in short("S2-D").cells}
    assert all(policy.picker.fleet.get(row.cell_id).weight == row.weight for row in policy.steer.rows)  # type: ignore[union-attr]


def test_readings_show_what_clients_of_the_engine_waited() -> None:
    grid, _ = run_kept("envoy_round_robin", short("S2-D"))
    readings = [cell.reading() for cell in grid.cells]
    records = grid.result().records
    counts = [reading.ttft_s.counts[-1] for reading in readings if reading.ttft_s is not None]
    assert sum(counts) == len(records) == sum(reading.finished_total or 0 for reading in readings)
    waited_s = sum(reading.ttft_s.total or 0.0 for reading in readings if reading.ttft_s is not None)
    seen_s = sum(record.ttft_s or 0.0 for record in records)
    assert 0.9 * seen_s < waited_s < seen_s
    gaps = sum(reading.itl_s.counts[-1] for reading in readings if reading.itl_s is not None)
    assert gaps == sum(record.output_tokens - 1 for record in records)
    streamed_s = sum(reading.itl_s.total or 0.0 for reading in readings if reading.itl_s is not None)
    assert streamed_s == pytest.approx(sum((record.e2e_s or 0) - (record.ttft_s or 0) for record in records), rel=0.02)


def test_envoys_round_robin_takes_hosts_in_turn_also_over_pushes() -> None:
    rng = random.Random(4)
    balancer = RoundRobin()
    balancer.update(dict.fromkeys("abc", 134), rng)
    turns = [balancer.pick({}, rng) for _ in range(6)]
    assert turns[:3] == turns[3:]
    assert sorted(turns[:3]) == ["a", "b", "c"]
    balancer.update(dict.fromkeys("abcd", 134), rng)
    assert sorted(balancer.pick({}, rng) for _ in range(4)) == ["a", "b", "c", "d"]


def test_envoys_least_request_draws_with_replacement_and_n_looks_at_all() -> None:
    rng = random.Random(4)
    active = {"a": 9, "b": 1, "c": 1}
    two, every = LeastRequest(2), LeastRequest(0)
    for balancer in (two, every):
        balancer.update(dict.fromkeys("abcd", 134), rng)
    drawn = Counter(two.pick(active, rng) for _ in range(16_000))
    assert drawn["a"] / 16_000 == pytest.approx(1 / 16, abs=0.01)  # both draws met it
    assert drawn["d"] / 16_000 == pytest.approx(7 / 16, abs=0.02)
    assert {every.pick(active, rng) for _ in range(50)} == {"d"}
    assert {every.pick(active | {"d": 1}, rng) for _ in range(99)} == {"b", "c", "d"}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("weights;gama=2", "no constant of the weights: probes, .*projection.gamma"),
        ("weights;window_s=2", "several constants of the weights: speed.window_s"),
        ("weights;gamma=much", "gamma=much.* is not a float"),
        ("weights;probes=2", "neither 0 nor 1"),
        ("envoy_least_request:1", "from 2, or N"),
        ("envoy_round_robin:2", "has no option"),
        ("envoy_random;gamma=2", "no constants"),
        ("published:9", "published:8 or published:10"),
    ],
)
def test_a_wrong_form_says_what_there_is(written: str, told: str) -> None:
    with pytest.raises(UnknownPolicyError, match=told):
        maker(written)


def test_constants_of_the_recipe_can_be_changed() -> None:
    scenario = short("S2-D")
    forms = ("weights", "weights;gamma=8", "weights;speed.window_s=4;probes=0")
    assert len({SimGrid(scenario, maker(form), seed=1).run().trace_hash for form in forms}) == 3


def test_a_probe_takes_longer_on_a_slow_cell() -> None:
    grid = SimGrid(short("S2-D"), lambda _: InTurn(), seed=3)
    cell: SimCell = grid.cells[0]
    healthy = cell.probed(500)
    cell.slow_down(SlowDown(b=2.0))
    assert cell.probed(500)[1] > 1.5 * healthy[1]
