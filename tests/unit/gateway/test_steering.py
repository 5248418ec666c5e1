"""What reaches Envoy: nothing too early, nothing emptied for want of knowledge, no push inside the dead band."""

import random
from dataclasses import dataclass, field, replace

from tradewind.gateway.merge import ViewMerger
from tradewind.gateway.saved import SavedState
from tradewind.gateway.steering import Steering
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder, Routing, WeightDecision, WeightRow
from tradewind.model.view import CellView, GridView, PathReading, ViewDelta, ViewVersion

READY, FAULTED, LOADING = CellState.READY, CellState.FAULTED, CellState.LOADING


@dataclass
class FakeScorer:
    """Gives the weights it was told to; READY cells only, as the real one does."""

    weights: dict[str, int] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    blind: set[str] = field(default_factory=set)
    push: bool = True
    cells: tuple[CellView, ...] = ()

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        self.cells = view.cells if isinstance(view, GridView) else view
        return False

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        return False

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        return False

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        return False

    def tick(self, now_s: float, rng: random.Random) -> WeightDecision:
        ready = [item.cell.cell_id for item in self.cells if item.state is READY]
        rows = tuple(
            WeightRow(
                cell_id=cell_id,
                weight=self.weights.get(cell_id, 100),
                drained=cell_id in self.drained,
                blind=cell_id in self.blind,
            )
            for cell_id in ready
        )
        return WeightDecision(rows=rows, push=self.push)


def cell(cell_id: str, *, state: CellState = READY, sequence: int = 1, models: tuple[str, ...] = ("m",)) -> CellView:
    address = f"127.0.0.1:{100 + ord(cell_id[0])}"
    found = Cell(cell_id=cell_id, site="east", address=address, capabilities=Capabilities(models=models))
    return CellView(cell=found, state=state, incarnation="b1", sequence=sequence)


def full(*cells: CellView) -> ViewDelta:
    return ViewDelta(version=ViewVersion(control_id="a", incarnation="c1", counter=1), full=True, cells=cells)


def steering(*, models: frozenset[str] = frozenset()) -> tuple[Steering, FakeScorer]:
    scorer = FakeScorer()
    return (
        Steering(
            merger=ViewMerger("gw"),
            scorer=scorer,
            rng=random.Random(1),
            reach={},
            models=models,
        ),
        scorer,
    )


def weights(routing: Routing | None) -> dict[str, dict[str, int]]:
    assert routing is not None
    return {pool.model: {e.cell_id: e.weight for e in pool.endpoints} for pool in routing.pools}


def test_fc_40_a_fresh_gateway_publishes_nothing_before_a_view() -> None:
    gateway, _ = steering(models=frozenset({"m"}))
    assert gateway.tick(now_s=0).publish is None


def test_fc_40_an_empty_first_view_publishes_nothing_without_known_models() -> None:
    gateway, _ = steering()
    gateway.merger.apply("a", full(), now_s=0)
    assert gateway.tick(now_s=0).publish is None
    gateway.merger.apply("a", full(cell("x", state=LOADING)), now_s=1)
    assert gateway.tick(now_s=1).publish is None
    gateway.merger.apply("a", full(cell("x", sequence=2)), now_s=2)
    assert weights(gateway.tick(now_s=2).publish) == {"m": {"x": 100}}


def test_a_configured_model_has_its_pool_before_anybody_serves_it() -> None:
    gateway, _ = steering(models=frozenset({"m"}))
    gateway.merger.apply("a", full(), now_s=0)
    assert weights(gateway.tick(now_s=0).publish) == {"m": {}}


def test_weights_inside_the_dead_band_stay_home() -> None:
    gateway, scorer = steering()
    gateway.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    gateway.tick(now_s=0)
    scorer.weights, scorer.push = {"x": 95}, False
    assert gateway.tick(now_s=1).publish is None
    scorer.push = True
    assert weights(gateway.tick(now_s=2).publish) == {"m": {"x": 95, "y": 100}}


def test_a_change_of_membership_bypasses_the_dead_band() -> None:
    gateway, scorer = steering()
    gateway.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    gateway.tick(now_s=0)
    scorer.push = False
    gateway.merger.apply("a", full(cell("x"), cell("y", state=FAULTED, sequence=2)), now_s=1)
    step = gateway.tick(now_s=1)
    assert step.membership_changed
    assert weights(step.publish) == {"m": {"x": 100}}


