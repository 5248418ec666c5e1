"""The whole scorer over a grid: what weights do when cells slow, fall silent, or lose their telemetry."""

import math
from dataclasses import replace
from random import Random

import pytest

from tests.unit.core.world import FakeCell, World, world
from tradewind.core.scoring import (
    BaselineScorer,
    PublishedScorer,
    Router,
    Scorer,
    ScoringSettings,
    WeightScorer,
    make_scorer,
    routing,
)
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.routing import WeightDecision, WeightRow
from tradewind.model.telemetry import EngineReading, GpuReading, Telemetry
from tradewind.model.view import CellView, GridView, PathReading, ViewVersion

DECODE_HEAVY = 2048


def heavy(cells: int = 9, **options: object) -> World:
    """A grid whose engines are always busy, so that speed can be read."""
    return world(cells, sizes=lambda rng: DECODE_HEAVY, seed=2, **options)


def test_equal_cells_have_equal_weights_and_few_pushes() -> None:
    grid = heavy().run(100.0)
    assert all(grid.weight(index) >= 127 for index in range(9))
    assert len(grid.pushes) <= 5


def test_a_slow_cell_loses_weight_in_seconds_and_gets_it_back() -> None:
    grid = heavy().run(30.0)
    grid.cell(3).speed = 0.4
    grid.run(35.0)
    assert grid.weight(3) <= 40
    grid.cell(3).speed = 1.0
    grid.run(50.0)
    assert grid.weight(3) >= 110


def test_a_throttled_clock_alone_is_enough() -> None:
    grid = heavy().run(30.0)
    grid.cell(3).clock = 0.5
    grid.run(33.0)
    assert grid.weight(3) <= 40


def test_hardware_classes_are_not_compared_with_each_other() -> None:
    cells = [FakeCell(f"c{index}", hardware="h200" if index < 3 else "rtx-pro-6000") for index in range(9)]
    for cell in cells[3:]:
        cell.speed = 0.5
    grid = World(cells, seed=2, sizes=lambda rng: DECODE_HEAVY).run(40.0)
    assert all(grid.weight(index) >= 100 for index in range(9))


def test_a_capacity_prior_multiplies() -> None:
    settings = ScoringSettings(capacity_prior=(("c0", 2.0), ("c1", 99.0), ("c2", 0.01)))
    grid = World([FakeCell(f"c{index}") for index in range(4)], scorer=WeightScorer(settings), seed=2).run(20.0)
    rows = [grid.row(index) for index in range(4)]
    assert [row.capacity for row in rows if row is not None] == [2.0, 2.0, 0.5, 1.0]
    assert grid.weight(3) == pytest.approx(67, abs=4)


# --- telemetry that fails ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 4, 8])
def test_exporter_death_raises_the_flag_and_leaves_the_share(index: int) -> None:
    grid = heavy().run(40.0)
    before = grid.share(index, 10.0)
    grid.cell(index).gpu = False
    grid.run(45.0)
    row = grid.row(index)
    assert row is not None
    assert "dcgm_fallback" in row.flags
    grid.run(75.0)
    assert grid.share(index, 45.0) == pytest.approx(before, rel=0.2)


def test_a_flag_that_an_agent_raises_shows_in_the_next_tick_not_in_the_next_second() -> None:
    grid = heavy().run(40.2)
    fallen = grid.cell(4)
    fallen.telemetry = replace(fallen.telemetry, flags=("dcgm_fallback",))
    grid.refresh()
    row = grid.row(4)
    assert row is not None
    assert "dcgm_fallback" in row.flags


def test_every_exporter_dead_leaves_the_weights() -> None:
    grid = heavy().run(40.0)
    for cell in grid.cells:
        cell.gpu = False
    grid.run(60.0)
    assert all(grid.weight(index) >= 120 for index in range(9))


def test_fc_36_frozen_idle_looking_values_do_not_raise_a_share() -> None:
    class Frozen(FakeCell):
        def scrape(self, now_s: float, rng: Random) -> None:
            super().scrape(now_s, rng)
            if now_s >= 30.0:
                idle = GpuReading(
                    gpus=1, util_ratio=0.03, vram_ratio=0.93, sm_active_ratio=0.0, tensor_active_ratio=0.0
                )
                self.telemetry = replace(self.telemetry, gpu=idle)

    cells = [FakeCell(f"c{index}") for index in range(8)]
    grid = World([*cells, Frozen("c8")], seed=2, sizes=lambda rng: DECODE_HEAVY).run(30.0)
    before = grid.weight(8)
    grid.run(60.0)
    row = grid.row(8)
    assert row is not None
    assert "gpu_frozen" in row.flags
    assert grid.weight(8) <= before * 1.05


