"""The evidence table, row by row, and the order of heartbeats."""

from dataclasses import replace

import pytest

from tradewind.core.lifecycle import Beat, Drain, Life, LifeEvent, Terminate, Tick, Word, step
from tradewind.core.registry import MAX_GATEWAYS, Registry
from tradewind.model.cell import Cell, CellState
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import GatewayReport, PathReading

SERVING = Evidence(reachable=True, model_listed=True, warmed_up=True)
DEAD = Evidence(reachable=False, reason="connection refused")


def beat(
    sequence: int = 1, *, incarnation: str = "b1", evidence: Evidence = SERVING, cell: str = "c", address: str = "a:1"
) -> Heartbeat:
    telemetry = Telemetry(engine=EngineReading(queue_requests=float(sequence)), engine_age_s=0.1, gpu_age_s=0.2)
    return Heartbeat(
        cell=Cell(cell_id=cell, site="s", address=address),
        incarnation=incarnation,
        sequence=sequence,
        evidence=evidence,
        telemetry=telemetry,
    )


def word(*, reachable: bool | None = None, succeeded: int = 0, failed: int = 0, gateway: str = "g") -> Word:
    reading = PathReading(cell_id="c", reachable=reachable, succeeded=succeeded, failed=failed)
    return Word(gateway_id=gateway, reading=reading)


def play(*events: tuple[float, LifeEvent]) -> tuple[Life, list[str]]:
    life, names = Life(cell=beat().cell), []
    for at_s, event in events:
        life, happened = step(life, event, at_s)
        names += [item.name for item in happened]
    return life, names


B, T = Beat(heartbeat=beat()), Tick()


def test_the_heartbeat_ttl_is_the_operators_to_set() -> None:
    life, _ = step(Life(cell=beat().cell, ttl_s=2.0), B, 0.0)
    assert not step(life, T, 1.9)[0].silent
    assert step(life, T, 2.1)[0].silent


@pytest.mark.parametrize(
    ("evidence", "state"),
    [
        (SERVING, CellState.READY),
        (Evidence(), CellState.LOADING),
        (Evidence(reachable=True), CellState.LOADING),
        (Evidence(reachable=True, model_listed=False, warmed_up=True), CellState.LOADING),
        (Evidence(reachable=True, model_listed=True), CellState.LOADING),
        (Evidence(reachable=True, model_listed=True, warmed_up=False), CellState.LOADING),
        (DEAD, CellState.FAULTED),
        (replace(SERVING, draining=True), CellState.DRAINING),
        (replace(DEAD, draining=True), CellState.FAULTED),
    ],
)
def test_fresh_heartbeats_decide_by_the_engine(evidence: Evidence, state: CellState) -> None:
    assert play((0.0, Beat(heartbeat=beat(evidence=evidence))))[0].state is state


def test_a_dead_engine_faults_at_the_beat_and_not_at_the_tick() -> None:
    life, names = play((0.0, B), (0.1, Beat(heartbeat=beat(2, evidence=DEAD))))
    assert life.state is CellState.FAULTED
    assert life.reason == "connection refused"
    assert names == ["cell.ready", "cell.heard", "cell.faulted"] or names == ["cell.ready", "cell.faulted"]


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ([], CellState.READY),
        ([word(reachable=False)], CellState.FAULTED),
        ([word(failed=5)], CellState.FAULTED),
        ([word(failed=1)], CellState.READY),
        ([word(reachable=True)], CellState.READY),
        ([word(reachable=False), word(succeeded=2, gateway="h")], CellState.READY),
        ([word(reachable=False), word(reachable=False, gateway="h")], CellState.FAULTED),
    ],
)
def test_fc_41_silence_alone_never_faults_and_failing_gateways_do(words: list[Word], state: CellState) -> None:
    life, _ = play((0.0, B), *[(1.0, item) for item in words], (1.0, T))
    assert life.state is state
    assert life.silent


def test_fc_41_a_beat_brings_everything_back() -> None:
    life, names = play((0.0, B), (1.0, word(reachable=False)), (1.1, T), (2.0, Beat(heartbeat=beat(2))), (2.1, T))
    assert life.state is CellState.READY
    assert not life.silent
    assert names.count("cell.faulted") == 1


def test_a_cell_presumed_dead_is_not_revived_by_the_lack_of_news() -> None:
    events = ((0.0, B), (1.0, word(reachable=False)), (1.1, T), (60.0, T))
    assert play(*events)[0].state is CellState.FAULTED
    assert play(*events, (61.0, word(reachable=True)))[0].state is CellState.READY


def test_within_the_ttl_a_failing_gateway_changes_nothing() -> None:
    assert play((0.0, B), (0.5, word(reachable=False)), (0.7, T))[0].state is CellState.READY
    assert play((0.0, B), (0.5, word(reachable=False)), (0.76, T))[0].state is CellState.FAULTED


def test_a_blind_observer_faults_nobody() -> None:
    life, _ = play((0.0, B), (1.0, Tick(observer_blind=True)), (1.0, word(reachable=False)))
    blind, _ = step(life, Tick(observer_blind=True), 1.0)
    assert blind.state is CellState.READY


