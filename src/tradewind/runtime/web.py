"""Serve a Starlette application on "ip:port" inside a running event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette

MAX_CONNECTIONS = 256  # an admin port answers people and scrapers, not users; beyond it: 503
GRACE_S = 2


class _QuietServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the process's loop owns them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
