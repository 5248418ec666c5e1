"""A closed-loop client that costs little: raw sockets, prebuilt requests; a process of its own.

    python -m tradewind.lab.instant.closedloop PORT CONNECTIONS SECONDS BODY_BYTES CHUNKS

CHUNKS of a streamed answer; -1 asks for a whole one. It prints one JSON line: requests answered, seconds, failures.
"""

import json
import socket
import sys
import time

from tradewind.lab.instant.engines import Sockets, reader

WARM_UP_S = 0.5


def request(body_bytes: int, model: str = "demo-70b", *, chunks: int | None = None) -> bytes:
    """A chat completion of about that size, the model first as current clients write it. `chunks`: streamed."""
    head = f'{{"model":"{model}","messages":[{{"role":"user","content":"'
    tail = '"}],"max_tokens":16}' if chunks is None else f'"}}],"max_tokens":{chunks},"stream":true}}'
    body = head + "x" * max(0, body_bytes - len(head) - len(tail)) + tail
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode()


class Load:
    """Sends the next request when an answer is whole. Lost connections are not reopened: they are failures."""

    def __init__(self, port: int, payload: bytes) -> None:
        self.answers = self.refused = self.lost = 0
        self._port = port
        self._payload = payload
        self._sockets = Sockets()

    def warm_up(self, connections: int, seconds: float) -> None:
        """Open the connections one by one, so that equal streams do not all end in the same moment."""
        for _ in range(connections):
            self._open()
            self.run(seconds / connections)

    def run(self, seconds: float) -> float:
        """Seconds that it took in truth."""
        started_s = time.perf_counter()
        while (elapsed_s := time.perf_counter() - started_s) < seconds:
            self._sockets.serve(min(0.05, seconds - elapsed_s))
        return elapsed_s

    def _open(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def answered(answer: bytes) -> None:
            if answer.startswith(b"HTTP/1.1 200"):
                self.answers += 1
            else:
                self.refused += 1
            connection.sendall(self._payload)

        handle = reader(connection, answered)

        def watched() -> bool:
            open_still = handle()
            self.lost += not open_still
            return open_still

        self._sockets.add(connection, watched)
        connection.sendall(self._payload)


def main(port: int, connections: int, seconds: float, body_bytes: int, chunks: int) -> None:
    load = Load(port, request(body_bytes, chunks=chunks if chunks >= 0 else None))
    load.warm_up(connections, WARM_UP_S)
    answers, refused, lost = load.answers, load.refused, load.lost
    print("started", flush=True)  # noqa: T201 - the parent waits for it
    elapsed_s = load.run(seconds)
    result = {
        "answers": load.answers - answers,
        "refused": load.refused - refused,
        "lost": load.lost - lost,
        "seconds": elapsed_s,
    }
    print(json.dumps(result))  # noqa: T201 - the result


if __name__ == "__main__":
    port, connections, seconds, body_bytes, chunks = sys.argv[1:]
    main(int(port), int(connections), float(seconds), int(body_bytes), int(chunks))