def test_drain_undrain_and_termination() -> None:
    life, names = play((0.0, B), (0.1, Drain(on=True)))
    assert life.state is CellState.DRAINING
    undrained, _ = step(life, Drain(on=False), 0.2)
    assert undrained.state is CellState.READY
    gone, _ = step(undrained, Terminate(), 0.3)
    assert gone.state is CellState.TERMINATED
    assert step(gone, T, 9.0)[0].state is CellState.TERMINATED
    back, _ = step(gone, Beat(heartbeat=beat(1, incarnation="b2")), 9.0)
    assert back.state is CellState.READY
    assert "cell.draining" in names


# --- order ------------------------------------------------------------------------------------------------------


def test_fc_42_duplicates_and_older_sequences_are_ignored() -> None:
    life, names = play(
        (0.0, Beat(heartbeat=beat(5))), (0.1, Beat(heartbeat=beat(5))), (0.2, Beat(heartbeat=beat(4, evidence=DEAD)))
    )
    assert (life.sequence, life.state, life.heard_s) == (5, CellState.READY, 0.0)
    assert names.count("heartbeat.late") == 2
    after, _ = step(life, Beat(heartbeat=beat(90)), 0.3)
    assert after.sequence == 90  # a gap is no fault


def test_fc_42_a_late_beat_of_the_old_boot_is_ignored() -> None:
    life, names = play(
        *[(index * 0.5, Beat(heartbeat=beat(index))) for index in range(1, 6)],
        (4.0, Beat(heartbeat=beat(1, incarnation="b2"))),
        (4.1, Beat(heartbeat=beat(6, incarnation="b1", evidence=DEAD))),
    )
    assert (life.incarnation, life.sequence, life.state) == ("b2", 1, CellState.READY)
    assert names[-1] == "heartbeat.late"


def test_fc_42_two_live_agents_with_one_id_do_not_flap() -> None:
    life = Life(cell=beat().cell)
    names: list[str] = []
    for index in range(1, 41):
        for incarnation, address in (("b3", "x:1"), ("b4", "y:1")):
            owned = beat(index, incarnation=incarnation, address=address)
            life, events = step(life, Beat(heartbeat=owned), index * 0.5 + (0.25 if incarnation == "b4" else 0.0))
            names += [event.name for event in events]
            assert life.cell.address == "x:1"
    assert names.count("heartbeat.conflict") == 1
    assert names.count("heartbeat.refused") == 39


def test_fc_42_a_quick_restart_is_heard_within_the_ttl() -> None:
    life, names = play(
        (0.0, Beat(heartbeat=beat(7))),
        (0.5, Beat(heartbeat=beat(1, incarnation="b2"))),
        (1.0, Beat(heartbeat=beat(2, incarnation="b2"))),
    )
    assert (life.incarnation, life.sequence) == ("b2", 2)
    assert "heartbeat.conflict" in names
    assert life.rival == ""


def test_fc_42_an_owner_that_was_replaced_is_heard_again_when_its_rival_dies() -> None:
    life, _ = play(
        (0.0, Beat(heartbeat=beat(7))),
        (2.0, Beat(heartbeat=beat(1, incarnation="b2"))),
        (3.0, Beat(heartbeat=beat(8))),
        (8.0, Beat(heartbeat=beat(18))),
    )
    assert (life.incarnation, life.sequence) == ("b1", 18)


# --- the registry -----------------------------------------------------------------------------------------------


def grid_of(*cells: str, at_s: float = 0.0) -> Registry:
    registry = Registry()
    for cell in cells:
        registry.on_heartbeat(beat(cell=cell), at_s)
    return registry


def report(sequence: int, *paths: PathReading, gateway: str = "g") -> GatewayReport:
    return GatewayReport(gateway_id=gateway, site="s", sequence=sequence, paths=paths)


def states(registry: Registry, now_s: float) -> dict[str, str]:
    return {view.cell.cell_id: view.state.value for view in registry.view(now_s)}


def test_the_view_is_sorted_and_ages_by_the_time_it_was_held() -> None:
    registry = grid_of("b", "a")
    first, second = registry.view(0.5)
    assert (first.cell.cell_id, second.cell.cell_id) == ("a", "b")
    assert first.telemetry.engine_age_s == pytest.approx(0.6)
    assert first.telemetry.gpu_age_s == pytest.approx(0.7)
    assert not first.silent
    assert registry.view(0.8)[0].silent


def test_fc_06_all_cells_dead_at_once_means_the_observer_is_blind() -> None:
    registry = grid_of("a", "b", "c")
    paths = [PathReading(cell_id=cell, reachable=False) for cell in "abc"]
    events = registry.on_report(report(1, *paths), 2.0)
    assert states(registry, 2.0) == {"a": "ready", "b": "ready", "c": "ready"}
    assert "observer.blind" in [event.name for event in events]
    assert registry.observer_blind


def test_one_dead_cell_of_three_is_faulted() -> None:
    registry = grid_of("a", "b", "c")
    paths = [PathReading(cell_id=cell, reachable=cell != "b") for cell in "abc"]
    registry.on_report(report(1, *paths), 2.0)
    assert states(registry, 2.0) == {"a": "ready", "b": "faulted", "c": "ready"}


