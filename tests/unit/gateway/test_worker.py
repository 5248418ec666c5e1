"""The worker without a loop: what it tells Envoy, controls and the disk, and what it never does twice."""

import random
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace as with_fields

from tests.unit.pick.fakes import picked, request
from tradewind.config.schema import GatewayConfig, GridConfig, LimitsConfig, PickConfig
from tradewind.core.pick.refusals import Size
from tradewind.gateway.gate.choice import NO_FINDINGS, Findings
from tradewind.gateway.worker import Worker
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import CellView, PathReading, ViewDelta, ViewVersion
from tradewind.xds.snapshot import Snapshot


class FakeEffects:
    """Remembers what the worker caused."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.probes: list[ProbeOrder] = []
        self.cells: dict[str, str] = {}
        self.ticks = 0
        self.reports = 0
        self.saves = 0

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)

    def probe(self, order: ProbeOrder) -> None:
        self.probes.append(order)

    def sync_cells(self, addresses: dict[str, str]) -> None:
        self.cells = addresses

    def unreachable(self) -> frozenset[str]:
        return frozenset()

    def tick_soon(self) -> None:
        self.ticks += 1

    def report_soon(self) -> None:
        self.reports += 1

    def save_soon(self) -> None:
        self.saves += 1


class Rig:
    """A worker with a clock of its own."""

    def __init__(self, tmp_path: Path, *, findings: Findings = NO_FINDINGS, **settings: object) -> None:
        self.now_s = 100.0
        self.effects = FakeEffects()
        gateway = GatewayConfig(id="gw", listen="127.0.0.1:1", **settings)  # type: ignore[arg-type]
        self.config = GridConfig(state_dir=str(tmp_path), gateways=[gateway])
        self.worker = Worker(
            self.config,
            gateway,
            effects=self.effects,
            clock=lambda: self.now_s,
            unix_clock=lambda: 1.0,
            rng=random.Random(1),
            findings=findings,
        )

    def show(self, *cells: CellView, full: bool = True, counter: int = 1) -> None:
        version = ViewVersion(control_id="a", incarnation="c1", counter=counter)
        self.worker.on_delta("a", ViewDelta(version=version, full=full, cells=cells))

    def tick(self, *, after_s: float = 1.0) -> None:
        self.now_s += after_s
        self.worker.tick()


def cell(cell_id: str, port: int, *, sequence: int = 1, state: CellState = CellState.READY) -> CellView:
    found = Cell(
        cell_id=cell_id,
        site="east",
        address=f"127.0.0.1:{port}",
        capabilities=Capabilities(models=("m",), max_model_len=4096),
    )
    telemetry = Telemetry(engine=EngineReading(queue_requests=0.0, running_requests=0.0), engine_age_s=0.1)
    return CellView(cell=found, state=state, incarnation="b1", sequence=sequence, telemetry=telemetry)


def served(cell_id: str, status: int = 200) -> Outcome:
    return Outcome(request_id="r", cell_id=cell_id, model="m", status=status, ttft_s=0.1, duration_s=0.5)


def test_a_view_becomes_a_snapshot_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.tick()
    assert rig.effects.snapshots == []
    rig.show(cell("x", 1000), cell("y", 1001))
    assert rig.effects.ticks > 0
    rig.tick()
    rig.tick()
    assert len(rig.effects.snapshots) == 1
    assert rig.worker.weights() == {"x": 134, "y": 134}
    assert rig.effects.cells == {"x": "127.0.0.1:1000", "y": "127.0.0.1:1001"}
    assert rig.worker.cell_at("127.0.0.1:1001") == "y"


def test_reach_replaces_the_agents_address(tmp_path: Path) -> None:
    rig = Rig(tmp_path, reach={"x": "127.0.0.1:7000"})
    rig.show(cell("x", 1000))
    rig.tick()
    assert rig.effects.cells == {"x": "127.0.0.1:7000"}
    assert rig.worker.cell_at("127.0.0.1:7000") == "x"


def test_a_report_tells_each_control_what_is_new_to_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.show(cell("x", 1000))
    rig.tick()
    rig.worker.report("a")
    for status in (200, 200, 500):
        rig.worker.on_outcome(served("x", status))
    rig.worker.on_path(PathReading(cell_id="x", rtt_s=0.01, reachable=True), True)
    (path,) = rig.worker.report("a").paths
    assert (path.succeeded, path.failed, path.rtt_s, path.reachable) == (2, 1, 0.01, True)
    rig.now_s += 0.1
    (soon,) = rig.worker.report("a").paths
    assert (soon.succeeded, soon.failed) == (2, 1), "a report in a hurry takes nothing from the evidence"
    rig.now_s += 0.5
    (again,) = rig.worker.report("a").paths
    assert (again.succeeded, again.failed) == (0, 0)
    (other,) = rig.worker.report("b").paths  # a new stream: what came before it is no fresh evidence
    assert other.succeeded == 0


def test_a_lost_path_is_reported_and_acted_on_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.show(cell("x", 1000), cell("y", 1001), cell("z", 1002))
    rig.tick()
    reports = rig.effects.reports
    rig.worker.on_path(PathReading(cell_id="y", reachable=False), True)
    assert rig.effects.reports > reports
    rig.tick(after_s=0.01)
    assert sorted(rig.worker.weights()) == ["x", "z"]


def test_a_baseline_is_told_of_members_and_never_of_weights(tmp_path: Path) -> None:
    rig = Rig(tmp_path, baseline="round-robin")
    rig.show(cell("x", 1000), cell("y", 1001))
    rig.tick()
    for sequence in range(2, 40):
        busy = replace(cell("x", 1000, sequence=sequence), telemetry=Telemetry())
        rig.show(busy, full=False)
        rig.worker.on_outcome(served("x", 500))
        rig.tick()
    assert len(rig.effects.snapshots) == 1
    rig.show(cell("y", 1001, sequence=2, state=CellState.FAULTED), full=False)
    rig.tick()
    assert len(rig.effects.snapshots) == 2


def test_a_restart_publishes_what_the_disk_remembers_with_the_same_version(tmp_path: Path) -> None:
    first = Rig(tmp_path)
    first.show(cell("x", 1000), cell("y", 1001))
    first.tick()
    state = first.worker.state_to_save()
    assert state is not None
    assert first.worker.state_to_save() is None
    assert first.worker.saved.store(state)

    second = Rig(tmp_path)
    assert second.worker.restore()
    assert second.effects.cells == first.effects.cells
    assert second.effects.snapshots[-1].version == first.effects.snapshots[-1].version
    second.tick()
    assert len(second.effects.snapshots) == 1


def test_a_restart_keeps_out_the_cell_that_was_found_guilty(tmp_path: Path) -> None:
    cells = [cell(cell_id, 1000 + index) for index, cell_id in enumerate("wxyz")]
    first = Rig(tmp_path)
    first.show(*cells)
    first.tick()
    while "x" in first.worker.weights():
        assert first.now_s < 110.0
        for cell_id in "wxyz":
            first.worker.on_outcome(served(cell_id, 400 if cell_id == "x" else 200))
        first.tick(after_s=0.1)
    state = first.worker.state_to_save()
    assert state is not None
    assert [cell_id for _, _, cell_id in state.memory.verdicts] == ["x"]
    assert first.worker.saved.store(state)

    second = Rig(tmp_path)
    assert second.worker.restore()
    for sequence in range(2, 5):
        second.show(*(replace(item, sequence=sequence) for item in cells))
        second.tick()
        assert sorted(second.worker.weights()) == ["w", "y", "z"]
    second.show(*(replace(item, sequence=1, incarnation="b2") for item in cells))  # other engines: no evidence
    second.tick()
    assert sorted(second.worker.weights()) == ["w", "x", "y", "z"]


def bound_of(rig: Rig, cell_id: str = "x") -> float:
    assert rig.worker.desk is not None
    found = rig.worker.desk.picker.fleet.get(cell_id)
    assert found is not None
    return found.learned.bound


def engine(item: CellView, *, start_time_s: float, sequence: int = 1) -> CellView:
    reading = EngineReading(queue_requests=0.0, running_requests=0.0, start_time_s=start_time_s)
    return replace(item, sequence=sequence, telemetry=Telemetry(engine=reading, engine_age_s=0.1))


def taught(tmp_path: Path) -> tuple[Rig, list[CellView]]:
    """A restarted worker whose predecessor learned that x refuses 3,000 tokens."""
    cells = [engine(cell(cell_id, 1000 + index), start_time_s=7.0) for index, cell_id in enumerate("xy")]
    first = Rig(tmp_path, routing="pick")
    first.show(*cells)
    first.tick()
    assert first.worker.state_to_save() is not None
    assert first.worker.desk is not None
    fleet = first.worker.desk.picker.fleet
    for cell_id, tokens in (("x", 3_000), ("y", 3_000)):
        found = fleet.get(cell_id)
        assert found is not None
        if cell_id == "x":
            found.learned.on_served(Size(499, 1), sent_s=first.now_s, now_s=first.now_s)
        size = Size(tokens - 1, 1)
        found.learned.on_refused(size, answered=cell_id == "x", sent_s=first.now_s, now_s=first.now_s)
    fleet.limits_changed()
    first.tick()
    assert first.effects.saves == 1
    state = first.worker.state_to_save()
    assert state is not None
    assert first.worker.saved.store(state)
    assert [limit.cell_id for limit in state.memory.limits] == ["x"], "a suspicion is not kept"

    second = Rig(tmp_path, routing="pick")
    assert second.worker.restore()
    assert bound_of(second) == bound_of(first) == 749.75
    return second, cells


def test_a_learned_limit_outlives_a_restart_of_the_gateway(tmp_path: Path) -> None:
    rig, cells = taught(tmp_path)
    rig.show(*(replace(item, sequence=2) for item in cells))
    rig.tick()
    assert bound_of(rig) == 749.75
    assert rig.worker.desk is not None
    found = rig.worker.desk.picker.fleet.get("x")
    assert found is not None
    rig.now_s += 61.0
    assert found.learned.allows(Size(3_000, 1), rig.now_s), "the trial comes as if nothing had happened"
    order = ProbeOrder(cell_id="x", model="m", prompt_bytes=12_000, max_tokens=1)
    rig.worker.on_probe(order, served("x")._replace(synthetic=True))
    assert found.learned.quiet


@pytest.mark.parametrize("change", ["incarnation", "start"])
def test_an_engine_that_restarted_meanwhile_voids_its_limit(tmp_path: Path, change: str) -> None:
    rig, cells = taught(tmp_path)
    if change == "start":
        rig.show(*(engine(item, start_time_s=8.0, sequence=2) for item in cells))
    else:
        rig.show(*(replace(item, incarnation="b2") for item in cells))
    rig.tick()
    assert bound_of(rig) == float("inf")


@pytest.mark.parametrize("routing", ["pick", "weights"])
def test_a_cell_that_refuses_long_requests_goes_on_with_short_ones_where_each_is_picked(
    tmp_path: Path, routing: str
) -> None:
    rig = Rig(tmp_path, routing=routing)
    rig.show(*(cell(cell_id, 1000 + index) for index, cell_id in enumerate("wxyz")))
    rig.tick()
    while not rig.worker.last or not any(row.drained for row in rig.worker.last.decision.rows):
        assert rig.now_s < 110.0
        for cell_id in "wxyz":
            rig.worker.on_outcome(served(cell_id)._replace(request_bytes=500))
            rig.worker.on_outcome(served(cell_id, 400 if cell_id == "x" else 200)._replace(request_bytes=16_000))
        rig.tick(after_s=0.1)
    if routing == "weights":
        assert sorted(rig.worker.weights()) == ["w", "y", "z"]
        return
    assert rig.worker.weights()["x"] == 1, "a pick of it needs its address"
    assert rig.worker.desk is not None
    picker = rig.worker.desk.picker
    short = {picked(picker, request(100, body_bytes=500), rig.now_s, Random(seed)).cell_id for seed in range(40)}
    long = {picked(picker, request(100, body_bytes=16_000), rig.now_s, Random(seed)).cell_id for seed in range(40)}
    assert ("x" in short, "x" in long) == (True, False)


def test_fc_48_a_reload_applies_limits_and_models_and_keeps_members(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.show(cell("x", 1000))
    rig.tick()
    gateway = with_fields(rig.config.gateways[0], limits=LimitsConfig(retries=1))
    assert rig.worker.apply(with_fields(rig.config, gateways=[gateway], models=["later"])) == ""
    assert len(rig.effects.snapshots) == 2
    rig.tick()
    assert {pool.model for pool in rig.worker.steering.in_force.pools} == {"m", "later"}  # type: ignore[union-attr]
    assert rig.worker.weights() == {"x": 134}


def test_fc_48_a_reload_follows_what_the_picker_is_built_from(tmp_path: Path) -> None:
    rig = Rig(tmp_path, routing="pick")
    desk = rig.worker.desk
    gateway = rig.config.gateways[0]
    assert rig.worker.apply(with_fields(rig.config, gateways=[with_fields(gateway, gamma=2.0)])) == ""
    assert rig.worker.desk is desk  # nothing that it decides by
    session = with_fields(gateway, pick=PickConfig(session_header="x-session"))
    assert rig.worker.apply(with_fields(rig.config, gateways=[session])) == ""
    assert rig.worker.desk is not desk
    desk = rig.worker.desk
    captured = with_fields(gateway, pick=PickConfig(session_header="x-session", capture="picks.ndjson"))
    assert rig.worker.apply(with_fields(rig.config, gateways=[captured])) == ""
    assert rig.worker.desk is not desk  # a capture begins with a picker that has heard nothing
    assert rig.worker.desk is not None
    assert rig.worker.desk.capture is not None
    assert rig.worker.apply(with_fields(rig.config, gateways=[with_fields(gateway, routing="weights")])) == ""
    assert rig.worker.desk is None


def test_a_probe_that_passes_voids_what_the_picker_learned(tmp_path: Path) -> None:
    rig = Rig(tmp_path, routing="pick")
    rig.show(cell("x", 1000))
    rig.tick()
    assert rig.worker.desk is not None
    found = rig.worker.desk.picker.fleet.get("x")
    assert found is not None
    found.learned.on_refused(Size(2_999, 1), answered=True, sent_s=rig.now_s, now_s=rig.now_s)
    order = ProbeOrder(cell_id="x", model="m", prompt_bytes=12_000, max_tokens=1)
    rig.worker.on_probe(order, served("x")._replace(status=400, synthetic=True))
    assert not found.learned.quiet
    rig.worker.on_probe(order, served("x")._replace(synthetic=True))
    assert found.learned.quiet


def test_fc_47_what_envoy_was_not_told_or_has_refused_is_not_picked(tmp_path: Path) -> None:
    rig = Rig(tmp_path, routing="pick")
    ghost, twin = cell("ghost", 1002), cell("z", 1000)
    ghost = replace(ghost, cell=replace(ghost.cell, address="not an address"))
    rig.show(ghost, cell("x", 1000), cell("y", 1001), twin)
    rig.tick()

    def eligible() -> list[str]:
        assert rig.worker.desk is not None
        pool = rig.worker.desk.picker.fleet.pool("m")
        assert pool is not None
        return [found.cell_id for found in pool.ready]

    assert (eligible(), sorted(rig.worker.weights())) == (["x", "y"], ["ghost", "x", "y", "z"])
    rig.worker.on_refused(frozenset({"127.0.0.1:1001"}))
    assert eligible() == ["x"]
    session = with_fields(rig.config.gateways[0], pick=PickConfig(session_header="x-session"))
    assert rig.worker.apply(with_fields(rig.config, gateways=[session])) == ""
    rig.tick()
    assert eligible() == ["x"], "another picker knows it as well"
    rig.worker.on_refused(frozenset())
    assert eligible() == ["x", "y"]


def test_fc_48_a_file_without_this_gateway_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert "no longer in the file" in rig.worker.apply(with_fields(rig.config, gateways=[]))


def test_synthetic_requests_are_nobodys_outcomes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.show(cell("x", 1000))
    rig.tick()
    order = ProbeOrder(cell_id="x", model="m", prompt_bytes=100, max_tokens=1)
    rig.worker.on_probe(order, served("x")._replace(synthetic=True))
    assert rig.worker.outcomes == 0
    assert rig.worker.book.cells == {}
