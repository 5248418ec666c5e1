"""An engine that dies with its whole queue: every request that waits in it is served by another."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace as with_fields

from tests.support.edge import Edge, running_edge
from tests.support.grid import with_grid
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.runtime.ask import ask_async

CHAT = "/v1/chat/completions"
QUEUE = 300  # more than the 256 sequences of a usual engine
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
STREAM = HEAD + b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)
REQUESTS = 12
DYING = "west-0"
BODY = {"model": "m", "messages": [], "stream": True}


class Waiting:
    """Sends headers at once and nothing else, until `end` resets every connection."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.full = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            self.writers.append(writer)
            if len(self.writers) == QUEUE:
                self.full.set()

    def end(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


async def serve_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(STREAM)
        await writer.drain()
    writer.close()


async def queue_dies(edge: Edge) -> list[int]:
    waiting = Waiting()
    dying = await asyncio.start_server(waiting.serve, "127.0.0.1", 0, backlog=1024)
    good = await asyncio.start_server(serve_at_once, "127.0.0.1", 0, backlog=1024)
    addresses = [f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (dying, good)]
    # All of them go to the one that dies: the other joins when they wait.
    await asyncio.to_thread(edge.route, {"m": [(addresses[0], 1)]})
    asked = asyncio.create_task(edge.post_many([BODY] * QUEUE, timeout_s=60))
    async with asyncio.timeout(30):
        await waiting.full.wait()
    await asyncio.to_thread(edge.route, {"m": [(address, 1) for address in addresses]})
    dying.close()
    waiting.end()
    try:
        return await asked
    finally:
        good.close()


def test_the_retry_budget_holds_the_queue_of_a_whole_engine(tmp_path: Path) -> None:
    with running_edge(tmp_path, connect_timeout_s=30.0) as edge:
        assert asyncio.run(queue_dies(edge)) == [200] * QUEUE
        stats = edge.envoy.stats("cluster.pool/m.upstream_rq_retry")
    assert stats["cluster.pool/m.upstream_rq_retry_success"] >= QUEUE
    assert stats["cluster.pool/m.upstream_rq_retry_overflow"] == 0


class Streamed(NamedTuple):
    """What a client got."""

    status: int
    tokens: int
    whole: bool


def stream(address: str, number: int) -> Streamed:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    messages = [{"role": "user", "content": f"question {number}"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 50, "ignore_eos": True, "stream": True}
    text = b""
    try:
        connection.request("POST", CHAT, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
            while part := response.read1(65536):
                text += part
        return Streamed(response.status, text.count(b'"content"'), text.endswith(b"data: [DONE]\n\n"))
    finally:
        connection.close()


def test_what_waits_in_an_engine_that_is_killed_is_served_by_another(tmp_path: Path) -> None:
    """kill -9 under `routing: pick`, engines that serve one request at a time: the whole chain of a gateway.

    Whatever had no token is served in full, and the picker's books are even.
    """
    config = emulated_grid(
        sites=("east", "west"),
        cells_per_site=1,
        profile="fast",
        policy="cost",
        state_dir=str(tmp_path),
        exporters=False,
        wan_ms=((2.0, 0.2), (2.0, 0.2)),
        max_num_seqs=1,
    )
    (gateway,) = config.gateways
    patient = with_fields(gateway.pick, timeout_s=1.0)  # on a busy machine the shares would decide after 50 ms
    config = with_fields(config, gateways=[with_fields(gateway, pick=patient)])

    async def script(grid: LiveGrid) -> tuple[list[Streamed], dict[str, Any]]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(REQUESTS) as pool:
            asked = [loop.run_in_executor(pool, stream, grid.gateway.listen, number) for number in range(REQUESTS)]
            await books(grid, until=lambda rows: waiting(rows, DYING) >= 3)
            pid = await grid.engine_pid(DYING)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            answers = await asyncio.gather(*asked)
        await books(grid, until=lambda rows: not any(row["in_flight"] for row in rows))
        return answers, await status_of(grid)

    answers, status = with_grid(config, script)
    assert status["gate"]["mode"] == "wasm"
    lost = [answer for answer in answers if not answer.whole]
    assert len(lost) <= 1, "the one that was being served"
    assert all(answer.status == 200 and answer.tokens > 0 for answer in lost)
    pick = status["pick"]
    assert (pick["released"], pick["expired"], pick["in_flight"]) == (pick["picks"], 0, 0)


def waiting(rows: list[dict[str, Any]], cell: str) -> int:
    """Requests without a token in one cell, by the picker's books."""
    return sum(row["in_flight"] - row["decoding"] for row in rows if row["cell_id"] == cell)


async def status_of(grid: LiveGrid) -> dict[str, Any]:
    status = await ask_async(grid.gateway.admin, "/v1/status")
    assert isinstance(status, dict)
    return status


async def books(grid: LiveGrid, *, until: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The picker's rows of cells, as soon as they are so."""
    async with asyncio.timeout(30):
        while not until(rows := (await status_of(grid))["pick"]["cells"]):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)
    return list(rows)
