"""The server on real sockets: TLS, Unix sockets, dead peers, bounds, and the way out."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.epp import wire
from tests.epp.fakes import MODEL, RoundRobin
from tests.epp.said import GREETING, headers
from tests.epp.said import pick as pick_frames
from tests.support.polling import until
from tradewind.gateway.epp.calls import EppLimits
from tradewind.gateway.epp.server import EppServer, TlsFiles
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.script import Script
from tradewind.lab.epp.talk import Talk, Target

DATA = Path(__file__).parent / "data"
PICKED = ("10.0.0.1:8000", "10.0.0.2:8000")


@contextlib.asynccontextmanager
async def running(
    address: str = "127.0.0.1:0", *, limits: EppLimits | None = None, tls: TlsFiles | None = None
) -> AsyncIterator[EppServer]:
    server = EppServer(address, RoundRobin(PICKED), ready=lambda: True, limits=limits, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def pick(target: Target) -> list[str]:
    async with target.channel() as channel:
        transcript = await Talk(channel, timeout_s=5.0).play(Script(chunks=(chat(MODEL),)))
    assert not transcript.error
    return transcript.destinations


def files(name: str, *, clients: Path | None = None) -> TlsFiles:
    """Certificates for tests only, self-signed, valid until 2120."""
    return TlsFiles(certificate=DATA / f"{name}.pem", key=DATA / f"{name}.key", clients=clients)


def test_plain_on_a_unix_socket(tmp_path: Path) -> None:
    async def run() -> list[str]:
        address = f"unix:{tmp_path}/epp.sock"
        async with running(address):
            return await pick(Target(address=address))

    assert asyncio.run(run()) == list(PICKED)


def test_tls() -> None:
    async def run() -> list[str]:
        async with running(tls=files("localhost")) as server:
            return await pick(Target(address=f"127.0.0.1:{server.port}", tls=True, ca=DATA / "localhost.pem"))

    assert asyncio.run(run()) == list(PICKED)


def test_a_client_without_the_wanted_certificate_is_not_served() -> None:
    async def run() -> bytes:
        async with running(tls=files("localhost", clients=DATA / "gateway.pem")) as server:
            context = ssl.create_default_context(cafile=str(DATA / "localhost.pem"))
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await greeting(server.port, context)
            context.load_cert_chain(DATA / "gateway.pem", DATA / "gateway.key")
            return await greeting(server.port, context)

    assert asyncio.run(run())[3] == wire.SETTINGS


async def greeting(port: int, context: ssl.SSLContext) -> bytes:
    """The first frame's header of a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        async with asyncio.timeout(5):
            return await reader.readexactly(wire.HEADER_BYTES)
    except asyncio.IncompleteReadError as error:
        raise ConnectionError from error
    finally:
        writer.transport.abort()


def test_bad_files_are_told_at_the_start() -> None:
    mixed = TlsFiles(certificate=DATA / "localhost.pem", key=DATA / "gateway.key")

    async def run() -> None:
        with pytest.raises(ssl.SSLError):
            async with running(tls=mixed):
                pass

    asyncio.run(run())


def test_a_silent_peer_is_asked_and_dropped_and_a_living_one_stays() -> None:
    async def run() -> None:
        async with running(limits=EppLimits(keepalive_s=0.1)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(wire.PREFACE + wire.settings({}))
            async with asyncio.timeout(5), Target(address=f"127.0.0.1:{server.port}").channel() as living:
                talk = Talk(living, timeout_s=5.0)
                assert await talk.health("") == "SERVING"
                heard = await reader.read()  # until the server closes
                assert heard.count(b"tradwind") == 1
                assert await talk.health("") == "SERVING"
            writer.close()

    asyncio.run(run())


def test_connections_are_bounded() -> None:
    async def run() -> None:
        async with running(limits=EppLimits(max_connections=1)) as server:
            _, first = await asyncio.open_connection("127.0.0.1", server.port)
            reader, second = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
            assert server.turned_away == 1
            first.close()
            second.close()

    asyncio.run(run())


def test_a_lost_connection_tells_the_end_of_its_decisions() -> None:
    async def run() -> None:
        picker = RoundRobin(PICKED)
        server = EppServer("127.0.0.1:0", picker, ready=lambda: True)
        await server.start()
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        request = wire.frame(wire.HEADERS, wire.END_HEADERS, 1, headers())
        writer.write(GREETING + request + pick_frames(1))
        await until(lambda: picker.open == ["0"])
        writer.transport.abort()
        await until(lambda: not picker.open)
        await server.stop()

    asyncio.run(run())


def test_stopping_waits_for_open_streams_as_long_as_it_may() -> None:
    async def run() -> None:
        async with running() as server, Target(address=f"127.0.0.1:{server.port}").channel() as channel:
            script = Script(chunks=(chat(MODEL)[:-1],), unfinished=True)
            talking = asyncio.create_task(Talk(channel, timeout_s=5.0).play(script))
            await until(lambda: server.counters.picked == 1)
            await server.stop(grace_s=5.0)  # ends as soon as the script does
            assert server.open_streams == 0
            assert (await talking).destinations == list(PICKED)

    asyncio.run(run())