def test_a_repeated_or_late_report_is_ignored_and_a_restarted_gateway_is_not() -> None:
    registry = grid_of("a", "b")
    bad = PathReading(cell_id="a", reachable=False)
    good = PathReading(cell_id="b", reachable=True)
    registry.on_report(report(50, PathReading(cell_id="a", reachable=True), good), 1.0)
    registry.on_report(report(49, bad), 1.1)
    assert states(registry, 1.1)["a"] == "ready"
    registry.on_report(report(1, bad, good), 1.2)
    assert states(registry, 1.2)["a"] == "faulted"


def test_a_gateway_is_heard_however_many_have_been_before_it() -> None:
    """Where each rollout gives gateways new ids, a thousand of them pass by in some months."""
    registry = grid_of("a", "b")
    good = PathReading(cell_id="b", reachable=True)
    for number in range(MAX_GATEWAYS + 1):
        registry.on_report(report(1, gateway=f"g{number}"), 1.0)
    registry.on_report(report(1, PathReading(cell_id="a", reachable=False), good, gateway="new"), 2.0)
    assert states(registry, 2.0) == {"a": "faulted", "b": "ready"}
    registry.on_report(report(1, PathReading(cell_id="a", reachable=True), good, gateway="new"), 2.1)
    assert states(registry, 2.1)["a"] == "faulted", "a repeated report"


def test_drains_hold_for_cells_that_are_yet_to_come() -> None:
    registry = Registry()
    registry.drain("a")
    registry.on_heartbeat(beat(cell="a"), 0.0)
    assert states(registry, 0.0) == {"a": "draining"}
    assert registry.drains == ("a",)
    registry.undrain("a", 0.1)
    assert states(registry, 0.1) == {"a": "ready"}


def test_changes_since_a_revision() -> None:
    registry = grid_of("a", "b", "c")
    full = registry.changes(0, 0.0)
    assert full.full
    assert len(full.cells) == 3
    registry.on_heartbeat(beat(2, cell="b"), 0.5)
    registry.forget("c")
    delta = registry.changes(full.revision, 0.5)
    assert not delta.full
    assert [view.cell.cell_id for view in delta.cells] == ["b"]
    assert delta.removed == ("c",)
    assert registry.changes(delta.revision, 0.5).cells == ()
    assert registry.changes(10_000, 0.5).full  # a revision of another life


def test_going_silent_is_a_change() -> None:
    registry = grid_of("a", "b")
    revision = registry.revision
    registry.on_tick(0.8)
    assert [view.silent for view in registry.changes(revision, 0.8).cells] == [True, True]


def test_a_cell_that_was_forgotten_and_came_back_is_not_removed() -> None:
    registry = grid_of("a")
    revision = registry.revision
    registry.forget("a")
    registry.on_heartbeat(beat(cell="a"), 1.0)
    delta = registry.changes(revision, 1.0)
    assert (delta.removed, len(delta.cells)) == ((), 1)


def test_a_restored_grid_keeps_its_states_until_it_hears_better() -> None:
    saved = grid_of("a", "b").view(0.0)
    registry = Registry()
    registry.restore(saved, drains=("b",))
    assert registry.ready_to_publish(0.0)
    views = registry.view(0.0)
    assert states(registry, 0.0) == {"a": "ready", "b": "ready"}
    assert all(view.silent and view.telemetry == Telemetry() for view in views)
    registry.on_tick(5.0)
    assert states(registry, 5.0) == {"a": "ready", "b": "draining"}
    registry.on_heartbeat(beat(1, incarnation="b9", evidence=DEAD, cell="a"), 6.0)
    assert states(registry, 6.0)["a"] == "faulted"


def test_an_empty_control_publishes_nothing_before_it_has_gathered_its_agents() -> None:
    registry = Registry(expected=("a", "b"))
    assert not registry.ready_to_publish(100.0)
    registry.on_heartbeat(beat(cell="a"), 100.0)
    assert not registry.ready_to_publish(100.5)
    registry.on_heartbeat(beat(cell="b"), 100.6)
    assert registry.ready_to_publish(100.6)
    lone = grid_of("a")
    assert not lone.ready_to_publish(2.9)
    assert lone.ready_to_publish(3.0)


def test_outstanding_work_is_summed_over_gateways_and_expires() -> None:
    registry = grid_of("a", "b")
    registry.on_report(report(1, PathReading(cell_id="a", in_flight=3)), 0.1)
    registry.on_report(report(1, PathReading(cell_id="a", in_flight=4), gateway="h"), 0.2)
    assert registry.in_flight("a", 0.3) == 7
    assert registry.in_flight("a", 9.0) == 0
    assert registry.in_flight("nobody", 0.3) == 0


def test_conflicts_are_counted_and_told() -> None:
    registry = grid_of("a")
    events = registry.on_heartbeat(beat(1, incarnation="b2", cell="a", address="z:1"), 0.2)
    assert [event.name for event in events] == ["heartbeat.conflict"]
    assert "z:1" in events[0].detail
    assert registry.conflicts_total == 1
