"""A control that only listens: records heartbeats and answers what a test tells it to.

with FakeControl() as control:                       # control.address
    control.wait_for(lambda beat: beat.evidence.warmed_up)      # the first such heartbeat, or AssertionError
    control.refuse("east-0", "owned by agent-2")
    control.stop(); control.start()                  # same port
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Self, TypeVar

import grpc

from tradewind.model.heartbeat import Heartbeat
from tradewind.wire.convert import heartbeat_from_pb
from tradewind.wire.pb import tradewind_pb2 as pb
from tradewind.wire.service import SERVICE

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat and when it arrived (time.monotonic)."""

    heartbeat: Heartbeat
    at_s: float
    size: int


class FakeControl:
    """A context manager; every method may be called from the test's thread."""

    def __init__(self, control_id: str = "control", *, reply_interval_s: float = 0.0) -> None:
        """`reply_interval_s`: answer no more often than this, as control does; by default every beat is answered."""
        self.control_id = control_id
        self.reply_interval_s = reply_interval_s
        self.port = 0
        self.beats: list[Beat] = []
        self.streams = 0
        self.replies = True
        self._refused: dict[str, str] = {}
        self._arrived = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def refuse(self, cell_id: str, reason: str) -> None:
        """Answer so from now on; "" accepts again."""
        self._refused[cell_id] = reason

    def wait_for(self, accept: Callable[[Heartbeat], object], *, timeout_s: float = 10.0, after: int = 0) -> Beat:
        """The first beat, of those from index `after` on, that `accept` likes."""
        deadline_s = time.monotonic() + timeout_s
        looked = after
        with self._arrived:
            while True:
                for beat in self.beats[looked:]:
                    if accept(beat.heartbeat):
                        return beat
                looked = len(self.beats)
                if not self._arrived.wait(max(0.0, deadline_s - time.monotonic())) and time.monotonic() >= deadline_s:
                    last = self.beats[-1].heartbeat if self.beats else None
                    raise AssertionError(f"no such heartbeat within {timeout_s} s; the last one was {last}")

    def start(self) -> None:
        self._call(self._listen())

    def stop(self) -> None:
        """Close the port and every stream at once."""
        self._call(self._close())

    def __enter__(self) -> Self:
        started = threading.Event()

        def serve() -> None:
            loop = asyncio.new_event_loop()
            self._loop = loop
            loop.call_soon(started.set)
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=serve, name="fake-control", daemon=True)
        self._thread.start()
        started.wait()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _call(self, work: Coroutine[None, None, T]) -> T:
        assert self._loop is not None, "use the control as a context manager"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        server = grpc.aio.server(options=(("grpc.so_reuseport", 0), ("grpc.http2.bdp_probe", 0)))  # as control
        handler = grpc.stream_stream_rpc_method_handler(
            self._heartbeats,
            request_deserializer=pb.Heartbeat.FromString,
            response_serializer=pb.HeartbeatReply.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Heartbeats": handler}),))
        self.port = server.add_insecure_port(self.address)
        await server.start()
        self._server = server

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def _heartbeats(
        self, requests: AsyncIterator[pb.Heartbeat], _context: object
    ) -> AsyncIterator[pb.HeartbeatReply]:
        self.streams += 1
        due_s = float("-inf")
        async for message in requests:
            beat = Beat(heartbeat_from_pb(message), time.monotonic(), message.ByteSize())
            with self._arrived:
                self.beats.append(beat)
                self._arrived.notify_all()
            if self.replies and beat.at_s >= due_s:
                due_s = beat.at_s + self.reply_interval_s
                cell_id = beat.heartbeat.cell.cell_id
                yield pb.HeartbeatReply(
                    cell_id=cell_id,
                    control_id=self.control_id,
                    refused=self._refused.get(cell_id, ""),
                    acked_sequence=message.sequence,
                )
