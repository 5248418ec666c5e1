"""Subscribes to an engine's KV events over ZeroMQ; needs the extra `kv-events`, which is imported only here."""

import asyncio
import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from tradewind.telemetry.kv_events import MAX_PAYLOAD_BYTES

QUEUE_MESSAGES = 10_000  # beyond it ZeroMQ drops, which shows as a gap in the sequence
CLOSE_WAIT_MS = 0
PING_MS = 5_000  # a host that vanished is noticed only so: a subscriber sends nothing by itself
DEAD_MS = 15_000
INSTALL = "install tradewind[kv-events]"


class MissingExtra(Exception):
    """The optional package is not installed."""


class SubscriptionFailed(Exception):
    """The endpoint cannot be used: taken, not allowed, or of a form that ZeroMQ does not know."""


class Takes(Protocol):
    """What a publisher's messages go to."""

    def take(self, frames: Sequence[bytes]) -> None:
        """One message."""
        ...


class KvSubscriber:
    """One publisher. ZeroMQ reconnects by itself; run() ends only when it is cancelled."""

    def __init__(self, endpoint: str, reader: Takes, *, topic: str = "", bind: bool = False) -> None:
        """`bind`: the engine was given a host name in its endpoint and connects to here. Raises MissingExtra."""
        try:
            self._zmq: Any = importlib.import_module("zmq")
            self._zmq_asyncio: Any = importlib.import_module("zmq.asyncio")
            self._parse: Any = importlib.import_module("zmq.utils.monitor").parse_monitor_message
        except ImportError as error:
            raise MissingExtra(f"KV events need pyzmq: {INSTALL}") from error
        self._endpoint = endpoint
        self._reader = reader
        self._topic = topic
        self._bind = bind
        self._monitor: Any = None
        self._peers = 0
        self._strangers = 0  # connections of which no peer has come, and whose end is still to be told

    @property
    def connected(self) -> bool:
        """Whether somebody is at the other end; they may have nothing to say."""
        zmq = self._zmq
        while self._monitor is not None and self._monitor.poll(0):
            event = self._parse(self._monitor.recv_multipart(zmq.NOBLOCK))
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:  # it does not say of which connection
                self._peers += 1
            elif event["event"] != zmq.EVENT_DISCONNECTED:
                self._strangers += 1
            elif self._strangers:
                self._strangers -= 1
            else:
                self._peers = max(0, self._peers - 1)
        return self._peers > 0

    async def run(self) -> None:
        """Read until cancelled. Raises SubscriptionFailed."""
        context = self._zmq_asyncio.Context()
        socket = context.socket(self._zmq.SUB)
        try:
            for option, value in self._options():
                socket.set(option, value)
            self._watch(context, socket)
            (socket.bind if self._bind else socket.connect)(self._endpoint)
            while True:
                self._reader.take(await socket.recv_multipart())
                await asyncio.sleep(0)  # a message that is there is handed over without a pause: others have work too
        except self._zmq.ZMQError as error:
            raise SubscriptionFailed(str(error)) from error
        finally:
            if self._monitor is not None:
                socket.disable_monitor()
                self._monitor.close(linger=CLOSE_WAIT_MS)
            self._monitor = None
            self._peers = self._strangers = 0
            socket.close(linger=CLOSE_WAIT_MS)
            context.term()

    def _watch(self, context: Any, socket: Any) -> None:  # noqa: ANN401 - of a package that may be missing
        address = f"inproc://monitor-{id(socket)}"
        zmq = self._zmq
        failures = (
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        socket.monitor(address, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | failures)
        self._monitor = context.socket(self._zmq.PAIR, socket_class=self._zmq.Socket)
        self._monitor.connect(address)

    def _options(self) -> tuple[tuple[int, int | bytes], ...]:
        zmq = self._zmq
        return (
            (zmq.RCVHWM, QUEUE_MESSAGES),
            (zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES),
            (zmq.HEARTBEAT_IVL, PING_MS),
            (zmq.HEARTBEAT_TIMEOUT, DEAD_MS),
            (zmq.IPV6, int("[" in self._endpoint)),
            (zmq.SUBSCRIBE, self._topic.encode()),
        )
