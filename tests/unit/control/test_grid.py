"""The grid without sockets: beats in as bytes, view messages out as bytes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.tuner import FakeTuner
from tests.support.control_clients import heartbeat
from tests.unit.gateway import test_following as following
from tradewind.control.beats import PeerError, Refused
from tradewind.control.events import EventRing
from tradewind.control.feed import Batch
from tradewind.control.grid import Grid, UnknownCell
from tradewind.control.saver import Saver
from tradewind.control.store import Drain, Saved
from tradewind.control.tuning import TunerPlan, Tuning
from tradewind.core.tuner.box import SHIPPED
from tradewind.model.heartbeat import Evidence
from tradewind.model.telemetry import Telemetry
from tradewind.model.tuning import PHYSICS
from tradewind.model.view import GatewayReport, PathReading, ViewDelta
from tradewind.wire.convert import delta_from_pb, heartbeat_to_pb, report_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb

EMPTY = Saved(cells={}, drains={})
UNIX_S = 1_700_000_000.0


class Bench:
    """A grid on a clock of its own."""

    def __init__(
        self,
        *,
        expected: frozenset[str] = frozenset(),
        saved: Saved = EMPTY,
        incarnation: str = "c1",
        tuned: bool = False,
    ) -> None:
        self.now_s = 100.0
        events = EventRing(lambda: UNIX_S)
        plan = TunerPlan(kind="fake", make=FakeTuner, start=PHYSICS, box=SHIPPED)
        tuning = Tuning(plan, driver="c", events=events, clock=lambda: self.now_s, unix_clock=lambda: UNIX_S)
        self.grid = Grid(
            name="grid",
            control_id="control",
            incarnation=incarnation,
            expected=expected,
            ttl_s=0.75,
            events=events,
            clock=lambda: self.now_s,
            unix_clock=lambda: UNIX_S,
            draw_key=lambda: 77,
            tuning=tuning if tuned else None,
        )
        saver = Saver(Path("never-written"), incarnation=incarnation, snapshot=self.grid.saved)
        self.grid.start(saved, saver)

    def beat(
        self,
        number: int = 0,
        *,
        incarnation: str = "b1",
        sequence: int = 1,
        evidence: Evidence | None = None,
        address: str = "",
    ) -> None:
        serving = evidence or Evidence(reachable=True, model_listed=True, warmed_up=True)
        message = heartbeat_to_pb(heartbeat(number, incarnation, sequence, evidence=serving))
        if address:
            message.cell.address = address
        self.grid.heartbeat(message.SerializeToString(), self.now_s)

    def report(self, *readings: PathReading, sequence: int = 1) -> None:
        report = GatewayReport(gateway_id="gateway", site="east", sequence=sequence, paths=readings)
        self.grid.report(report_to_pb(report).SerializeToString(), self.now_s)

    def state(self, number: int = 0) -> str:
        return self.grid.status(f"cell-{number:04}").view.state.value

    def full(self) -> ViewDelta:
        batch = Batch(
            full=True, cell_ids=tuple(status.view.cell.cell_id for status in self.grid.statuses()), removed=()
        )
        return delta_from_pb(pb.ViewDelta.FromString(self.grid.message(batch, self.now_s)))


def path(number: int, *, reachable: bool) -> PathReading:
    return PathReading(cell_id=f"cell-{number:04}", reachable=reachable)


def test_a_view_message_carries_the_cell_and_its_telemetry_as_old_as_it_is_now() -> None:
    bench = Bench()
    bench.beat(0)
    bench.beat(1)
    bench.now_s += 0.3
    delta = bench.full()
    assert delta.full
    assert [view.cell.cell_id for view in delta.cells] == ["cell-0000", "cell-0001"]
    sent = heartbeat(0, "b1", 1)
    assert delta.cells[0].cell == sent.cell
    age_s, gpu_age_s = sent.telemetry.engine_age_s, sent.telemetry.gpu_age_s
    assert age_s is not None
    assert gpu_age_s is not None
    aged = delta.cells[0].telemetry
    assert aged.engine_age_s == pytest.approx(age_s + 0.3)
    assert aged.gpu_age_s == pytest.approx(gpu_age_s + 0.3)
    assert replace(aged, engine_age_s=age_s, gpu_age_s=gpu_age_s) == sent.telemetry
    assert replace(delta.cells[0], telemetry=Telemetry()) == bench.grid.status("cell-0000").view


def test_two_gateways_at_one_moment_get_the_same_bytes_but_their_own_version() -> None:
    bench = Bench()
    bench.beat(0)
    first, second = bench.full(), bench.full()
    assert first.cells == second.cells
    assert first.version.counter < second.version.counter


def test_fc_42_late_reordered_and_repeated_beats_change_nothing() -> None:
    bench = Bench()
    for sequence in range(1, 6):
        bench.beat(sequence=sequence)
    bench.now_s += 1.0  # b1 is silent now
    bench.beat(incarnation="b2", sequence=1)
    down = Evidence(reachable=False, reason="an old story")
    for incarnation, sequence in (("b1", 6), ("b1", 3), ("b2", 1)):
        bench.beat(incarnation=incarnation, sequence=sequence, evidence=down)
        assert bench.state() == "ready"
        assert bench.grid.status("cell-0000").view.incarnation == "b2"
    bench.beat(incarnation="b2", sequence=9)  # a gap is no harm
    assert bench.grid.status("cell-0000").view.sequence == 9
    assert bench.grid.counters["heartbeats_late"] == 3


def test_fc_42_two_live_agents_with_one_id_do_not_flap_and_are_reported() -> None:
    bench = Bench()
    bench.beat(incarnation="b3", sequence=1, address="127.0.0.1:1001")
    refusals = 0
    for sequence in range(2, 12):
        bench.now_s += 0.5
        bench.beat(incarnation="b3", sequence=sequence, address="127.0.0.1:1001")
        with pytest.raises(Refused):
            bench.beat(incarnation="b4", sequence=sequence, address="127.0.0.1:1002")
        refusals += 1
        assert bench.grid.status("cell-0000").view.cell.address == "127.0.0.1:1001"
    assert "b4" in bench.grid.status("cell-0000").conflict
    assert bench.grid.counters["heartbeats_refused"] == refusals
    named = [event.name for event in bench.grid.events.after(0, limit=100)]
    assert named.count("heartbeat.conflict") == 1


def test_fc_42_reregistration_clears_the_old_telemetry() -> None:
    bench = Bench()
    bench.beat(incarnation="b1", sequence=7)
    bench.now_s += 1.0
    message = heartbeat_to_pb(heartbeat(0, "b2", 1))
    message.ClearField("telemetry")
    bench.grid.heartbeat(message.SerializeToString(), bench.now_s)
    assert bench.full().cells[0].telemetry.engine is None


def test_fc_41_a_silent_cell_keeps_its_state_while_gateways_reach_it() -> None:
    bench = Bench()
    bench.beat(0)
    bench.beat(1)
    for step in range(1, 40):
        bench.now_s += 0.25
        bench.beat(1, sequence=1 + step)
        bench.report(
            PathReading(cell_id="cell-0000", reachable=True),
            PathReading(cell_id="cell-0001", reachable=True),
            sequence=step,
        )
        bench.grid.tick(bench.now_s)
        assert bench.state() == "ready"
    view = bench.full().cells[0]
    assert view.silent
    bench.report(path(0, reachable=False), path(1, reachable=True), sequence=90)
    bench.grid.tick(bench.now_s)
    assert bench.state() == "faulted"
    bench.beat(0, sequence=2)
    assert bench.state() == "ready"


def test_fc_06_all_cells_dead_at_once_is_the_observer_s_blindness() -> None:
    bench = Bench()
    bench.beat(0)
    bench.beat(1)
    bench.now_s += 2.0
    bench.report(path(0, reachable=False), path(1, reachable=False))
    bench.grid.tick(bench.now_s)
    assert (bench.state(0), bench.state(1)) == ("ready", "ready")
    assert any(event.name == "observer.blind" for event in bench.grid.events.after(0, limit=100))


def test_fc_09_ready_needs_a_listed_model_and_a_warm_up() -> None:
    bench = Bench()
    for sequence, evidence in enumerate(
        (
            Evidence(),
            Evidence(reachable=True),
            Evidence(reachable=True, model_listed=True),
            Evidence(reachable=True, model_listed=True, warmed_up=False),
        ),
        start=1,
    ):
        bench.beat(sequence=sequence, evidence=evidence)
        assert bench.state() == "loading"
    bench.beat(sequence=9)
    assert bench.state() == "ready"


def test_fc_40_an_empty_control_holds_back_until_its_agents_had_time() -> None:
    bench = Bench()
    bench.now_s += 60.0
    bench.grid.tick(bench.now_s)
    assert not bench.grid.publishing
    bench.beat(0)
    bench.grid.tick(bench.now_s)
    assert not bench.grid.publishing
    bench.now_s += 5.0
    bench.grid.tick(bench.now_s)
    assert bench.grid.publishing


def test_fc_40_an_empty_control_publishes_at_once_when_all_named_cells_are_heard() -> None:
    bench = Bench(expected=frozenset({"cell-0000", "cell-0001"}))
    bench.beat(0)
    bench.grid.tick(bench.now_s)
    assert not bench.grid.publishing
    bench.beat(1)
    bench.grid.tick(bench.now_s)
    assert bench.grid.publishing


def test_fc_40_a_restored_control_waits_for_its_cells_but_not_for_ever() -> None:
    before = Bench()
    before.beat(0)
    before.beat(1)
    saved = before.grid.saved()
    heard = Bench(saved=saved, incarnation="c2")
    heard.grid.tick(heard.now_s)
    assert "2 known cells" in heard.grid.holding_back_because
    heard.beat(0, sequence=2)
    heard.beat(1, sequence=2)
    heard.grid.tick(heard.now_s)
    assert heard.grid.publishing
    deaf = Bench(saved=saved, incarnation="c3")
    deaf.now_s += 2.1
    deaf.grid.tick(deaf.now_s)
    assert deaf.grid.publishing
    view = deaf.full().cells[0]
    assert (view.state.value, view.silent) == ("ready", True)


def test_a_drain_survives_a_restart_and_ends_with_undrain() -> None:
    before = Bench()
    before.beat(0)
    before.grid.drain("cell-0000", reason="disk swap")
    assert before.state() == "draining"
    after = Bench(saved=before.grid.saved(), incarnation="c2")
    assert after.grid.drains == {"cell-0000": Drain(since_unix_s=1_700_000_000.0, reason="disk swap")}
    after.beat(0, sequence=2)
    assert after.state() == "draining"
    assert after.full().cells[0].draining
    after.grid.undrain("cell-0000")
    assert after.state() == "ready"
    assert not after.full().cells[0].draining


def test_forget_removes_a_cell_and_its_drain_and_a_beat_brings_it_back() -> None:
    bench = Bench()
    bench.beat(0)
    bench.grid.drain("cell-0000", reason="")
    with bench.grid.feed() as feed:
        bench.grid.forget("cell-0000")
        assert feed.waiting == 1
    assert bench.grid.saved() == EMPTY
    assert bench.grid.cells == 0
    bench.beat(0, sequence=2)
    assert bench.state() == "ready"


@pytest.mark.parametrize("order", [Grid.undrain, Grid.forget, Grid.status])
def test_orders_for_unknown_cells_are_refused(order: Callable[[Grid, str], object]) -> None:
    with pytest.raises(UnknownCell):
        order(Bench().grid, "nobody")


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff",
        b"",
        pb.Heartbeat(cell=pb.Cell(cell_id="bad id"), incarnation="b1", sequence=1).SerializeToString(),
        pb.Heartbeat(cell=pb.Cell(cell_id="x" * 64), incarnation="b1", sequence=1).SerializeToString(),
        pb.Heartbeat(cell=pb.Cell(cell_id="a"), sequence=1).SerializeToString(),
        pb.Heartbeat(cell=pb.Cell(cell_id="a"), incarnation="i" * 65, sequence=1).SerializeToString(),
        pb.Heartbeat(cell=pb.Cell(cell_id="a"), incarnation="b1", sequence=-1).SerializeToString(),
    ],
)
def test_a_bad_beat_is_counted_and_touches_nobody(raw: bytes) -> None:
    bench = Bench()
    bench.beat(0)
    with pytest.raises(PeerError):
        bench.grid.heartbeat(raw, bench.now_s)
    assert bench.grid.counters["heartbeats_invalid"] == 1
    assert bench.grid.cells == 1


def test_a_bad_report_is_counted() -> None:
    bench = Bench()
    for raw in (b"\xff\xff", pb.GatewayReport(gateway_id="a b").SerializeToString()):
        with pytest.raises(PeerError):
            bench.grid.report(raw, bench.now_s)
    assert bench.grid.counters["reports_invalid"] == 2


def test_reports_are_bounded_and_old_gateways_leave() -> None:
    bench = Bench()
    for number in range(200):
        message = pb.GatewayReport(gateway_id=f"gateway-{number}", site="east", sequence=1)
        bench.grid.report(message.SerializeToString(), bench.now_s)
    assert len(bench.grid.gateways()) == 64
    bench.now_s += 61.0
    assert bench.grid.gateways() == []


def test_every_message_carries_the_order_and_a_new_one_goes_out_at_once() -> None:
    assert Bench().full().order is None
    bench = Bench(tuned=True)
    bench.beat(0)
    order = bench.full().order
    assert order is not None
    assert (order.driver, order.generation, order.weights) == ("c.1", 1, PHYSICS)
    assert bench.grid.tuning is not None

    async def told() -> list[ViewDelta]:
        assert bench.grid.tuning is not None
        bench.grid.publishing = True
        with bench.grid.feed() as feed:
            await feed.next()
            waiting = asyncio.create_task(feed.next())
            await asyncio.sleep(0)
            await bench.grid.tuning.freeze()
            async with asyncio.timeout(0.5):  # the clock stands still: nothing else would be sent
                batch = await waiting
        return [delta_from_pb(pb.ViewDelta.FromString(bench.grid.message(batch, bench.now_s)))]

    (delta,) = asyncio.run(told())
    assert (delta.full, delta.cells) == (False, ())
    assert delta.order is not None
    assert delta.order.generation == 2


def test_samples_of_a_report_reach_the_tuner_and_are_not_kept_with_it() -> None:
    bench = Bench(tuned=True)
    tuning = bench.grid.tuning
    assert tuning is not None
    samples = tuple(sample.moved(-3.0)._replace(driver="c.1") for sample in following.samples(3))
    report = GatewayReport(gateway_id="gateway", site="east", sequence=1, samples=samples)
    bench.grid.report(report_to_pb(report).SerializeToString(), bench.now_s)
    assert tuning.heard_s == bench.now_s
    (status,) = bench.grid.gateways()
    assert status.report.samples == ()


def test_fc_40_what_is_found_late_takes_nothing_back_that_was_heard_and_ordered_since() -> None:
    before = Bench()
    for number in range(4):
        before.beat(number)
    before.grid.drain("cell-0000", reason="fan")
    before.grid.drain("cell-0003", reason="old")
    saved = before.grid.saved()

    bench = Bench(incarnation="c2")  # could not read it
    bench.beat(0, sequence=2, address="127.0.0.1:7777")
    bench.beat(1, sequence=2)
    bench.grid.drain("cell-0001", reason="new driver")
    bench.now_s += 10.0
    bench.grid.tick(bench.now_s)
    with bench.grid.feed() as feed:
        asyncio.run(feed.next())
        bench.grid.found_late(saved)
        told = asyncio.run(feed.next()).cell_ids
    assert set(told) >= {"cell-0000", "cell-0002", "cell-0003"}
    assert [bench.state(number) for number in range(4)] == ["draining", "draining", "ready", "draining"]
    assert {cell_id: drain.reason for cell_id, drain in bench.grid.drains.items()} == {
        "cell-0000": "fan",
        "cell-0001": "new driver",
        "cell-0003": "old",
    }
    assert bench.grid.status("cell-0000").view.cell.address == "127.0.0.1:7777"
    assert bench.grid.saved().drains == bench.grid.drains


def test_a_stream_is_one_gateways() -> None:
    """One that changes its name with each report would push everything else out of the events."""
    bench = Bench()
    mine, other = (
        report_to_pb(GatewayReport(gateway_id=name, site="s", sequence=1)).SerializeToString() for name in ("a", "b")
    )
    with bench.grid.feed() as feed:
        bench.grid.report(mine, bench.now_s, feed=feed)
        with pytest.raises(PeerError, match="stream of a"):
            bench.grid.report(other, bench.now_s, feed=feed)
    assert (bench.grid.counters["reports"], bench.grid.counters["reports_invalid"]) == (1, 1)
    assert [status.report.gateway_id for status in bench.grid.gateways()] == ["a"]
