"""Subscribes to an engine's KV events over ZeroMQ; needs the extra `kv-events`, which is imported only here."""

import importlib
from collections.abc import Sequence
from typing import Any

from tradewind.telemetry.kv_events import MAX_PAYLOAD_BYTES, KvEventReader

QUEUE_MESSAGES = 10_000  # beyond it ZeroMQ drops, which shows as a gap in the sequence
CLOSE_WAIT_MS = 0


class MissingExtra(Exception):
    """The optional package is not installed."""


class KvSubscriber:
    """One publisher. ZeroMQ reconnects by itself; run() ends only when it is cancelled."""

    def __init__(self, endpoint: str, reader: KvEventReader, *, topic: str = "", bind: bool = False) -> None:
        """`bind`: the engine was given a host name in its endpoint and connects to here. Raises MissingExtra."""
        try:
            self._zmq: Any = importlib.import_module("zmq")
            self._zmq_asyncio: Any = importlib.import_module("zmq.asyncio")
        except ImportError as error:
            raise MissingExtra("KV events need pyzmq: install tradewind[kv-events]") from error
        self._endpoint = endpoint
        self._reader = reader
        self._topic = topic
        self._bind = bind

    async def run(self) -> None:
        """Read until cancelled. Raises zmq.ZMQError where the endpoint cannot be used."""
        context = self._zmq_asyncio.Context()
        socket = context.socket(self._zmq.SUB)
        try:
            socket.set(self._zmq.RCVHWM, QUEUE_MESSAGES)
            socket.set(self._zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
            socket.set(self._zmq.SUBSCRIBE, self._topic.encode())
            if self._bind:
                socket.bind(self._endpoint)
            else:
                socket.connect(self._endpoint)
            while True:
                frames: Sequence[bytes] = await socket.recv_multipart()
                self._reader.take(frames)
        finally:
            socket.close(linger=CLOSE_WAIT_MS)
            context.term()
