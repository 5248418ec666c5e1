"""The ADS server of one gateway: both protocol variants on one Unix socket, for the Envoy beside it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from tradewind.xds import types
from tradewind.xds.dialects import Delta, StateOfTheWorld
from tradewind.xds.snapshot import Snapshot
from tradewind.xds.stream import CLUSTER_WAIT_S, NodeMemory, XdsStream

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
MAX_NODES = 64  # memories of nodes that are gone; the oldest is forgotten
MAX_STREAMS = 64
MAX_SERVERS = 4  # whose socket file has gone, and the one that listens
_MAX_REQUEST_BYTES = 16 * 1024 * 1024  # a NACK may quote the whole resource
_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.bdp_probe", 0),  # a ping with each ACK, to size a window that requests never fill
)

_Clock = Callable[[], float]
# The messages are untyped (xds-protos ships no stubs); this names the two of them.
_Request: TypeAlias = discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest
_Dialect: TypeAlias = StateOfTheWorld | Delta
_Context: TypeAlias = "grpc.aio.ServicerContext[_Request, object]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdsEvent:
    """Something an operator would want to read: "connected", "disconnected", "nack" or "recovered"."""

    name: str
    node: str
    type: str = ""  # cds, eds, lds, rds
    version: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeState:
    """What one node made of one resource type."""

    node: str
    type: str
    version: str  # published
    acked: str  # last version that the node accepted; "" = none yet
    nacked: str  # version it refused last, "" when the last answer was an ACK
    reason: str
    acks: int
    nacks: int
    age_s: float | None  # since its last answer; None before the first


@dataclass(frozen=True, slots=True, kw_only=True)
class AdsState:
    """The whole server, for status and metrics."""

    version: str  # of the published snapshot; "" before the first
    streams: int
    ignored: int  # stale or unknown requests
    types: tuple[TypeState, ...]
    settled: bool = False  # an Envoy is connected and all of them hold the published snapshot


class AdsServer:
    """Serves the published snapshot; answers nothing before the first, so that a restart empties no Envoy."""

    def __init__(
        self,
        path: str,
        on_event: Callable[[AdsEvent], None] | None = None,
        *,
        handlers: Sequence["grpc.GenericRpcHandler[_Request, object]"] = (),
        clock: _Clock | None = None,
    ) -> None:
        """`path`: Unix socket. `handlers`: other services on the same socket (the access log)."""
        self._path = path
        self._on_event = on_event or (lambda event: None)
        self._handlers = tuple(handlers)
        self._clock = clock
        self._servers: list[grpc.aio.Server] = []  # the last one listens, those before serve what is open on them
        self._snapshot: Snapshot | None = None
        self._nodes: dict[str, NodeMemory] = {}
        self._streams: dict[XdsStream, asyncio.Event] = {}
        self._progress = asyncio.Event()  # set and replaced whenever a client has said something
        self._ignored = 0

    async def start(self) -> None:
        """Bind the socket (replacing a stale one) and serve."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._ads_handler(), *self._handlers))
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:  # of gRPC, which keeps the reason to itself
            raise OSError(f"cannot listen on {self._path}") from error
        await server.start()
        os.chmod(self._path, 0o600)
        self._servers.append(server)

    async def start_again(self) -> None:
        """Listen anew, the socket file having gone; streams that are open go on."""
        while len(self._servers) >= MAX_SERVERS:
            await self._servers.pop(0).stop(0.0)
        await self.start()

    async def stop(self, *, grace_s: float = 0.0) -> None:
        """End all streams; Envoy keeps its configuration."""
        while self._servers:
            await self._servers.pop().stop(grace_s)

    def publish(self, snapshot: Snapshot) -> None:
        """Make every connected Envoy converge to this; the latest wins."""
        if self._snapshot is not None and self._snapshot.version == snapshot.version:
            return
        self._snapshot = snapshot
        for stream, wake in self._streams.items():
            stream.publish(snapshot)
            wake.set()

    def state(self) -> AdsState:
        """What each known node accepted and refused."""
        now_s = self._now_s()
        rows = [self._type_state(node, kind, now_s) for node in sorted(self._nodes) for kind in types.ORDER]
        ignored = self._ignored + sum(stream.ignored for stream in self._streams)
        version = self._snapshot.version if self._snapshot else ""
        return AdsState(
            version=version, streams=len(self._streams), ignored=ignored, types=tuple(rows), settled=self._all_settled()
        )

    def refused_addresses(self) -> frozenset[str]:
        """Endpoints of the published snapshot that a connected Envoy does not have since it refused their set."""
        return frozenset().union(*(stream.refused_addresses() for stream in self._streams))

    async def wait_acked(self, *, timeout_s: float = 5.0) -> None:
        """Return when at least one Envoy is connected and all hold the published snapshot. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while not self._all_settled():
                await self._progress.wait()

    def _all_settled(self) -> bool:
        return bool(self._streams) and all(stream.settled() for stream in self._streams)

    def _type_state(self, node: str, kind: str, now_s: float) -> TypeState:
        memory = self._nodes[node].types[kind]
        answered = memory.acks + memory.nacks > 0
        return TypeState(
            node=node,
            type=types.SHORT[kind],
            version=self._snapshot.versions[kind] if self._snapshot else "",
            acked=memory.accepted_version,
            nacked=memory.nacked_version,
            reason=memory.reason,
            acks=memory.acks,
            nacks=memory.nacks,
            age_s=now_s - memory.changed_s if answered else None,
        )

    def _now_s(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    def _ads_handler(self) -> "grpc.GenericRpcHandler[_Request, object]":
        methods = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(
                self._state_of_the_world,
                request_deserializer=discovery_pb2.DiscoveryRequest.FromString,
                response_serializer=discovery_pb2.DiscoveryResponse.SerializeToString,
            ),
            "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(
                self._delta,
                request_deserializer=discovery_pb2.DeltaDiscoveryRequest.FromString,
                response_serializer=discovery_pb2.DeltaDiscoveryResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _state_of_the_world(self, requests: AsyncIterator[_Request], context: _Context) -> None:
        await self._serve(requests, context, StateOfTheWorld())

    async def _delta(self, requests: AsyncIterator[_Request], context: _Context) -> None:
        await self._serve(requests, context, Delta())

    async def _serve(self, requests: AsyncIterator[_Request], context: _Context, dialect: _Dialect) -> None:
        if len(self._streams) >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ADS streams")
        opening = await anext(requests, None)
        if opening is None:
            return
        node: str = opening.node.id or "unnamed"
        stream, wake = XdsStream(dialect, self._memory(node)), asyncio.Event()
        if self._snapshot is not None:
            stream.publish(self._snapshot)
        self._streams[stream] = wake
        self._on_event(AdsEvent(name="connected", node=node))
        try:
            async with asyncio.TaskGroup() as group:  # should writing fail, the stream ends and Envoy opens another
                writer = group.create_task(self._write(stream, wake, context, node))
                await self._read(requests, opening, _Session(node, dialect, stream, wake))
                writer.cancel()
        finally:
            del self._streams[stream]
            self._progressed()  # the others may have been settled for long
            self._ignored += stream.ignored
            self._on_event(AdsEvent(name="disconnected", node=node))

    async def _read(self, requests: AsyncIterator[_Request], opening: _Request, session: "_Session") -> None:
        self._take(opening, session)
        async for request in requests:
            self._take(request, session)
            self._progressed()

    def _progressed(self) -> None:
        """Wakes who waits for all to be settled."""
        self._progress.set()
        self._progress = asyncio.Event()

    def _take(self, request: _Request, session: "_Session") -> None:
        kind: str = request.type_url
        ask = session.dialect.ask(request, first=kind not in session.seen)
        session.seen.add(kind)
        memory = self._nodes[session.node].types.get(kind)
        before = (memory.nacks, memory.reason) if memory else (0, "")
        session.stream.receive(ask, now_s=self._now_s())
        if memory and memory.nacks > before[0]:
            self._report("nack", session.node, kind, memory.nacked_version, memory.reason)
        elif memory and before[1] and not memory.reason:
            self._report("recovered", session.node, kind, memory.accepted_version, "")
        session.wake.set()

    def _report(self, name: str, node: str, kind: str, version: str, detail: str) -> None:
        self._on_event(AdsEvent(name=name, node=node, type=types.SHORT[kind], version=version, detail=detail))

    async def _write(self, stream: XdsStream, wake: asyncio.Event, context: _Context, node: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # What waits for an answer that never comes is sent after all. A bare timer: wait_for would start a task.
            timer = loop.call_later(CLUSTER_WAIT_S, wake.set)
            try:
                await wake.wait()
            finally:
                timer.cancel()
            wake.clear()
            responses = stream.ready(now_s=self._now_s())
            while stream.recovered:
                kind = stream.recovered.pop()
                self._report("recovered", node, kind, self._nodes[node].types[kind].accepted_version, "")
            for response in responses:
                await context.write(response)

    def _memory(self, node: str) -> NodeMemory:
        memory = self._nodes.pop(node, None) or NodeMemory()
        self._nodes[node] = memory
        while len(self._nodes) > MAX_NODES:
            del self._nodes[next(iter(self._nodes))]
        return memory


@dataclass(slots=True)
class _Session:
    node: str
    dialect: _Dialect
    stream: XdsStream
    wake: asyncio.Event
    seen: set[str] = field(default_factory=set)