def test_fc_05_every_third_scrape_lost_pushes_nothing() -> None:
    class Flaky(FakeCell):
        def scrape(self, now_s: float, rng: Random) -> None:
            if int(now_s) % 3:
                super().scrape(now_s, rng)

    cells = [FakeCell(f"c{index}") for index in range(8)]
    grid = World([*cells, Flaky("c8")], seed=2, sizes=lambda rng: DECODE_HEAVY).run(30.0)
    before, weights = len(grid.pushes), [grid.weight(index) for index in range(9)]
    grid.run(90.0)
    moved = [push for _, push in grid.pushes[before:] if any(abs(push[f"c{i}"] - weights[i]) > 13 for i in range(9))]
    assert len(moved) <= 1
    assert not [event for event in grid.events if event.name.startswith("cell.") and event.at_s > 30.0]


def test_fc_41_a_silent_cell_keeps_its_traffic_while_requests_succeed() -> None:
    grid = heavy().run(40.0)
    before = grid.share(3, 10.0)
    grid.cell(3).silent = True
    grid.run(160.0)
    assert grid.share(3, 41.0) >= 0.8 * before
    assert grid.share(3, 41.0) <= 1.05 * before
    row = grid.row(3)
    assert row is not None
    assert row.blind
    grid.cell(3).silent = False
    grid.run(162.5)
    assert grid.weight(3) >= 120


def test_a_blind_cell_without_traffic_gets_half_of_the_median() -> None:
    grid = heavy(rate_per_s=0.01).run(20.0)
    grid.cell(3).silent = True
    grid.run(27.0)
    assert grid.weight(3) == 134  # 3 s until the last values are stale, then held for 5 s
    grid.run(30.0)
    assert grid.weight(3) == pytest.approx(67, abs=3)


def test_a_missed_heartbeat_or_two_is_no_blindness() -> None:
    grid = heavy().run(20.0)
    for _ in range(5):
        grid.cell(3).silent = True
        grid.run(grid.now_s + 2.0)
        grid.cell(3).silent = False
        grid.run(grid.now_s + 2.0)
    assert not [event for event in grid.events if event.at_s > 1.0]


def test_a_blind_cell_that_is_seen_to_be_slow_gets_least() -> None:
    grid = heavy().run(30.0)
    grid.cell(3).silent = True
    grid.cell(3).speed = 0.1  # TTFT 2 s against 0.2 s, SLO 1.5 s
    grid.run(60.0)
    assert grid.weight(3) == 1


def test_fc_06_all_telemetry_gone_keeps_every_weight_and_says_so() -> None:
    grid = heavy().run(30.0)
    grid.cell(3).speed = 0.4
    grid.run(40.0)
    before = [grid.weight(index) for index in range(9)]
    pushes = len(grid.pushes)
    grid.heartbeats = False
    grid.run(160.0)
    assert all(abs(grid.weight(index) - before[index]) <= 2 for index in range(9))
    assert len(grid.pushes) <= pushes + 1
    assert [event.name for event in grid.events if event.name.startswith("observer")] == ["observer.blind"]


def test_fc_06_all_paths_failing_at_once_ejects_nobody() -> None:
    grid = heavy().run(30.0)
    for _ in range(5):
        for cell in grid.cells:
            grid.scorer.observe_path(PathReading(cell_id=cell.cell_id, reachable=False), grid.now_s)
    decision = grid.scorer.tick(grid.now_s, grid.rng)
    assert not [row for row in decision.rows if row.drained]
    assert [event.name for event in decision.events] == ["observer.cut-off"]


def test_one_unreachable_cell_is_ejected_at_once_and_returns() -> None:
    grid = heavy().run(30.0)
    for _ in range(2):
        grid.scorer.observe_path(PathReading(cell_id="c3", reachable=False), grid.now_s)
    decision = grid.scorer.tick(grid.now_s, grid.rng)
    assert [row.cell_id for row in decision.rows if row.drained] == ["c3"]
    assert decision.push
    grid.run(50.0)
    assert grid.weight(3) >= 120


