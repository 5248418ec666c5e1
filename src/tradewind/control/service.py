"""The gRPC side of control: heartbeats in from agents, grid views out to gateways."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio

from tradewind.control.beats import PeerError
from tradewind.control.feed import Feed
from tradewind.control.grid import Grid
from tradewind.runtime.log import log_event
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import SERVICE

log = logging.getLogger(__name__)

MAX_GATEWAYS = 64  # view streams; one more is refused
MAX_AGENT_STREAMS = 4_096
MAX_MESSAGE_BYTES = 16 << 20  # gRPC ends the stream beyond it; a gateway's report on 20,000 cells has 3 MB and more
ACK_INTERVAL_S = 1.0  # an agent needs to know that it is heard, not that each beat was
WRITE_TIMEOUT_S = 5.0  # an agent that does not read its replies loses its stream
STOP_GRACE_S = 0.5

# Raw bytes in: one message that cannot be parsed is counted and skipped, and the stream lives on.
Context = grpc.aio.ServicerContext[bytes, bytes]

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second control on the same port must fail, not share it
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # No ping with each message received: it sizes the window for what control reads, which beats and reports never
    # fill, and it wakes every agent once more per beat. The window of views is the gateway's to size.
    ("grpc.http2.bdp_probe", 0),
)


class GridService:
    """Both streams of tradewind.v1.Grid."""

    def __init__(self, grid: Grid, clock: Callable[[], float]) -> None:
        self._grid = grid
        self._clock = clock
        self.agent_streams = 0

    def handler(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        methods = {
            "Heartbeats": grpc.stream_stream_rpc_method_handler(self.heartbeats),
            "Views": grpc.stream_stream_rpc_method_handler(self.views),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def heartbeats(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Take beats until the agent hangs up. Answers each cell's first, each refusal, and then one beat a second."""
        if self.agent_streams >= MAX_AGENT_STREAMS:
            self._grid.counters["agent_streams_refused"] += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"control holds {MAX_AGENT_STREAMS} agent streams")
        self.agent_streams += 1
        acks = _Acks()
        try:
            async for raw in requests:
                reply = self._beat(raw, acks)
                if reply is not None:
                    async with asyncio.timeout(WRITE_TIMEOUT_S):
                        await context.write(reply.SerializeToString())
        except TimeoutError:
            self._grid.counters["agent_streams_stuck"] += 1
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "replies are not read")
        finally:
            self.agent_streams -= 1

    def _beat(self, raw: bytes, acks: "_Acks") -> pb.HeartbeatReply | None:
        now_s = self._clock()
        try:
            beat = self._grid.heartbeat(raw, now_s)
        except PeerError as error:
            acks.accepted.discard(error.cell_id)
            return pb.HeartbeatReply(cell_id=error.cell_id, control_id=self._grid.control_id, refused=str(error))
        if not acks.wants(beat.cell.cell_id, now_s):
            return None
        return pb.HeartbeatReply(
            cell_id=beat.cell.cell_id, control_id=self._grid.control_id, acked_sequence=beat.sequence
        )

    async def views(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Send a full view, then what changes; take the gateway's reports."""
        if len(self._grid.feeds) >= MAX_GATEWAYS:
            self._grid.counters["gateway_streams_refused"] += 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"control holds {MAX_GATEWAYS} gateway streams")
        with self._grid.feed() as feed:
            tasks = [
                asyncio.create_task(self._send(feed, context)),
                asyncio.create_task(self._receive(feed, requests)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, feed: Feed, context: Context) -> None:
        while True:
            batch = await feed.next()
            try:
                # Waits while the gateway's flow-control window is shut; what changes meanwhile waits in the feed.
                await context.write(self._grid.message(batch, self._clock(), gateway_id=feed.gateway_id))
            except (grpc.aio.BaseError, asyncio.InvalidStateError) as error:
                log_event(log, "gateway.gone", gateway=feed.gateway_id, error=type(error).__name__)
                return
            feed.sent += 1

    async def _receive(self, feed: Feed, requests: AsyncIterator[bytes]) -> None:
        async for raw in requests:
            try:
                self._grid.report(raw, self._clock(), feed=feed)
            except PeerError as error:
                log_event(log, "gateway.bad_report", level=logging.DEBUG, error=error)


class _Acks:
    """Which beats of one stream to answer: an agent must learn that a cell is accepted, and that control lives."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self._due_s = 0.0

    def wants(self, cell_id: str, now_s: float) -> bool:
        if cell_id in self.accepted and now_s < self._due_s:
            return False
        self.accepted.add(cell_id)
        self._due_s = now_s + ACK_INTERVAL_S
        return True


@contextlib.asynccontextmanager
async def serve_grid(service: GridService, address: str) -> AsyncIterator[str]:
    """Serve until the block ends; yields the bound "ip:port". Raises OSError when it cannot be bound."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_AGENT_STREAMS + MAX_GATEWAYS)
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    await server.start()
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(STOP_GRACE_S)
