"""A whole edge for tests: the gateway's ADS and access-log servers in a thread of their own, and a real Envoy."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support.envoy import RunningEnvoy, free_port, running_envoy
from tradewind.gateway.accesslog import AccessLogServer
from tradewind.gateway.ads import AdsEvent, AdsServer, AdsState
from tradewind.gateway.envoy import EnvoyConfig
from tradewind.model.outcome import Outcome
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.gate.filter import wasm_code
from tradewind.xds.settings import GateModule, ModelInfo, XdsSettings, parse_policy
from tradewind.xds.snapshot import Snapshot

WASM_GATE = GateModule(code=wasm_code())


@dataclass(frozen=True)
class Answer:
    """One HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded


class GatewaySide:
    """ADS and access-log servers on one Unix socket, in a thread; may be killed and started again."""

    def __init__(self, socket_path: str, cells: Mapping[str, str]) -> None:
        self.cells = dict(cells)
        self.outcomes: list[Outcome] = []
        self.events: list[AdsEvent] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.log = AccessLogServer(self.cells.get, self.outcomes.append)
        self.ads: AdsServer = self._call(self._start, socket_path)

    async def _start(self, socket_path: str) -> AdsServer:
        server = AdsServer(socket_path, self.events.append, handlers=[self.log.handler()])
        await server.start()
        return server

    async def _stop(self) -> None:
        await self.ads.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(tasks, timeout=5) if tasks else None

    def _call(self, function: Callable, *args: object, **kwargs: object):  # type: ignore[no-untyped-def, type-arg]  # noqa: ANN202
        return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop).result(60)

    def publish(self, snapshot: Snapshot, *, wait: bool = True) -> None:
        async def on_loop() -> None:
            self.ads.publish(snapshot)
            if wait:
                await self.ads.wait_acked(timeout_s=30)

        self._call(on_loop)

    def state(self) -> AdsState:
        async def on_loop() -> AdsState:
            return self.ads.state()

        return self._call(on_loop)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._call(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@dataclass
class Edge:
    """What a test holds."""

    settings: XdsSettings
    port: int
    envoy: RunningEnvoy
    gateway: GatewaySide
    socket_path: str
    builder: SnapshotBuilder
    cells: dict[str, str] = field(default_factory=dict)

    def route(
        self, pools: Mapping[str, Sequence[tuple[str, int]]], *, models: Sequence[ModelInfo] = (), wait: bool = True
    ) -> None:
        """Publish pools given as model -> [(address, weight)]; a cell's id is its address."""
        self.publish(routing_of(pools), models=models, wait=wait)

    def publish(self, routing: Routing, *, models: Sequence[ModelInfo] = (), wait: bool = True) -> None:
        for pool in routing.pools:
            self.gateway.cells.update({e.address: e.cell_id for e in pool.endpoints})
        self.gateway.publish(self.builder.build(routing, models), wait=wait)

    def restart_gateway(self) -> None:
        """Kill the servers and start them again, empty."""
        self.gateway.close()
        self.gateway = GatewaySide(self.socket_path, self.gateway.cells)

    def post(
        self,
        body: object,
        *,
        path: str = "/v1/chat/completions",
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
        timeout_s: float = 20.0,
    ) -> Answer:
        """One request on a connection of its own."""
        data = _encode(body)
        sent = {"content-type": "application/json", **(headers or {})}
        return self.request(method, path, data, sent, timeout_s=timeout_s)

    def stream(self, body: object, *, path: str = "/v1/chat/completions", timeout_s: float = 20.0) -> "Received":
        """One streamed response, byte by byte as it comes; a broken one is returned as far as it came."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("POST", path, _encode(body), {"content-type": "application/json"})
            response = connection.getresponse()
            received = Received(response.status)
            try:
                while part := response.read1(65536):
                    received.parts.append((time.monotonic(), part))
                received.complete = response.isclosed() or not response.chunked
            except (http.client.HTTPException, OSError):
                pass
            return received
        finally:
            connection.close()

    async def post_many(self, bodies: Sequence[object], *, timeout_s: float = 30.0) -> list[int]:
        """All at once, each on a connection of its own; their statuses."""

        async def one(body: object) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            data = _encode(body)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            status = int((await reader.readline()).split()[1])
            writer.close()
            return status

        async with asyncio.timeout(timeout_s):
            return list(await asyncio.gather(*[one(body) for body in bodies]))

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> Answer:
        return self.request("GET", path, None, headers or {})

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, timeout_s: float = 20.0
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            data = response.read()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, data)
        finally:
            connection.close()

    @contextmanager
    def connection(self) -> Iterator["Connection"]:
        """One keep-alive connection for many requests in a row."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            yield Connection(connection)
        finally:
            connection.close()

    def outcome(self, request_id: str, *, within_s: float = 20.0) -> Outcome:
        """The outcome of the request with this id."""
        wait_for(lambda: any(o.request_id == request_id for o in self.gateway.outcomes), within_s)
        return next(o for o in self.gateway.outcomes if o.request_id == request_id)


@dataclass
class Received:
    """A streamed response: its parts with their times of arrival."""

    status: int
    parts: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False  # it ended as its framing says

    @property
    def text(self) -> bytes:
        return b"".join(part for _, part in self.parts)


@dataclass(frozen=True)
class Connection:
    """A keep-alive connection."""

    raw: http.client.HTTPConnection

    def post(self, body: object, *, path: str = "/v1/chat/completions") -> Answer:
        data = _encode(body)
        self.raw.request("POST", path, data, {"content-type": "application/json"})
        response = self.raw.getresponse()
        data = response.read()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, data)


