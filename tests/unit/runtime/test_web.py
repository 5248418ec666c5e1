"""The admin web server: clients that never finish a request keep nobody out."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tradewind.runtime import web

ASK = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def answer(_request: Request) -> Response:
    return PlainTextResponse("here")


async def take_long(request: Request) -> Response:
    await request.app.state.go_on.wait()
    return PlainTextResponse("done")


async def read_body(request: Request) -> Response:
    return PlainTextResponse(f"{len(await request.body())} bytes")


def app() -> Starlette:
    made = Starlette(
        routes=[Route("/", answer), Route("/long", take_long), Route("/body", read_body, methods=["POST"])]
    )
    made.state.go_on = asyncio.Event()
    return made


async def connected(address: str, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def answered(address: str, sent: bytes) -> bytes:
    reader, writer = await connected(address, sent)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUEST_S", 0.1)
    monkeypatch.setattr(web, "LOOK_S", 0.01)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /aga",
    ],
)
def test_those_who_never_finish_a_request_keep_nobody_out(begun: bytes) -> None:
    async def scenario() -> None:
        async with web.serve_app(app(), "127.0.0.1:0") as address:
            slow = [await connected(address, begun) for _ in range(web.MAX_CONNECTIONS)]
            async with asyncio.timeout(10):
                for reader, writer in slow:
                    await reader.read()  # to its end: hung up
                    writer.close()
            assert (await answered(address, ASK)).endswith(b"here")

    asyncio.run(scenario())


@pytest.mark.usefixtures("quick")
def test_an_answer_may_take_long_and_a_busy_connection_stays() -> None:
    async def scenario() -> None:
        made = app()
        async with web.serve_app(made, "127.0.0.1:0") as address:
            reader, writer = await connected(address, ASK.replace(b"/ ", b"/long ", 1))
            busy_reader, busy = await connected(address, b"")
            async with asyncio.timeout(10):
                for _ in range(15):  # together longer than a request may take
                    busy.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                    await busy_reader.readuntil(b"here")
                    await asyncio.sleep(0.02)
                made.state.go_on.set()
                assert (await reader.read()).endswith(b"done")
            writer.close()
            busy.close()

    asyncio.run(scenario())
