"""A control as a gateway sees it, saying what a test tells it to: the Views stream on a real gRPC port, in a thread.

with ViewControl() as control:
    control.show(ready_cell("east-0", engine.address))   # a cell, with a heartbeat twice a second from now on
    control.hush("east-0")                               # its heartbeats stop; the stream goes on
    control.remove("east-0")
    control.kill()                                       # streams end, the port refuses
    control.revive(empty=True)                           # a new incarnation that knows nothing
    control.reports                                      # what gateways said, newest last
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from tests.support.envoy import free_port
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.telemetry import EngineReading, Histogram, Telemetry
from tradewind.model.view import CellView, GatewayReport, ViewDelta, ViewVersion
from tradewind.wire.convert import delta_to_pb, report_from_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import SERVICE

BEAT_S = 0.5
T = TypeVar("T")

IDLE = Telemetry(
    engine=EngineReading(
        queue_requests=0.0,
        running_requests=0.0,
        kv_fill_ratio=0.0,
        ttft_s=Histogram(bounds=(0.1, 1.0), counts=(0.0, 0.0, 0.0), total=0.0),
    ),
    engine_age_s=0.1,
)


def ready_cell(
    cell_id: str,
    address: str,
    *,
    models: tuple[str, ...] = ("m",),
    site: str = "east",
    state: CellState = CellState.READY,
    max_model_len: int | None = None,
) -> CellView:
    """A cell with an idle engine."""
    capabilities = Capabilities(models=models, max_model_len=max_model_len)
    cell = Cell(cell_id=cell_id, site=site, address=address, capabilities=capabilities)
    return CellView(cell=cell, state=state, incarnation="b1", sequence=1, telemetry=IDLE)


class ViewControl:
    """A context manager; every method may be called from the test's thread."""

    def __init__(self, control_id: str = "control") -> None:
        self.control_id = control_id
        self.port = free_port()
        self.reports: list[GatewayReport] = []
        self._cells: dict[str, CellView] = {}
        self._hushed: set[str] = set()
        self._starts = 0
        self._counter = 0
        self._streams: set[asyncio.Queue[ViewDelta]] = set()
        self._server: grpc.aio.Server | None = None
        self._beats: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="view-control", daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def streams(self) -> int:
        """How many gateways are connected."""
        return len(self._streams)

    def show(self, *cells: CellView) -> None:
        """Add or change cells; gateways hear of it at once."""
        self._call(self._show(cells))

    def change(self, cell_id: str, **changes: Any) -> None:
        """Replace fields of one cell's view, with a newer sequence."""
        self._call(self._show([replace(self._cells[cell_id], **changes)]))

    def hush(self, *cell_ids: str) -> None:
        """No more heartbeats of these cells."""
        self._hushed.update(cell_ids)

    def remove(self, *cell_ids: str) -> None:
        """Take cells out of the grid, explicitly."""
        self._call(self._remove(cell_ids))

    def kill(self) -> None:
        """Every stream is cut and the port refuses."""
        self._call(self._stop())

    def revive(self, *, empty: bool) -> None:
        """Listen on the same port again, as a new process."""
        if empty:
            self._cells.clear()
        self._call(self._start())

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self) -> None:
        self._starts += 1
        method: Callable[..., Any] = grpc.stream_stream_rpc_method_handler
        handler = method(
            self._views,
            request_deserializer=pb.GatewayReport.FromString,
            response_serializer=pb.ViewDelta.SerializeToString,
        )
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Views": handler}),))
        assert server.add_insecure_port(self.address) == self.port
        await server.start()
        self._server = server
        self._beats = asyncio.create_task(self._beat())

    async def _stop(self) -> None:
        if self._server is not None:
            assert self._beats is not None
            self._beats.cancel()
            await self._server.stop(0)
            self._server = None

    async def _show(self, cells: "tuple[CellView, ...] | list[CellView]") -> None:
        for view in cells:
            held = self._cells.get(view.cell.cell_id)
            sequence = held.sequence + 1 if held and held.incarnation == view.incarnation else view.sequence
            self._cells[view.cell.cell_id] = replace(view, sequence=sequence)
        self._say(tuple(self._cells[view.cell.cell_id] for view in cells))

    async def _remove(self, cell_ids: tuple[str, ...]) -> None:
        for cell_id in cell_ids:
            del self._cells[cell_id]
        self._say((), removed=cell_ids)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            speaking = [view for cell_id, view in self._cells.items() if cell_id not in self._hushed]
            await self._show(speaking)

    def _version(self) -> ViewVersion:
        self._counter += 1
        return ViewVersion(control_id=self.control_id, incarnation=f"c{self._starts}", counter=self._counter)

    def _say(self, cells: tuple[CellView, ...], *, removed: tuple[str, ...] = ()) -> None:
        delta = ViewDelta(version=self._version(), full=False, cells=cells, removed=removed)
        for stream in self._streams:
            stream.put_nowait(delta)

    async def _views(self, requests: AsyncIterator[pb.GatewayReport], context: Any) -> AsyncIterator[pb.ViewDelta]:
        queue: asyncio.Queue[ViewDelta] = asyncio.Queue()
        listener = asyncio.create_task(self._listen(requests))
        full = ViewDelta(version=self._version(), full=True, cells=tuple(self._cells.values()))
        self._streams.add(queue)
        try:
            yield delta_to_pb(full)
            while True:
                yield delta_to_pb(await queue.get())
        finally:
            self._streams.discard(queue)
            listener.cancel()

    async def _listen(self, requests: AsyncIterator[pb.GatewayReport]) -> None:
        async for report in requests:
            self.reports.append(report_from_pb(report))
