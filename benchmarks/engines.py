"""Engines that cost little: raw sockets, one prebuilt answer as soon as a request is whole; a process of its own.

    python -m benchmarks.engines PORT[,PORT...]

A real engine is no part of what the router benchmark measures, and must not take the client's core from it.
"""

import contextlib
import json
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

RECEIVE_BYTES = 65_536
BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "demo-70b",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 500, "total_tokens": 516, "completion_tokens": 16},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


def missing_bytes(message: bytes) -> int:
    """How many bytes an HTTP/1.1 message with a content-length still lacks, at least; 0 when it is whole."""
    end = message.find(b"\r\n\r\n")
    if end < 0:
        return 1
    at = message.find(b"content-length: ", 0, end)  # Envoy writes names in lower case
    length = int(message[at + 16 : message.find(b"\r", at)]) if at >= 0 else 0
    return max(0, end + 4 + length - len(message))


class Sockets:
    """Handlers by descriptor. A handler returns False when its connection is over."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, tuple[socket.socket, Callable[[], bool]]] = {}

    def add(self, connection: socket.socket, handler: Callable[[], bool]) -> None:
        connection.setblocking(False)
        self._handlers[connection.fileno()] = connection, handler
        self._poll.register(connection, select.EPOLLIN)

    def serve(self, timeout_s: float) -> None:
        """Handle what is ready, or wait for it."""
        for descriptor, _ in self._poll.poll(timeout_s):
            connection, handler = self._handlers[descriptor]
            if not handler():
                self._poll.unregister(descriptor)
                del self._handlers[descriptor]
                connection.close()


def reader(connection: socket.socket, take: Callable[[bytes], None]) -> Callable[[], bool]:
    """A handler that gives whole messages to `take`, one at a time: nobody here pipelines."""
    held = b""

    def handle() -> bool:
        nonlocal held
        try:
            data = connection.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return False
        held += data
        if data and not missing_bytes(held):
            whole, held = held, b""
            take(whole)
        return bool(data)

    return handle


def acceptor(listener: socket.socket, sockets: Sockets) -> Callable[[], bool]:
    def accept() -> bool:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.add(connection, reader(connection, lambda _: connection.sendall(ANSWER)))
        return True

    return accept


@contextlib.contextmanager
def engines(ports: Sequence[int]) -> Iterator[int]:
    """A process of engines at these ports of loopback; its pid."""
    argv = [sys.executable, "-m", "benchmarks.engines", ",".join(map(str, ports))]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the engines did not start"
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def main(ports: str) -> None:
    sockets = Sockets()
    for port in ports.split(","):
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=512)
        sockets.add(listener, acceptor(listener, sockets))
    print("serving", flush=True)  # noqa: T201 - the parent waits for it
    while True:
        sockets.serve(1.0)


if __name__ == "__main__":
    main(sys.argv[1])