def test_cells_of_other_readings_are_left_alone() -> None:
    """One cell's garbage changes no other cell's raw signals."""
    rng = Random(1)
    grid, twin = heavy(4).run(20.0), heavy(4).run(20.0)
    garbage = Telemetry(
        engine=EngineReading(queue_requests=math.nan, kv_fill_ratio=37.5, steps_total=-1.0, running_requests=math.inf),
        engine_age_s=0.0,
        gpu=GpuReading(gpus=0, util_ratio=math.inf, sm_clock_hz=math.nan, temperature_c=1e9),
        gpu_age_s=math.nan,
        gpu_interval_s=math.nan,
    )
    for one in (grid, twin):
        views = [cell.view(20.5) for cell in one.cells]
        if one is grid:
            views[2] = replace(views[2], telemetry=garbage)
        one.scorer.observe_view(tuple(views), 20.5)
        one.decision = one.scorer.tick(21.0, rng)
    for index in (0, 1, 3):
        row, other = grid.row(index), twin.row(index)
        assert row is not None
        assert other is not None
        assert row.signals == other.signals
    assert all(1 <= row.weight <= 134 for row in grid.decision.rows)


# --- life cycle, ramps, pools -----------------------------------------------------------------------------------


def test_only_ready_cells_have_rows_and_membership_pushes_at_once() -> None:
    grid = heavy().run(20.0)
    grid.cell(3).state = CellState.FAULTED
    grid.refresh()
    assert grid.weight(3) == 0
    assert [row.cell_id for row in grid.decision.rows] == [f"c{index}" for index in range(9) if index != 3]


def test_a_cell_that_comes_back_is_warmed_up_slowly() -> None:
    grid = heavy().run(20.0)
    grid.cell(3).state = CellState.LOADING
    grid.run(25.0)
    grid.cell(3).state = CellState.READY
    grid.refresh()
    assert 1 <= grid.weight(3) <= 14
    grid.run(60.0)
    assert grid.weight(3) >= 120  # prompts without reuse: 30 s by clock


def test_an_undrained_cell_is_still_warm() -> None:
    grid = heavy().run(20.0)
    grid.cell(3).state = CellState.DRAINING
    grid.run(25.0)
    grid.cell(3).state = CellState.READY
    grid.run(27.0)
    assert grid.weight(3) >= 100


def test_the_first_view_ramps_nobody() -> None:
    grid = heavy().run(1.0)
    assert all(grid.weight(index) == 134 for index in range(9))


def view_of(cell_id: str, *models: str, state: CellState = CellState.READY) -> CellView:
    cell = Cell(cell_id=cell_id, site="a", address=f"10.0.0.1:{len(cell_id)}", capabilities=Capabilities(models=models))
    return CellView(cell=cell, state=state, incarnation="i", sequence=1)


def rows(**weights: int) -> WeightDecision:
    made = tuple(WeightRow(cell_id=cell_id, weight=weight) for cell_id, weight in weights.items())
    return WeightDecision(rows=made, push=True)


def test_pools_are_by_model_and_sorted() -> None:
    views = (view_of("b", "base", "lora"), view_of("a", "base"), view_of("c", "other", state=CellState.LOADING))
    pools = routing(rows(a=134, b=20), views, {"a": "127.0.0.1:9"}, ("known",)).pools
    assert [(pool.model, [(e.cell_id, e.weight) for e in pool.endpoints]) for pool in pools] == [
        ("base", [("a", 134), ("b", 20)]),
        ("known", []),
        ("lora", [("b", 20)]),
        ("other", []),
    ]
    assert pools[0].endpoints[0].address == "127.0.0.1:9"


def test_a_drained_cell_stays_where_it_is_the_last() -> None:
    views = (view_of("a", "base"), view_of("b", "base", "lora"))
    decision = WeightDecision(
        rows=(WeightRow(cell_id="a", weight=134), WeightRow(cell_id="b", weight=1, drained=True)), push=True
    )
    pools = {pool.model: [e.cell_id for e in pool.endpoints] for pool in routing(decision, views, {}).pools}
    assert pools == {"base": ["a"], "lora": ["b"]}


def test_a_ready_cell_without_a_row_starts_lowest() -> None:
    pools = routing(rows(a=134), (view_of("a", "m"), view_of("b", "m")), {}).pools
    assert [endpoint.weight for endpoint in pools[0].endpoints] == [134, 1]


