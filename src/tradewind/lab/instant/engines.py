"""Engines that cost little: raw sockets, prebuilt answers as soon as a request is whole; a process of its own.

    python -m tradewind.lab.instant.engines PORT[,PORT...]

A request with `"stream":true` gets the headers at once, as from vLLM, and then `max_tokens` chunks, one every GAP_S;
with `max_tokens` 0 it waits for ever. The pages that a router reads before it trusts an engine are there: models,
metrics of an idle engine that has served, token ids.

A real engine is no part of what the router benchmark measures, and must not take the client's core from it.
"""

import contextlib
import json
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

RECEIVE_BYTES = 65_536
STREAM_WANTED = re.compile(rb'"stream": *true')
CHUNKS_WANTED = re.compile(rb'"max_tokens": *([0-9]+)')
DEFAULT_CHUNKS = 16
GAP_S = 0.002
IDLE_S = 1.0
BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "demo-70b",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 500, "total_tokens": 516, "completion_tokens": 16},
    }
).encode()


def answer(body: bytes, *, kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


ANSWER = answer(BODY)
MODELS = {
    "object": "list",
    "data": [{"id": "demo-70b", "object": "model", "owned_by": "vllm", "max_model_len": 131_072}],
}
METRICS = "".join(
    f'# TYPE vllm:{name} {kind}\nvllm:{name}{{engine="0",model_name="demo-70b"{more}}} {value}\n'
    for name, kind, value, more in (
        ("num_requests_running", "gauge", 0, ""),
        ("num_requests_waiting", "gauge", 0, ""),
        ("kv_cache_usage_perc", "gauge", 0, ""),
        ("prompt_tokens_total", "counter", 500, ""),
        ("generation_tokens_total", "counter", 16, ""),
        ("request_success_total", "counter", 1, ',finished_reason="length"'),
    )
)
PAGES = {
    b"/v1/models": answer(json.dumps(MODELS).encode()),
    b"/metrics": answer(METRICS.encode(), kind=b"text/plain; version=0.0.4"),
    b"/tokenize": answer(b'{"count":4,"max_model_len":131072,"tokens":[1,2,3,4]}'),
    b"/version": answer(b'{"version":"0.11.0"}'),
}

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


TOKEN = http_chunk(b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":" wind"}}]}\n\n')
STREAM_END = http_chunk(b"data: [DONE]\n\n") + LAST_CHUNK


def chunks_wanted(message: bytes) -> int | None:
    """Of a streamed answer; None where the request does not ask for one. Routers may write the body anew."""
    if not STREAM_WANTED.search(message):
        return None
    wanted = CHUNKS_WANTED.search(message)
    return int(wanted[1]) if wanted else DEFAULT_CHUNKS


def page(message: bytes) -> bytes:
    """The whole answer to a message; a chat completion for everything that is no page of its own."""
    return PAGES.get(message[:64].split(b" ", 2)[1], ANSWER)


def missing_bytes(message: bytes) -> int:
    """How many bytes an HTTP/1.1 message still lacks, at least; 0 when it is whole."""
    end = message.find(b"\r\n\r\n")
    if end < 0:
        return 1
    if message.find(b"transfer-encoding: chunked", 0, end) >= 0:  # Envoy writes names in lower case
        return 0 if message.endswith(LAST_CHUNK) else len(LAST_CHUNK)
    at = message.find(b"content-length: ", 0, end)
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


class Streams:
    """Streamed answers under way: each gets a chunk at every tick."""

    def __init__(self) -> None:
        self._left: dict[socket.socket, int] = {}
        self._due_s = 0.0

    def begin(self, connection: socket.socket, chunks: int) -> None:
        connection.sendall(STREAM_HEAD)
        if chunks:
            self._left[connection] = chunks

    def tick(self, now_s: float) -> float:
        """Send what is due; seconds until more is."""
        if now_s >= self._due_s:
            self._due_s = now_s + GAP_S
            for connection, left in list(self._left.items()):
                self._send(connection, left)
        return self._due_s - now_s if self._left else IDLE_S

    def _send(self, connection: socket.socket, left: int) -> None:
        try:
            connection.sendall(TOKEN if left > 1 else TOKEN + STREAM_END)
        except OSError:  # its reader is gone
            left = 1
        if left > 1:
            self._left[connection] = left - 1
        else:
            del self._left[connection]


def acceptor(listener: socket.socket, sockets: Sockets, streams: Streams) -> Callable[[], bool]:
    def accept() -> bool:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def serve(message: bytes) -> None:
            chunks = chunks_wanted(message)
            if chunks is None:
                connection.sendall(page(message))
            else:
                streams.begin(connection, chunks)

        sockets.add(connection, reader(connection, serve))
        return True

    return accept


@contextlib.contextmanager
def engines(ports: Sequence[int]) -> Iterator[int]:
    """A process of engines at these ports of loopback; its pid."""
    argv = [sys.executable, "-m", "tradewind.lab.instant.engines", ",".join(map(str, ports))]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "the engines did not start"
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def main(ports: str) -> None:
    sockets, streams = Sockets(), Streams()
    for port in ports.split(","):
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=512)
        sockets.add(listener, acceptor(listener, sockets, streams))
    print("serving", flush=True)  # noqa: T201 - the parent waits for it
    while True:
        sockets.serve(streams.tick(time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1])
