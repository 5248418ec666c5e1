"""Serve a Starlette application on "ip:port" inside a running event loop."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Protocol, cast

import uvicorn
from starlette.applications import Starlette

MAX_CONNECTIONS = 256  # an admin port answers people and scrapers, not users; beyond it: 503
REQUEST_S = 10.0  # a client that takes longer for a request is hung up on, or the silent would keep out everybody else
LOOK_S = 1.0
UNREAD_S = 30.0  # so long may an answer lie unread; the kernel then ends the connection
GRACE_S = 2


class _QuietServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the process's loop owns them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Cycle(Protocol):
    """One request of a connection, as far as uvicorn knows it."""

    more_body: bool
    response_complete: bool


class _Connection(Protocol):
    cycle: _Cycle | None
    transport: asyncio.Transport


async def _hang_up_on_the_slow(connections: Iterable[_Connection]) -> None:
    """Close, until cancelled, connections whose next request is not whole in time; uvicorn bounds only the wait for its
    first byte, and that only after an answer."""
    waiting: dict[_Connection, tuple[_Cycle | None, float]] = {}  # for a request after this one, since
    while True:
        await asyncio.sleep(LOOK_S)
        now_s, before, waiting = time.monotonic(), waiting, {}
        for connection in list(connections):
            cycle = connection.cycle
            if cycle is not None and not cycle.more_body and not cycle.response_complete:
                continue  # it is our turn
            last, since_s = before.get(connection, (cycle, now_s))
            waiting[connection] = (cycle, since_s if last is cycle else now_s)
            if now_s - waiting[connection][1] >= REQUEST_S:
                connection.transport.close()


def parse_address(address: str) -> tuple[str, int]:
    """Split "ip:port" ("[ip6]:port" too). Raises ValueError with what to write."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address; write ip:port, e.g. 127.0.0.1:7400")
    return host.strip("[]"), int(port)


@contextlib.asynccontextmanager
async def serve_app(app: Starlette, address: str) -> AsyncIterator[str]:
    """Serve app until the block ends; yields the bound "ip:port" (port 0 picks a free one).

    Raises OSError when the address cannot be bound.
    """
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_S * 1e3))
        listener.bind((host, port))
        listener.listen(MAX_CONNECTIONS)  # from here on a connection waits for the server instead of being refused
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=96 * 1024,
        )
        server = _QuietServer(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        slow = asyncio.create_task(_hang_up_on_the_slow(cast("set[_Connection]", server.server_state.connections)))
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            slow.cancel()
            server.should_exit = True
            await asyncio.wait([task, slow])
            await task
