"""One HTTP/2 stream, and what its connection and its handler are to it."""

from collections import deque
from typing import Protocol

from tradewind.gateway.epp import frames
from tradewind.gateway.epp.frames import Code

RECEIVE_WINDOW = 1024 * 1024  # bytes that a peer may send ahead on one stream


class Handler(Protocol):
    """What a stream is for. Called in order; `lost` ends it in place of `end`, also after it."""

    def data(self, data: bytes) -> None:
        """More from the peer."""
        ...

    def end(self) -> None:
        """The peer has said all."""
        ...

    def lost(self) -> None:
        """The stream is gone, finished or not; the last call, and always made."""
        ...


class ConnectionBroken(Exception):
    """The peer broke the protocol or a bound in a way that ends the connection."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class _Connection(Protocol):
    def write(self, data: bytes) -> None: ...
    def send(self, stream: "Stream", payload: bytes) -> None: ...
    def flush(self, stream: "Stream") -> None: ...


class Stream:
    """One stream: what its handler writes to."""

    __slots__ = (
        "_connection",
        "ended_by_peer",
        "ending",
        "handler",
        "id",
        "pending",
        "pending_bytes",
        "receive_window",
        "send_window",
    )

    def __init__(self, connection: "_Connection", stream_id: int, send_window: int) -> None:
        self._connection = connection
        self.id = stream_id
        self.handler: Handler | None = None
        self.pending: deque[bytes] = deque()  # waits for the peer's window
        self.pending_bytes = 0
        self.ending: bytes | None = None  # trailers, once the handler has said all
        self.ended_by_peer = False
        self.send_window = send_window
        self.receive_window = RECEIVE_WINDOW

    def start(self, block: bytes) -> None:
        """Send the response's headers, coded."""
        self._connection.write(frames.frame(frames.HEADERS, frames.END_HEADERS, self.id, block))

    def send(self, payload: bytes) -> None:
        """Send body bytes, now or when the peer's window allows it."""
        self._connection.send(self, payload)

    def finish(self, block: bytes) -> None:
        """Send trailers after everything pending, and be done; later data of the peer is dropped."""
        if self.ending is None:
            self.ending = block
            self._connection.flush(self)


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame. Raises ConnectionBroken."""
    if not flags & frames.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionBroken(Code.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
