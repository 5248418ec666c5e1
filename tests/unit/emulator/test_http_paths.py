"""What a cut path keeps from a client, on a real loopback connection."""

import asyncio
import random

import pytest

from tradewind.emulator import http
from tradewind.emulator.http import Exchange, HttpServer
from tradewind.emulator.wan import Path, Wan

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SHORT_S = 0.05


class Answers:
    def handle(self, exchange: Exchange) -> None:
        exchange.respond(200, b"", (("content-length", "0"),))


async def _connected(path: Path) -> tuple[asyncio.Server, asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(HttpServer(Answers(), loop).factory(path), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(REQUEST)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    return server, reader, writer


def test_an_idle_connection_is_not_closed_through_a_cut_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_S", SHORT_S)

    async def run() -> None:
        path = Path(wan=Wan(), rng=random.Random(1), loop=asyncio.get_running_loop())
        server, reader, writer = await _connected(path)
        path.set_cut(True, reset_after_s=0.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4 * SHORT_S):
                await reader.read(1)
        path.set_cut(False)
        async with asyncio.timeout(10):
            assert await reader.read(1) == b"", "closed, now that the news gets through"
        writer.close()
        server.close()

    asyncio.run(run())


def test_what_is_open_when_a_cut_has_lasted_is_reset() -> None:
    async def run() -> None:
        path = Path(wan=Wan(), rng=random.Random(1), loop=asyncio.get_running_loop())
        server, reader, writer = await _connected(path)
        path.set_cut(True, reset_after_s=SHORT_S)
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
        writer.close()
        server.close()

    asyncio.run(run())
