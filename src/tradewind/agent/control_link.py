"""The heartbeat stream to one control: reconnects for ever, keeps only the newest beat of each cell."""

import asyncio
import logging
import random
import time
from collections.abc import Callable

import grpc

from tradewind.agent.metrics import AgentMetrics
from tradewind.runtime.log import log_event
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import HEARTBEATS

log = logging.getLogger(__name__)

Call = grpc.aio.StreamStreamCall[bytes, pb.HeartbeatReply]

MIN_BACKOFF_S = 0.1
MAX_BACKOFF_S = 2.0
CONNECT_TIMEOUT_S = 2.0
WRITE_TIMEOUT_S = 2.0
REPLY_TIMEOUT_S = 5.0  # a control that has replied once and then falls silent this long is connected to anew
REFUSED_INTERVAL_S = 5.0  # how often a cell that control refuses is offered again

CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # else a new channel inherits the old one's backoff
    ("grpc.enable_retries", 0),
    ("grpc.http2.bdp_probe", 0),  # a ping with each reply, to size a window that replies never fill
    ("grpc.max_receive_message_length", 1 << 20),
)


class ControlLink:
    """One per control process. Independent of all others: a slow or dead control delays nobody."""

    def __init__(
        self,
        control_id: str,
        address: str,
        *,
        metrics: AgentMetrics,
        on_connected: Callable[[], None],
        rng: random.Random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """on_connected is called when a stream has opened, so that every cell beats at once."""
        self.control_id = control_id
        self._address = address
        self._metrics = metrics
        self._on_connected = on_connected
        self._rng = rng
        self._clock = clock
        self._pending: dict[str, bytes] = {}  # the newest unsent beat of each cell
        self._ready = asyncio.Event()
        self._refused: dict[str, str] = {}
        self._offered_s: dict[str, float] = {}
        self._replied_s: float | None = None
        self._connected = False
        metrics.connected.labels(control_id).set(0)

    def offer(self, cell_id: str, heartbeat: bytes) -> None:
        """Take a serialised heartbeat; never waits. An unsent older one of the same cell is dropped and counted."""
        now_s = self._clock()
        if cell_id in self._refused and now_s - self._offered_s.get(cell_id, 0.0) < REFUSED_INTERVAL_S:
            return
        self._offered_s[cell_id] = now_s
        if cell_id in self._pending:
            self._metrics.superseded.labels(self.control_id).inc()
        self._pending[cell_id] = heartbeat
        self._ready.set()

    async def run(self) -> None:
        """Keep a stream open until cancelled."""
        backoff_s = MIN_BACKOFF_S
        while True:
            self._connected = False
            reason = await self._stream()
            if self._connected:
                backoff_s = MIN_BACKOFF_S
                log_event(log, "agent.control_lost", control=self.control_id, reason=reason)
            else:
                log_event(log, "agent.control_unreachable", level=logging.DEBUG, control=self.control_id, reason=reason)
            self._metrics.connected.labels(self.control_id).set(0)
            await asyncio.sleep(backoff_s * (0.5 + self._rng.random() / 2))
            backoff_s = min(MAX_BACKOFF_S, backoff_s * 2)

    async def _stream(self) -> str:
        """One stream from connect to its end; returns why it ended."""
        async with grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS) as channel:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await channel.channel_ready()
            except TimeoutError:
                return f"no connection within {CONNECT_TIMEOUT_S:g} s"
            stub = channel.stream_stream(
                HEARTBEATS, request_serializer=None, response_deserializer=pb.HeartbeatReply.FromString
            )
            call: Call = stub()  # type: ignore[call-arg]  # the stubs lack the default of request_iterator
            self._begin()
            tasks = [asyncio.ensure_future(self._write(call)), asyncio.ensure_future(self._read(call))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                return next(iter(done)).result()
            finally:
                call.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        self._connected = True
        self._replied_s = None
        self._pending.clear()
        self._refused.clear()
        self._metrics.connected.labels(self.control_id).set(1)
        self._metrics.streams.labels(self.control_id).inc()
        log_event(log, "agent.control_connected", control=self.control_id, address=self._address)
        self._on_connected()

    async def _write(self, call: Call) -> str:
        sent, sent_bytes = self._metrics.sent.labels(self.control_id), self._metrics.sent_bytes.labels(self.control_id)
        while True:
            await self._ready.wait()
            self._ready.clear()
            while self._pending:
                cell_id = next(iter(self._pending))
                heartbeat = self._pending.pop(cell_id)
                try:
                    async with asyncio.timeout(WRITE_TIMEOUT_S):
                        await call.write(heartbeat)
                except TimeoutError:
                    return "control does not read"
                except (grpc.RpcError, asyncio.InvalidStateError) as error:
                    return _why(error)
                sent.inc()
                sent_bytes.inc(len(heartbeat))
            if self._replied_s is not None and self._clock() - self._replied_s > REPLY_TIMEOUT_S:
                return "control has fallen silent"

    async def _read(self, call: Call) -> str:
        try:
            async for reply in call:
                self._replied_s = self._clock()
                self._take(reply)
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            return _why(error)
        return "control ended the stream"

    def _take(self, reply: pb.HeartbeatReply) -> None:
        cell_id, reason = reply.cell_id, reply.refused
        if cell_id not in self._offered_s or self._refused.get(cell_id, "") == reason:
            return
        if reason:
            self._refused[cell_id] = reason
            log_event(log, "agent.refused", level=logging.WARNING, control=self.control_id, cell=cell_id, reason=reason)
        else:
            del self._refused[cell_id]
            log_event(log, "agent.accepted", control=self.control_id, cell=cell_id)
        self._metrics.refused.labels(self.control_id, cell_id).set(1 if reason else 0)


def _why(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return type(error).__name__
