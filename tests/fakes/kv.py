"""KV events as vLLM publishes them: a test says which, and when.

with Publisher("ipc:///tmp/kv") as engine:
    await engine.subscribed()                        # the topic that somebody asked for
    engine.send(0, stored(1, 2), removed(1), CLEARED)
"""

import asyncio
from types import TracebackType
from typing import Any, Self

import msgspec
import pytest

CLEARED: dict[str, object] = {"type": "AllBlocksCleared"}


def stored(*hashes: int) -> dict[str, object]:
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": None,
        "token_ids": [1] * 16 * len(hashes),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
    }


def removed(*hashes: int) -> dict[str, object]:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU"}


def message(sequence: int, *events: object) -> list[bytes]:
    return [b"kv", sequence.to_bytes(8, "big"), msgspec.msgpack.encode([1.5, list(events), 0])]


class Publisher:
    """A PUB socket as an engine has one."""

    def __init__(self, endpoint: str, *, bind: bool = True) -> None:
        zmq = pytest.importorskip("zmq")
        self._context: Any = zmq.Context()
        self._socket: Any = self._context.socket(zmq.XPUB)  # PUB that hears of subscriptions: a test need not guess
        self._socket.set(zmq.RCVTIMEO, 10_000)
        (self._socket.bind if bind else self._socket.connect)(endpoint)

    async def subscribed(self) -> str:
        topic = await asyncio.to_thread(self._socket.recv)
        assert topic[0] == 1
        return str(topic[1:].decode())

    def send(self, sequence: int, *events: object) -> None:
        self._socket.send_multipart(message(sequence, *events))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close(linger=0)
        self._context.term()
