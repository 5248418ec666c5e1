"""An open-loop client that costs little: a request is due every 1/RPS seconds, whatever the answers; its own process.

    python -m tradewind.lab.instant.openloop PORT RPS SECONDS BODY_BYTES

Latency counts from the moment when a request was due. It prints one JSON line: answers, failures, p50 and p99 in
milliseconds. A request that finds no free connection is a failure.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

from tradewind.lab.instant.closedloop import request

CONNECTIONS = 128
WARM_UP_S = 1.0


class Connection(asyncio.Protocol):
    """One request at a time; an answer ends with its content-length."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.buffer = bytearray()
        self.due_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are of no common class
        self.load.free.append(self)

    def ask(self, payload: bytes, due_s: float) -> None:
        self.due_s = due_s
        self.transport.write(payload)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.buffer.lower().find(b"content-length: ", 0, end)
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        good = self.buffer.startswith(b"HTTP/1.1 200")
        self.buffer.clear()
        self.load.answered(self, good=good)

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.lost += 1


class Load:
    """Counts after the warm-up. Times are perf_counter: the clock of the loop is coarse."""

    def __init__(self) -> None:
        self.free: list[Connection] = []
        self.latencies_s: list[float] = []
        self.refused = self.lost = self.not_sent = 0
        self.counts_from_s = float("inf")

    def answered(self, connection: Connection, *, good: bool) -> None:
        self.free.append(connection)
        if connection.due_s >= self.counts_from_s:
            self.latencies_s.append(time.perf_counter() - connection.due_s)
            self.refused += not good

    async def send(self, payload: bytes, rps: float, seconds: float) -> None:
        start_s = time.perf_counter()
        self.counts_from_s = start_s + WARM_UP_S
        sent, total = 0, int(rps * (seconds + WARM_UP_S))
        while sent < total:
            due = min(total, int((time.perf_counter() - start_s) * rps) + 1)
            for number in range(sent, due):
                if self.free:
                    self.free.pop().ask(payload, start_s + number / rps)
                else:
                    self.not_sent += 1
            sent = due
            await asyncio.sleep(max(0.0, start_s + sent / rps - time.perf_counter()))


async def run(port: int, rps: float, seconds: float, body_bytes: int) -> dict[str, float]:
    """The figures of one load."""
    load, loop = Load(), asyncio.get_running_loop()
    opened = [await loop.create_connection(lambda: Connection(load), "127.0.0.1", port) for _ in range(CONNECTIONS)]
    print("started", flush=True)  # noqa: T201 - the parent waits for it
    await load.send(request(body_bytes), rps, seconds)
    async with asyncio.timeout(5):
        while len(load.free) + load.lost < CONNECTIONS:  # noqa: ASYNC110 - the last answers come one by one
            await asyncio.sleep(0.01)
    ordered = sorted(load.latencies_s)
    result = {
        "answers": len(ordered),
        "failures": load.refused + load.lost + load.not_sent,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(0.99 * len(ordered))] * 1e3,
    }
    for transport, _ in opened:
        transport.abort()
    return result


if __name__ == "__main__":
    port, rps, seconds, body_bytes = sys.argv[1:]
    line = uvloop.run(run(int(port), float(rps), float(seconds), int(body_bytes)))
    print(json.dumps(line))  # noqa: T201 - the result