def test_a_router_keeps_endpoints_that_have_not_changed() -> None:
    router, views = Router({}), (view_of("a", "m"), view_of("b", "m"))
    first = router.build(rows(a=134, b=100), views).pools[0].endpoints
    second = router.build(rows(a=134, b=50), views).pools[0].endpoints
    assert first[0] is second[0]
    assert second[1].weight == 50


def test_pools_that_share_no_model_have_their_own_best() -> None:
    scorer = WeightScorer(ScoringSettings(capacity_prior=(("a1", 2.0), ("b1", 0.5), ("b2", 0.5))))
    fast = Telemetry(engine=EngineReading(queue_requests=0.0, kv_fill_ratio=0.1), engine_age_s=0.0)
    views = tuple(
        replace(view_of(cell_id, model), telemetry=fast)
        for cell_id, model in (("a1", "x"), ("a2", "x"), ("b1", "y"), ("b2", "y"))
    )
    scorer.observe_view(views, 1.0)
    weights = {row.cell_id: row.weight for row in scorer.tick(1.0, Random(1)).rows}
    assert weights == {"a1": 134, "a2": 67, "b1": 134, "b2": 134}


def test_a_grid_view_and_its_cells_are_the_same_to_a_scorer() -> None:
    views = (view_of("a", "m"), view_of("b", "m"))
    version = ViewVersion(control_id="c", incarnation="i", counter=1)
    results = []
    for view in (views, GridView(version=version, cells=views)):
        scorer = WeightScorer(ScoringSettings())
        assert scorer.observe_view(view, 1.0)
        results.append(scorer.tick(1.0, Random(1)).rows)
    assert results[0] == results[1]


# --- the other scorers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["round-robin", "least-request", "least-request:9", "random"])
def test_a_baseline_pushes_membership_and_nothing_else(baseline: str) -> None:
    grid = heavy(scorer=make_scorer("recipe", baseline, ScoringSettings())).run(20.0)
    grid.cell(3).speed = 0.2
    grid.cell(4).answer = lambda size: 500
    grid.run(60.0)
    assert len(grid.pushes) == 1
    grid.cell(3).state = CellState.FAULTED
    grid.run(70.0)
    assert len(grid.pushes) == 2
    assert set(grid.pushes[-1][1].values()) == {134}


@pytest.mark.parametrize(("scoring", "names"), [("published", 10), ("published-v2", 8)])
def test_the_published_form_weighs_its_signals(scoring: str, names: int) -> None:
    grid = heavy(scorer=make_scorer(scoring, "", ScoringSettings())).run(20.0)
    row = grid.row(0)
    assert row is not None
    assert len(row.signals) == names
    grid.cell(3).answer = lambda size: 400
    grid.run(60.0)
    faulty = grid.row(3)
    assert faulty is not None
    assert dict(faulty.signals)["errors"] == pytest.approx(1.0, abs=0.05)
    assert len({row.weight for row in grid.decision.rows}) > 1


def test_an_unknown_scoring_is_refused() -> None:
    with pytest.raises(ValueError, match="oracle"):
        make_scorer("oracle", "", ScoringSettings())


@pytest.mark.parametrize("scoring", ["recipe", "published", "published-v2"])
def test_an_empty_view_is_no_trouble(scoring: str) -> None:
    scorer: Scorer = make_scorer(scoring, "", ScoringSettings())
    scorer.observe_view((), 0.0)
    assert scorer.tick(0.0, Random(1)).rows == ()
    assert isinstance(make_scorer("recipe", "random", ScoringSettings()), BaselineScorer)
    assert isinstance(make_scorer("published", "", ScoringSettings()), PublishedScorer)


def test_a_baseline_says_whom_it_is_blind_to_now() -> None:
    scorer = make_scorer("recipe", "round-robin", ScoringSettings())
    cell = Cell(cell_id="a", site="s", address="10.0.0.1:8000", capabilities=Capabilities(models=("m",)))
    heard = CellView(cell=cell, state=CellState.READY, incarnation="1", sequence=1)
    told = []
    for silent in (False, False, True, False):
        scorer.observe_view((replace(heard, silent=silent),), 0.0)
        told += [row.blind for row in scorer.tick(0.0, Random(0)).rows]
    assert told == [False, False, True, False]
