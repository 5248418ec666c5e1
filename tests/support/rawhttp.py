"""HTTP as bytes on a socket: headers in the order they came, bodies as they were framed."""

import json
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One response. `headers` keeps order and case; `body` is without chunk framing."""

    status_line: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    complete: bool = True  # False: the connection ended before the response did

    @property
    def status(self) -> int:
        return int(self.status_line.split()[1])

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def json(self) -> dict[str, object]:
        parsed = json.loads(self.body)
        assert isinstance(parsed, dict)
        return parsed

    def events(self) -> list[str]:
        """The data of a server-sent event stream."""
        return [part.removeprefix("data: ") for part in self.body.decode().split("\n\n") if part]


def connect(url: str, *, timeout_s: float = 10.0) -> socket.socket:
    """A connection to the host of `url`."""
    host, _, port = url.partition("://")[2].partition("/")[0].partition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def send(
    connection: socket.socket, method: str, path: str, body: bytes | object = b"", headers: dict[str, str] | None = None
) -> None:
    """Sends one request; an object goes as JSON."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Host": "engine", "Content-Length": str(len(payload))} | (headers or {})
    if not isinstance(body, bytes):
        lines.setdefault("Content-Type", "application/json")
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items()) + "\r\n"
    connection.sendall(head.encode() + payload)


def receive(connection: socket.socket) -> RawAnswer:
    """Reads one response to its end."""
    stream = connection.makefile("rb")
    status_line = stream.readline().decode().strip()
    headers = []
    while (line := stream.readline().decode().strip()) != "":
        name, _, value = line.partition(": ")
        headers.append((name, value))
    named = {name.lower(): value for name, value in headers}
    if "content-length" in named:
        length = int(named["content-length"])
        body = stream.read(length)
        return RawAnswer(status_line, tuple(headers), body, complete=len(body) == length)
    body, complete = _chunks(stream.readline, stream.read)
    return RawAnswer(status_line, tuple(headers), body, complete=complete)


def ask(
    url: str, method: str, path: str, body: bytes | object = b"", headers: dict[str, str] | None = None
) -> RawAnswer:
    """One request on a connection of its own."""
    with connect(url) as connection:
        send(connection, method, path, body, headers)
        return receive(connection)


def _chunks(readline: object, read: object) -> tuple[bytes, bool]:
    assert callable(readline)
    assert callable(read)
    body = b""
    while True:
        line = readline()
        if not line.strip():
            return body, False
        length = int(line, 16)
        piece = read(length)
        body += piece
        if len(piece) < length:
            return body, False
        read(2)
        if length == 0:
            return body, True
