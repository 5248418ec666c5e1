"""A closed-loop client that costs little: raw sockets, prebuilt requests, answers counted by length; its own process.

    python -m benchmarks.closedloop PORT CONNECTIONS SECONDS BODY_BYTES

It prints one JSON line: requests answered, seconds, failures.
"""

import asyncio
import json
import sys
import time
from typing import cast

import uvloop


def request(body_bytes: int, model: str = "demo-70b") -> bytes:
    """A chat completion of about that size, the model first as current clients write it."""
    head = f'{{"model":"{model}","messages":[{{"role":"user","content":"'
    tail = '"}],"max_tokens":16}'
    body = head + "x" * max(0, body_bytes - len(head) - len(tail)) + tail
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


class Client(asyncio.Protocol):
    """Sends the next request when an answer is whole; an answer's length is learned from the first."""

    def __init__(self, payload: bytes, tally: list[int]) -> None:
        self.payload = payload
        self.tally = tally
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are of no common class
        self.transport.write(self.payload)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.buffer.lower().find(b"content-length: ", 0, end)
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)]) if at >= 0 else 0
        if len(self.buffer) < end + 4 + length:
            return
        self.tally[0 if self.buffer.startswith(b"HTTP/1.1 200") else 1] += 1
        self.buffer.clear()
        self.transport.write(self.payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self.tally[2] += 1


async def run(port: int, connections: int, seconds: float, body_bytes: int) -> dict[str, float]:
    """Answers counted over `seconds`, after a warm-up second. Lost connections are not reopened: they are failures."""
    tally = [0, 0, 0]
    payload = request(body_bytes)
    loop = asyncio.get_running_loop()
    opened = [
        await loop.create_connection(lambda: Client(payload, tally), "127.0.0.1", port) for _ in range(connections)
    ]
    await asyncio.sleep(1.0)
    before, lost, started_s = list(tally), tally[2], time.perf_counter()
    print("started", flush=True)  # noqa: T201 - the parent waits for it
    await asyncio.sleep(seconds)
    elapsed_s = time.perf_counter() - started_s
    result = {
        "answers": tally[0] - before[0],
        "refused": tally[1] - before[1],
        "lost": tally[2] - lost,
        "seconds": elapsed_s,
    }
    for transport, _ in opened:
        transport.abort()
    return result


if __name__ == "__main__":
    port, connections, seconds, body_bytes = sys.argv[1:]
    line = uvloop.run(run(int(port), int(connections), float(seconds), int(body_bytes)))
    print(json.dumps(line))  # noqa: T201 - the result
