"""The Endpoint Picker behind a real Envoy: bodies of every size, pickers that die, endpoints that are gone."""

import asyncio
import hashlib
import io
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.epp.fakes import MODEL, RoundRobin
from tests.support.envoy import free_port
from tests.support.polling import until
from tradewind.gateway.epp.server import EppServer
from tradewind.gateway.epp.service import EndKind
from tradewind.lab.epp.cases import chat
from tradewind.lab.epp.envoy_config import MESSAGE_TIMEOUT_S
from tradewind.lab.epp.pool import Pool
from tradewind.lab.epp.rig import Rig, rig
from tradewind.lab.epp.run import run_envoy
from tradewind.lab.epp.talk import Target
from tradewind.lab.epp.verdicts import Result

MB = 1_000_000
SLACK_S = 1.5  # for a busy machine


def endpoints(count: int = 3) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{free_port()}" for _ in range(count))


@asynccontextmanager
async def ours(pool: Pool, directory: Path, picker: RoundRobin) -> AsyncIterator[tuple[Rig, EppServer]]:
    """Envoy with our server in this process."""
    server = EppServer("127.0.0.1:0", picker, ready=lambda: True)
    await server.start()
    try:
        async with rig(Target(address=f"127.0.0.1:{server.port}"), pool, directory, tapped=False) as made:
            yield made, server
    finally:
        await server.stop()


@contextmanager
def process(port: int, pool: Pool) -> Iterator[subprocess.Popen[bytes]]:
    """Our server as a process, ended by its pid."""
    argv = [sys.executable, "-m", "tests.epp.serve", str(port), ",".join(pool.endpoints)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"listening\n"
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def memory_bytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name))


def test_every_case_through_envoy() -> None:
    pool = Pool(model=MODEL, endpoints=endpoints())
    picker = RoundRobin(pool.endpoints)

    async def run() -> list[tuple[str, str]]:
        server = EppServer("127.0.0.1:0", picker, ready=lambda: True)
        await server.start()
        verdicts = await run_envoy(Target(address=f"127.0.0.1:{server.port}"), pool)
        await server.stop(grace_s=5.0)
        return [(verdict.case, verdict.detail) for verdict in verdicts if verdict.result is not Result.PASSED]

    assert asyncio.run(run()) == []
    assert picker.open == []
    assert {len(served.ends) for served in picker.told.values()} == {1}


@pytest.mark.parametrize("size", [int(0.9 * MB), int(1.1 * MB), 8 * MB, 25 * MB])
def test_a_large_body_reaches_the_engine_and_no_picker_keeps_it(size: int, tmp_path: Path) -> None:
    """FC-22: with Content-Length and chunked, with Expect: 100-continue; bounded memory in the picker."""
    pool = Pool(model=MODEL, endpoints=endpoints(2))
    body = chat(MODEL, "x" * size)
    port = free_port()

    async def run(child: subprocess.Popen[bytes]) -> None:
        async with rig(Target(address=f"127.0.0.1:{port}"), pool, tmp_path, tapped=False) as made:
            before = memory_bytes(child.pid, "VmRSS")
            for _ in range(2):  # eight bodies in all: one that is kept each time would not fit the bound
                for listener in (made.ports.buffered, made.ports.duplex):
                    await sent_whole(made, listener, body)
            assert memory_bytes(child.pid, "VmHWM") - before < 4 * size + 8 * MB

    with process(port, pool) as child:
        asyncio.run(run(child))


