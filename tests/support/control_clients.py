"""Small gRPC clients of control for tests: an agent that beats when told, a gateway that records what it is sent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio

from tests.support.synthetic_agents import beat, telemetry
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.view import CellView, GatewayReport, ViewDelta
from tradewind.wire.convert import delta_from_pb, heartbeat_to_pb, report_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import HEARTBEATS, VIEWS

SERVING = Evidence(reachable=True, model_listed=True, warmed_up=True)


class AgentClient:
    """One heartbeat stream."""

    def __init__(self, channel: grpc.aio.Channel, incarnation: str) -> None:
        self.incarnation = incarnation
        self.replies: list[pb.HeartbeatReply] = []
        self._call = channel.stream_stream(HEARTBEATS, response_deserializer=pb.HeartbeatReply.FromString)()  # type: ignore[call-arg] # the stubs know only the form with an iterator
        self._reader = asyncio.create_task(self._read())

    async def beat(self, number: int, sequence: int, *, evidence: Evidence = SERVING, address: str = "") -> None:
        """Send one beat of cell number `number`."""
        message = heartbeat_to_pb(heartbeat(number, self.incarnation, sequence, evidence=evidence))
        if address:
            message.cell.address = address
        await self.raw(message.SerializeToString())

    async def raw(self, content: bytes) -> None:
        await self._call.write(content)

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for reply in self._call:
                self.replies.append(reply)


class GatewayClient:
    """One view stream; keeps every message, and the merged cells as a gateway would."""

    def __init__(self, channel: grpc.aio.Channel, gateway_id: str = "gateway") -> None:
        self.gateway_id = gateway_id
        self.deltas: list[ViewDelta] = []
        self.arrivals_s: list[float] = []
        self.cells: dict[str, CellView] = {}
        self._call = channel.stream_stream(VIEWS, response_deserializer=pb.ViewDelta.FromString)()  # type: ignore[call-arg] # as above
        self._reader = asyncio.create_task(self._read())

    async def report(self, report: GatewayReport | None = None) -> None:
        given = report or GatewayReport(gateway_id=self.gateway_id, site="site-0", sequence=1)
        await self.raw(report_to_pb(given).SerializeToString())

    async def raw(self, content: bytes) -> None:
        await self._call.write(content)

    def state(self, cell_id: str) -> str:
        """The cell's state as last told, "" if never."""
        view = self.cells.get(cell_id)
        return view.state.value if view else ""

    async def close(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for message in self._call:
                delta = delta_from_pb(message)
                self.arrivals_s.append(loop.time())
                self.deltas.append(delta)
                self.cells.update({view.cell.cell_id: view for view in delta.cells})
                for cell_id in delta.removed:
                    self.cells.pop(cell_id, None)


def heartbeat(number: int, incarnation: str, sequence: int, *, evidence: Evidence = SERVING) -> Heartbeat:
    """A beat with full telemetry and the given evidence."""
    made = beat(number, incarnation, sequence, reading=telemetry(sequence))
    return Heartbeat(
        cell=made.cell,
        incarnation=incarnation,
        sequence=sequence,
        evidence=evidence,
        telemetry=made.telemetry,
    )


@contextlib.asynccontextmanager
async def agent(address: str, incarnation: str = "inc-1") -> AsyncIterator[AgentClient]:
    async with grpc.aio.insecure_channel(address) as channel:
        client = AgentClient(channel, incarnation)
        try:
            yield client
        finally:
            await client.close()


@contextlib.asynccontextmanager
async def gateway(address: str, gateway_id: str = "gateway") -> AsyncIterator[GatewayClient]:
    async with grpc.aio.insecure_channel(address) as channel:
        client = GatewayClient(channel, gateway_id)
        try:
            yield client
        finally:
            await client.close()