def test_fc_06_all_cells_faulted_at_once_keeps_the_last_endpoints_and_says_so_once() -> None:
    gateway, _ = steering()
    gateway.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    gateway.tick(now_s=0)
    dead = (cell("x", state=FAULTED, sequence=2), cell("y", state=FAULTED, sequence=2))
    gateway.merger.apply("a", full(*dead), now_s=1)
    step = gateway.tick(now_s=1)
    assert step.publish is None
    assert weights(gateway.in_force) == {"m": {"x": 100, "y": 100}}
    assert [event.name for event in step.events] == ["pool.held"]
    assert gateway.tick(now_s=2).events == ()
    assert gateway.told.held == {"m"}
    gateway.merger.apply("a", full(cell("x", sequence=3), dead[1]), now_s=3)
    assert weights(gateway.tick(now_s=3).publish) == {"m": {"x": 100}}
    assert gateway.told.held == frozenset()


def test_fc_06_all_paths_drained_by_the_scorer_keeps_the_last_endpoints() -> None:
    gateway, scorer = steering()
    gateway.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    gateway.tick(now_s=0)
    scorer.drained = {"x", "y"}
    gateway.tick(now_s=1)
    assert weights(gateway.in_force) == {"m": {"x": 100, "y": 100}}


def test_a_drained_pool_may_be_empty() -> None:
    gateway, _ = steering()
    gateway.merger.apply("a", full(cell("x")), now_s=0)
    gateway.tick(now_s=0)
    drained = replace(cell("x", state=CellState.DRAINING, sequence=2), draining=True)
    gateway.merger.apply("a", full(drained), now_s=1)
    assert weights(gateway.tick(now_s=1).publish) == {"m": {}}


def test_an_unloaded_model_leaves_its_cell_and_a_removed_cell_leaves_every_pool() -> None:
    gateway, _ = steering(models=frozenset({"m", "n"}))
    gateway.merger.apply("a", full(cell("x", models=("m", "n"))), now_s=0)
    assert weights(gateway.tick(now_s=0).publish) == {"m": {"x": 100}, "n": {"x": 100}}
    gateway.merger.apply("a", full(cell("x", sequence=2)), now_s=1)
    assert weights(gateway.tick(now_s=1).publish) == {"m": {"x": 100}, "n": {}}
    gateway.merger.apply("a", full(), now_s=2)
    assert weights(gateway.tick(now_s=2).publish) == {"m": {}, "n": {}}


def test_fc_26_a_model_keeps_its_pool_while_the_cell_that_listed_it_is_down() -> None:
    gateway, _ = steering()
    gateway.merger.apply("a", full(cell("x", models=("m", "m-lora")), cell("y")), now_s=0)
    gateway.tick(now_s=0)
    gateway.merger.apply("a", full(cell("x", state=FAULTED, sequence=2, models=()), cell("y")), now_s=1)
    gateway.tick(now_s=1)
    assert sorted(weights(gateway.in_force)) == ["m", "m-lora"]
    assert "y" not in weights(gateway.in_force)["m-lora"]


def test_fc_40_a_saved_routing_is_in_force_at_once_and_survives_an_empty_control() -> None:
    first, _ = steering()
    first.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    first.tick(now_s=0)
    state = first.saved_state("gw", now_s=0)
    assert isinstance(state, SavedState)

    second, scorer = steering()
    scorer.push = False
    assert weights(second.restore(state, now_s=0)) == {"m": {"x": 100, "y": 100}}
    assert second.tick(now_s=0).publish is None
    second.merger.apply("a", full(), now_s=1)
    assert second.tick(now_s=1).publish is None
    assert weights(second.in_force) == {"m": {"x": 100, "y": 100}}


def test_nothing_to_save_before_anything_is_in_force() -> None:
    gateway, _ = steering()
    assert gateway.saved_state("gw", now_s=0) is None


def test_fc_40_cells_still_blind_after_a_restart_keep_the_weights_on_disk_until_seen() -> None:
    first, scorer = steering()
    scorer.weights = {"x": 134, "y": 40}
    first.merger.apply("a", full(cell("x"), cell("y")), now_s=0)
    first.tick(now_s=0)
    state = first.saved_state("gw", now_s=0)
    assert state is not None

    second, scorer = steering()
    second.restore(state, now_s=0)
    scorer.blind = {"x", "y"}
    scorer.weights = {"x": 134, "y": 134}  # a scorer that has just started knows no better
    assert second.tick(now_s=0).publish is None
    scorer.weights = {"x": 134, "y": 1}  # evidence of this process lowers a weight
    assert weights(second.tick(now_s=1).publish) == {"m": {"x": 134, "y": 1}}
    scorer.blind, scorer.weights = {"x"}, {"x": 134, "y": 90}
    assert weights(second.tick(now_s=2).publish) == {"m": {"x": 134, "y": 90}}