async def sent_whole(made: Rig, listener: int, body: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    for data, expect in ((io.BytesIO(body), True), (pieces(), False)):
        url = f"http://127.0.0.1:{listener}/v1/chat/completions"
        headers = {"content-type": "application/json"}
        async with asyncio.timeout(20):
            async with made.http.post(url, data=data, headers=headers, expect100=expect) as response:
                assert response.status == 200
                assert response.headers["x-body-sha256"] == hashlib.sha256(body).hexdigest()


def test_a_body_too_large_to_find_its_model_gives_413(tmp_path: Path) -> None:
    """FC-22: over the limit, a JSON 413; never 400, 404, 500 or a hang."""
    pool = Pool(model=MODEL, endpoints=endpoints(2))
    body = b'{"messages": "' + b"x" * 9 * MB + b'", "model": "demo"}'

    async def run() -> None:
        async with ours(pool, tmp_path, RoundRobin(pool.endpoints)) as (made, _):
            for listener in (made.ports.buffered, made.ports.duplex):
                reply = await made.ask(listener, body)
                assert (reply.status, reply.content_type) == (413, "application/json")
                assert b"request_too_large" in reply.body

    asyncio.run(run())


def test_a_refusal_for_patience_keeps_its_retry_after(tmp_path: Path) -> None:
    pool = Pool(model=MODEL, endpoints=endpoints(2))

    async def run() -> None:
        async with ours(pool, tmp_path, RoundRobin(pool.endpoints)) as (made, _):
            for listener in (made.ports.buffered, made.ports.duplex):
                reply = await made.ask(listener, chat("busy"))
                assert (reply.status, reply.retry_after, reply.content_type) == (429, "3", "application/json")
                assert b'"overloaded"' in reply.body

    asyncio.run(run())


def test_a_killed_or_frozen_picker_fails_open_and_comes_back(tmp_path: Path) -> None:
    """FC-46: BUFFERED loses no request, adds at most the timeout, and obeys the picker again without a new Envoy."""
    pool = Pool(model=MODEL, endpoints=endpoints(2))
    port = free_port()

    async def load(made: Rig, act: Callable[[], Awaitable[None]]) -> None:
        """Requests all the time, while something happens to the picker."""
        stop = asyncio.Event()
        replies = []

        async def client() -> None:
            while not stop.is_set():
                replies.append(await made.ask(made.ports.buffered, chat(MODEL)))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(client())
            await until(lambda: len(replies) > 20)
            await act()
            seen = len(replies)
            await until(lambda: len(replies) > seen + 20)
            stop.set()
        assert {reply.status for reply in replies} == {200}
        assert max(reply.took_s for reply in replies) < MESSAGE_TIMEOUT_S + SLACK_S

    async def run(child: subprocess.Popen[bytes]) -> None:
        async with rig(Target(address=f"127.0.0.1:{port}"), pool, tmp_path, tapped=False) as made:

            async def freeze() -> None:
                child.send_signal(signal.SIGSTOP)

            async def kill() -> None:
                child.kill()
                await asyncio.to_thread(child.wait)

            await load(made, freeze)
            await load(made, kill)
            with process(port, pool):
                assert await made.picker_is(healthy=True)
                for _ in range(20):
                    if (await made.ask(made.ports.buffered, chat("busy"))).status == 429:
                        break
                else:
                    raise AssertionError("the picker is not asked again")

    with process(port, pool) as child:
        asyncio.run(run(child))


def test_what_full_duplex_does_without_a_picker(tmp_path: Path) -> None:
    """FC-46: facts of Envoy. Dead: 500, but with a health check and no panic 200; frozen: the client waits."""
    pool = Pool(model=MODEL, endpoints=endpoints(2))
    port = free_port()

    async def run(child: subprocess.Popen[bytes]) -> None:
        async with rig(Target(address=f"127.0.0.1:{port}"), pool, tmp_path, tapped=False) as made:
            child.send_signal(signal.SIGSTOP)
            assert (await made.ask(made.ports.duplex, chat(MODEL))).status == 0
            child.kill()
            await asyncio.to_thread(child.wait)
            assert await made.picker_is(healthy=False)
            assert (await made.ask(made.ports.duplex, chat(MODEL))).status == 500
            assert (await made.ask(made.ports.checked, chat(MODEL))).status == 200

    with process(port, pool) as child:
        asyncio.run(run(child))


@pytest.mark.parametrize("wish", ["127.0.0.1:1", "192.0.2.9:80"])
def test_who_really_served_is_told(wish: str, tmp_path: Path) -> None:
    """FC-47: an endpoint that is not in the cluster is passed over; the accounting follows who served."""
    pool = Pool(model=MODEL, endpoints=endpoints(2))
    picker = RoundRobin((wish, pool.endpoints[1]))
    picker.endpoints = (wish, pool.endpoints[1])

    async def run() -> None:
        async with ours(pool, tmp_path, picker) as (made, _):
            for listener in (made.ports.buffered, made.ports.duplex):
                reply = await made.ask(listener, chat(MODEL))
                assert (reply.status, reply.served_by) == (200, pool.endpoints[1])
            await until(lambda: not picker.open)

    asyncio.run(run())
    assert [served.ends[0][0] for served in picker.told.values()] == [pool.endpoints[1]] * 2


def test_a_client_that_leaves_in_the_middle_releases_its_decision_once(tmp_path: Path) -> None:
    pool = Pool(model=MODEL, endpoints=endpoints(1))
    picker = RoundRobin(pool.endpoints)

    async def run() -> None:
        async with ours(pool, tmp_path, picker) as (made, server):
            url = f"http://127.0.0.1:{made.ports.duplex}/v1/chat/completions"
            async with aiohttp.ClientSession() as client:
                response = await client.post(url, data=chat(MODEL, stream=True))
                await response.content.readany()
                response.close()
            await until(lambda: not picker.open)
            assert server.open_streams == 0

    asyncio.run(run())
    served = picker.told["0"]
    address, status, ending = served.ends[0]
    assert (len(served.ends), served.firsts, address, status) == (1, 1, pool.endpoints[0], 200)
    assert ending.kind is EndKind.ABORTED


def test_a_whole_stream_tells_first_token_and_usage(tmp_path: Path) -> None:
    pool = Pool(model=MODEL, endpoints=endpoints(1))
    picker = RoundRobin(pool.endpoints)

    async def run() -> None:
        async with ours(pool, tmp_path, picker) as (made, _):
            assert (await made.ask(made.ports.duplex, chat(MODEL, stream=True))).status == 200
            await until(lambda: not picker.open)

    asyncio.run(run())
    served = picker.told["0"]
    _, status, ending = served.ends[0]
    assert (served.firsts, status, ending.kind) == (1, 200, EndKind.COMPLETE)
    assert (ending.prompt_tokens, ending.completion_tokens) == (7, 2)