def _encode(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def wait_for(found: Callable[[], object], within_s: float = 20.0) -> None:
    """Poll until `found()` is true. Raises TimeoutError."""
    deadline = time.monotonic() + within_s
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.01)


def routing_of(pools: Mapping[str, Sequence[tuple[str, int]]]) -> Routing:
    """Pools given as model -> [(address, weight)]."""
    return Routing(
        pools=tuple(
            PoolRouting(
                model=model,
                endpoints=tuple(
                    Endpoint(cell_id=address, site="east", address=address, weight=weight)
                    for address, weight in sorted(members)
                ),
            )
            for model, members in sorted(pools.items())
        )
    )


class NoShares(SnapshotBuilder):
    """Builds share tables of a host that no cluster has, so that Envoy's own policy decides."""

    def __init__(self, settings: XdsSettings) -> None:
        super().__init__(settings)
        self._bytes.table = lambda pool: "127.0.0.1:1=1,"  # type: ignore[method-assign]


@contextmanager
def running_edge(
    directory: Path,
    *,
    protocol: Literal["delta", "sotw"] = "delta",
    log_level: str = "warning",
    baseline: str = "",
    lua_shares: bool = True,
    gate: GateModule | None = WASM_GATE,
    modules: Path | None = None,
    **settings: object,
) -> Iterator[Edge]:
    """Envoy and its gateway servers; nothing is published yet. `lua_shares` False: Lua routes but picks nothing."""
    port, admin = free_port(), free_port()
    socket_path = str(directory / "gateway.sock")
    values = XdsSettings(
        listen=f"127.0.0.1:{port}",
        policy=parse_policy(baseline),
        gate=gate,
        **settings,  # type: ignore[arg-type]
    )
    gateway = GatewaySide(socket_path, {})
    config = EnvoyConfig(
        node_id="edge",
        site="east",
        admin=f"127.0.0.1:{admin}",
        socket_path=socket_path,
        pick_socket_path=str(directory / "pick.sock"),
        protocol=protocol,
    )
    with running_envoy(config, directory, log_level=log_level, modules=modules) as envoy:
        builder = SnapshotBuilder(values) if lua_shares else NoShares(values)
        edge = Edge(values, port, envoy, gateway, socket_path, builder)
        try:
            yield edge
        finally:
            edge.gateway.close()
