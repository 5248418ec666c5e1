"""One HTTP/2 stream, and what its connection and its handler are to it."""

from collections import deque
from typing import Protocol

Headers = list[tuple[bytes, bytes]]  # of an answer, as they go out


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


class _Connection(Protocol):
    def start(self, stream: "Stream", headers: Headers) -> None: ...
    def flush(self, stream: "Stream") -> None: ...


class Stream:
    """One stream: what its handler writes to."""

    __slots__ = ("_connection", "ended_by_peer", "ending", "handler", "id", "pending", "pending_bytes", "received")

    def __init__(self, connection: "_Connection", stream_id: int) -> None:
        self._connection = connection
        self.id = stream_id
        self.handler: Handler | None = None
        self.pending: deque[bytes] = deque()  # waits for the peer's window
        self.pending_bytes = 0
        self.ending: Headers | None = None  # trailers, once the handler has said all
        self.ended_by_peer = False
        self.received = 0  # bytes whose window was not given back

    def start(self, headers: Headers) -> None:
        """Send the response's headers."""
        self._connection.start(self, headers)

    def send(self, payload: bytes) -> None:
        """Send body bytes, now or when the peer's window allows it."""
        self.pending.append(payload)
        self.pending_bytes += len(payload)
        self._connection.flush(self)

    def finish(self, headers: Headers) -> None:
        """Send trailers after everything pending, and be done; later data of the peer is dropped."""
        if self.ending is None:
            self.ending = headers
            self._connection.flush(self)
