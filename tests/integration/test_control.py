"""Control over real gRPC: registration, life cycle, views, drains, restarts, hostile peers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from tests.support.control_clients import AgentClient, GatewayClient, agent, gateway, heartbeat
from tests.support.polling import until
from tradewind.config.schema import CellConfig, ControlConfig, GridConfig
from tradewind.control import service
from tradewind.control.main import Running, serve
from tradewind.model.heartbeat import Evidence
from tradewind.model.view import GatewayReport, PathReading
from tradewind.wire.convert import heartbeat_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import VIEWS

DOWN = Evidence(reachable=False, reason="refused")


def config(state_dir: Path, *, expected: int = 1, listen: str = "127.0.0.1:0") -> GridConfig:
    """A grid whose file names `expected` cells: an empty control publishes as soon as it has heard them."""
    cells = [CellConfig(id=f"cell-{number:04}", site="site-1", url="http://127.0.0.1:1") for number in range(expected)]
    return GridConfig(state_dir=str(state_dir), controls=[ControlConfig(listen=listen)], cells=cells)


@asynccontextmanager
async def beating(client: AgentClient, *numbers: int, first: int = 1) -> AsyncIterator[None]:
    """Keep cells alive at 5 Hz while the block lasts."""

    async def beats() -> None:
        sequence = first
        while True:
            for number in numbers:
                await client.beat(number, sequence)
            sequence += 1
            await asyncio.sleep(0.2)

    task = asyncio.create_task(beats())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_a_cell_registers_and_a_gateway_sees_its_life(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, gateway(control.grpc_address) as west:
            await west.report()
            async with agent(control.grpc_address) as east:
                await east.beat(0, 1, evidence=Evidence(reachable=True))
                await until(lambda: west.state("cell-0000") == "loading")
                assert west.deltas[0].full
                await east.beat(0, 2)
                await until(lambda: west.state("cell-0000") == "ready")
                await east.beat(0, 3, evidence=DOWN)
                await until(lambda: west.state("cell-0000") == "faulted")
                assert west.cells["cell-0000"].reason == "refused"
                assert [delta.full for delta in west.deltas].count(True) == 1
                await until(lambda: len(east.replies) >= 1)
                assert (east.replies[0].cell_id, east.replies[0].refused) == ("cell-0000", "")

    asyncio.run(scenario())


def test_views_of_a_stream_are_numbered_and_telemetry_is_coalesced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(config(tmp_path), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address) as east,
        ):
            await east.beat(0, 1)
            await until(lambda: west.state("cell-0000") == "ready")
            sent = len(west.deltas)
            for sequence in range(2, 202):
                await east.beat(0, sequence)
            await until(lambda: west.cells["cell-0000"].sequence == 201)
            assert len(west.deltas) - sent < 100  # 200 beats at once: a few messages
            counters = [delta.version.counter for delta in west.deltas]
            assert counters == sorted(set(counters))
            assert len({delta.version.incarnation for delta in west.deltas}) == 1

    asyncio.run(scenario())


def test_fc_41_a_cut_agent_leaves_its_cell_ready_while_a_gateway_reaches_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(config(tmp_path, expected=2), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address) as cut,
            agent(control.grpc_address, "inc-2") as east,
        ):
            await cut.beat(0, 1)
            async with beating(east, 1):
                await until(lambda: west.state("cell-0001") == "ready")
                await report(west, 1, reachable=True)
                await until(lambda: west.cells["cell-0000"].silent)
                assert west.state("cell-0000") == "ready"
                await report(west, 2, reachable=False)
                await until(lambda: west.state("cell-0000") == "faulted")
                await cut.beat(0, 2)
                await until(lambda: west.state("cell-0000") == "ready")

    async def report(west: GatewayClient, sequence: int, *, reachable: bool) -> None:
        paths = (
            PathReading(cell_id="cell-0000", reachable=reachable),
            PathReading(cell_id="cell-0001", reachable=True),
        )
        await west.report(GatewayReport(gateway_id="gateway", site="w", sequence=sequence, paths=paths))

    asyncio.run(scenario())


def test_fc_42_two_agents_one_id_the_second_is_refused_and_told_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(config(tmp_path), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address, "b3") as owner,
            agent(control.grpc_address, "b4") as rival,
            beating(owner, 0),
        ):
            await until(lambda: west.state("cell-0000") == "ready")
            await rival.beat(0, 1, address="127.0.0.1:9")
            await until(lambda: any(reply.refused for reply in rival.replies))
            assert "alive" in rival.replies[0].refused
            assert {view.incarnation for delta in west.deltas for view in delta.cells} == {"b3"}

    asyncio.run(scenario())


def test_a_broken_message_ends_neither_its_stream_nor_anothers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(config(tmp_path), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address) as east,
        ):
            await east.raw(b"\xff\xff\xff\xff")
            await until(lambda: any("cannot be read" in reply.refused for reply in east.replies))
            await east.beat(0, 1)
            await until(lambda: west.state("cell-0000") == "ready")
            await west.raw(b"\xff\xff\xff")
            await east.beat(0, 2, evidence=DOWN)
            await until(lambda: west.state("cell-0000") == "faulted")
            assert control.grid.counters["heartbeats_invalid"] == 1
            assert control.grid.counters["reports_invalid"] == 1

    asyncio.run(scenario())


def test_a_cell_that_says_too_much_costs_its_agents_other_cells_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, agent(control.grpc_address) as east:
            await east.beat(0, 1)
            await until(lambda: control.grid.cells == 1)
            endless = heartbeat_to_pb(heartbeat(1, "inc-1", 1))
            endless.cell.capabilities.models.extend(f"model-{number:060}" for number in range(80_000))
            assert endless.ByteSize() > 5 << 20
            await east.raw(endless.SerializeToString())
            await until(lambda: any("too large" in reply.refused for reply in east.replies))
            await east.beat(2, 1)
            await until(lambda: control.grid.cells == 2)
            assert control.grid.counters["heartbeats_invalid"] == 1

    asyncio.run(scenario())


def test_a_gateway_of_twenty_thousand_cells_is_heard(tmp_path: Path) -> None:
    paths = tuple(
        PathReading(cell_id=f"cell-{number:05}", rtt_s=0.01, jitter_s=0.001, reachable=True, succeeded=3, in_flight=2)
        for number in range(20_000)
    )
    notes = tuple((path.cell_id, "n" * 100) for path in paths)

    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, gateway(control.grpc_address) as west:
            await west.report(GatewayReport(gateway_id="gateway", site="w", sequence=1, paths=paths, notes=notes))
            await until(lambda: control.grid.counters["reports"] == 1)

    asyncio.run(scenario())


def test_drain_is_in_the_view_survives_a_restart_and_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, agent(control.grpc_address) as east:
            await east.beat(0, 1)
            await until(lambda: control.grid.cells == 1)
            async with gateway(control.grpc_address) as west:
                await until(lambda: west.state("cell-0000") == "ready")
                control.grid.drain("cell-0000", reason="disk swap")
                assert await control.saver.settled(5.0)
                await until(lambda: west.state("cell-0000") == "draining")
        async with serve(config(tmp_path), "control") as control, agent(control.grpc_address) as east:
            assert control.grid.drains["cell-0000"].reason == "disk swap"
            async with gateway(control.grpc_address) as west:
                await east.beat(0, 2)
                await until(lambda: west.state("cell-0000") == "draining")
                control.grid.undrain("cell-0000")
                await until(lambda: west.state("cell-0000") == "ready")

    asyncio.run(scenario())


def test_fc_40_control_restarted_empty_learns_anew_and_removes_nothing(tmp_path: Path) -> None:
    async def first_life() -> None:
        async with (
            serve(config(tmp_path, expected=2), "control") as control,
            agent(control.grpc_address) as east,
            gateway(control.grpc_address) as west,
            beating(east, 0, 1),
        ):
            await until(lambda: sorted(west.cells) == ["cell-0000", "cell-0001"])

    async def second_life() -> None:
        async with serve(config(tmp_path, expected=2), "control") as control, gateway(control.grpc_address) as west:
            await west.report()
            async with agent(control.grpc_address) as east:
                await east.beat(0, 50)
                await until(lambda: control.grid.cells == 1)
                assert not west.deltas  # one of two cells is not the grid
                await east.beat(1, 50)
                await until(lambda: sorted(west.cells) == ["cell-0000", "cell-0001"])
                assert west.deltas[0].full
                assert [view.cell.cell_id for view in west.deltas[0].cells] == ["cell-0000", "cell-0001"]
                assert not any(delta.removed for delta in west.deltas)

    asyncio.run(first_life())
    for path in tmp_path.iterdir():
        path.unlink()
    asyncio.run(second_life())


@pytest.mark.parametrize("damage", ["corrupt", "directory"])
def test_fc_40_control_serves_with_a_state_file_it_cannot_use(tmp_path: Path, damage: str) -> None:
    state = tmp_path / "control-control.sqlite"
    if damage == "corrupt":
        state.write_bytes(b"\x00garbage" * 1000)
    else:
        state.mkdir()

    async def scenario() -> None:
        async with (
            serve(config(tmp_path), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address) as east,
        ):
            await east.beat(0, 1)
            await until(lambda: west.state("cell-0000") == "ready")
            assert control.saver.started_empty_because
            assert control.saver.failures >= 1
            assert bool(control.saver.problem) == (damage == "directory")

    asyncio.run(scenario())
    assert (tmp_path / "control-control.sqlite.bad").exists() == (damage == "corrupt")


def test_forget_removes_explicitly_and_a_beat_registers_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            serve(config(tmp_path, expected=2), "control") as control,
            gateway(control.grpc_address) as west,
            agent(control.grpc_address) as east,
        ):
            await east.beat(0, 1)
            await east.beat(1, 1)
            await until(lambda: len(west.cells) == 2)
            control.grid.forget("cell-0000")
            await until(lambda: "cell-0000" not in west.cells)
            assert west.deltas[-1].removed == ("cell-0000",)
            await east.beat(0, 2)
            await until(lambda: west.state("cell-0000") == "ready")

    asyncio.run(scenario())


def test_a_gateway_that_does_not_read_makes_nothing_grow_and_gets_the_newest(tmp_path: Path) -> None:
    cells = 50

    async def scenario() -> None:
        async with (
            serve(config(tmp_path, expected=cells), "control") as control,
            agent(control.grpc_address) as east,
            gateway(control.grpc_address, "quick") as quick,
            grpc.aio.insecure_channel(control.grpc_address) as channel,
        ):
            stuck = channel.stream_stream(VIEWS)()  # type: ignore[call-arg] # the stubs know only the other form
            await until(lambda: len(control.grid.feeds) == 2)
            sequence = 0
            async with asyncio.timeout(60):
                # Until the stream's flow-control window is shut: then its feed stops draining.
                while sequence < 20 or not stalled(control):
                    sequence += 1
                    for number in range(cells):
                        await east.beat(number, sequence)
                    await asyncio.sleep(0.02)
            assert max(feed.waiting for feed in control.grid.feeds) <= cells
            await until(lambda: quick.cells["cell-0000"].sequence == sequence)
            await drained(stuck, sequence)

    def stalled(control: Running) -> bool:
        return (
            any(feed.sent > 10 and feed.waiting == cells for feed in control.grid.feeds) and control.grid.version > 100
        )

    async def drained(stuck: "grpc.aio.StreamStreamCall[bytes, bytes]", sequence: int) -> None:
        newest = 0
        async with asyncio.timeout(20):
            async for raw in stuck:
                newest = max([newest, *(view.sequence for view in pb.ViewDelta.FromString(raw).cells)])
                if newest == sequence:
                    return

    asyncio.run(scenario())


def test_streams_beyond_the_bound_are_refused_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_GATEWAYS", 1)

    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, gateway(control.grpc_address):
            await until(lambda: len(control.grid.feeds) == 1)
            async with grpc.aio.insecure_channel(control.grpc_address) as channel:
                call = channel.stream_stream(VIEWS)()  # type: ignore[call-arg] # as above
                assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert control.grid.counters["gateway_streams_refused"] == 1
            assert len(control.grid.feeds) == 1

    asyncio.run(scenario())


def test_gateways_come_and_go_without_a_trace(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control, agent(control.grpc_address) as east, beating(east, 0):
            await visit(control)
            tasks = len(asyncio.all_tasks())
            for _ in range(5):
                await visit(control)
            await until(lambda: len(asyncio.all_tasks()) <= tasks)

    async def visit(control: Running) -> None:
        async with gateway(control.grpc_address) as west:
            await west.report()
            await until(lambda: west.state("cell-0000") == "ready")
        await until(lambda: not control.grid.feeds)

    asyncio.run(scenario())


def test_a_second_control_on_the_same_port_fails_to_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serve(config(tmp_path), "control") as control:
            with pytest.raises(OSError, match="cannot listen"):
                async with serve(config(tmp_path / "other", listen=control.grpc_address), "control"):
                    pass

    asyncio.run(scenario())


def test_a_beat_is_about_a_kilobyte() -> None:
    assert 300 < heartbeat_to_pb(heartbeat(0, "inc", 1)).ByteSize() < 1_500
