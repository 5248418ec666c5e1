"""FC-66 over real sockets: an open loop does not wait for a stalled server, and each failure has its kind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tradewind.lab.client import LoadClient, Target
from tradewind.measure.record import Failure, Record
from tradewind.measure.summary import summarise
from tradewind.workload.plan import Planned

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
WORD = b'data: {"choices":[{"delta":{"content":" a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
STALL_S = 0.5


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def scripted_engine() -> AsyncIterator[str]:
    """An engine that stalls for its first requests and does what the number of wanted tokens says."""
    stall_until_s = asyncio.get_running_loop().time() + STALL_S

    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(length)
            await asyncio.sleep(max(0.0, stall_until_s - asyncio.get_running_loop().time()))
            if b'"max_tokens":2' in body:
                writer.write(HEAD + chunk(WORD))  # and then nothing: the connection ends
            elif b'"max_tokens":3' in body:
                writer.write(HEAD)
            else:
                writer.write(HEAD + chunk(WORD) + chunk(DONE) + b"0\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*served, return_exceptions=True)
        await server.wait_closed()


def planned(index: int, tokens: int, at_s: float) -> Planned:
    return Planned(request_id=f"r-{index}", at_s=at_s, prompt_tokens=20, output_tokens=tokens)


def test_fc_66_a_stalled_server_does_not_stall_the_load_and_its_wait_counts() -> None:
    async def main() -> list[Record]:
        async with scripted_engine() as address:
            plan = tuple(planned(index, 1, index / 50) for index in range(20))
            return await LoadClient(Target(address=address, model="m")).run(plan)

    records = asyncio.run(main())
    assert all(record.ok for record in records)
    assert all((record.sent_s or 0) - record.intended_s < STALL_S / 2 for record in records)
    first = min(records, key=lambda record: record.intended_s)
    assert (first.ttft_s or 0) >= 0.8 * STALL_S


def test_fc_66_failures_over_sockets_have_their_kinds() -> None:
    async def main() -> list[Record]:
        async with scripted_engine() as address:
            client = LoadClient(Target(address=address, model="m"))
            records = await client.run((planned(0, 1, 0), planned(1, 2, 0), planned(2, 3, 0)))
        return [*records, await client.send(planned(3, 1, 0))]  # nobody listens any more

    kinds = {record.request_id: record.failure for record in asyncio.run(main())}
    assert kinds == {
        "r-0": Failure.NONE,
        "r-1": Failure.BYTES_DELIVERED,
        "r-2": Failure.HEADERS_ONLY,
        "r-3": Failure.REFUSED,
    }


def test_fc_66_a_request_without_an_end_is_given_up() -> None:
    async def main() -> list[Record]:
        async with scripted_engine() as address:
            client = LoadClient(Target(address=address, model="m", timeout_s=STALL_S / 5))
            return await client.run((planned(0, 1, 0),))

    (record,) = asyncio.run(main())
    assert record.failure is Failure.TIMEOUT
    assert summarise([record], slo_ttft_s=1, for_s=1).failures == {"timeout": 1}
