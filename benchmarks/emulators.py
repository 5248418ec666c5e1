"""What the emulator costs: nine cells at 20 RPS x 128 streamed tokens must leave a core to the rest."""

import asyncio
import time

from tests.support.emulator import EngineSpec, emulator
from tradewind.lab.checks import Check, at_most
from tradewind.lab.instant.usage import cpu_s

CELLS = 9
RPS = 20.0


def bench(quick: bool) -> list[Check]:
    seconds = 10.0 if quick else 30.0
    specs = [EngineSpec(cell=f"c{number}", profile="rtx-pro-6000") for number in range(CELLS)]
    with emulator(*specs) as engines:
        pids = [pid for spec in specs if (pid := engines.pid(spec.cell)) is not None]
        ports = [int(engines.urls[spec.cell].rpartition(":")[2]) for spec in specs]
        used = asyncio.run(under_load(ports, pids, seconds))
    return [at_most("emulator, nine cells at 20 RPS x 128 tokens: CPU", used * 100, 100.0, unit="% of a core")]


async def under_load(ports: list[int], pids: list[int], seconds: float) -> float:
    """Cores that the engines use while streams run; the first seconds fill the batch and are left out."""
    async with asyncio.TaskGroup() as group:
        sender = group.create_task(send(ports, seconds + 8.0, group))
        await asyncio.sleep(7.0)
        before_s, started_s = sum(map(cpu_s, pids)), time.perf_counter()
        await asyncio.sleep(seconds)
        used = (sum(map(cpu_s, pids)) - before_s) / (time.perf_counter() - started_s)
        await sender
    return used


async def send(ports: list[int], seconds: float, group: asyncio.TaskGroup) -> None:
    for number in range(int(RPS * seconds)):
        group.create_task(one(ports[number % len(ports)], number))
        await asyncio.sleep(1 / RPS)


async def one(port: int, number: int) -> None:
    """One streamed request of 512 prompt tokens and 128 output tokens, read to its end."""
    body = f'{{"model":"demo-70b","prompt":"{number:08} {"wind " * 408}","max_tokens":128,"stream":true}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/completions HTTP/1.1\r\nhost: e\r\nconnection: close\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    while await reader.read(65_536):
        pass
    writer.close()
