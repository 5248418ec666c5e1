"""A raw-socket HTTP/1.1 engine with switches, so that bytes and timing are exact.

Usage (any test, no event loop needed; the server runs in a thread of its own):

    with FakeEngine(models=("m",)) as engine:          # engine.port, engine.url, engine.address
        engine.on("/health", Reply(status=503))        # one path; takes effect with the next request
        engine.on("/v1/chat/completions", sse_reply(["Hel", "lo"], gap_s=0.01))
        engine.metrics("vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3\n")
        ...
        engine.requests("/v1/chat/completions")        # [SeenRequest(headers, body, aborted_s ...)]
        engine.kill()                                  # like kill -9: every socket reset, port refuses
        engine.revive()                                # listens on the same port again

`Reply` holds the switches: status, headers, body, delay_s (before the first byte), chunks (chunked transfer, each
with gap_s before it, the first with first_gap_s if given), hang (nothing is ever sent), drip_s (one byte of the body
each drip_s), endless (the last chunk is repeated until the client goes), stall (after the last chunk nothing comes, and
no end), linger_s (before chunks end or are cut), cut_after (so many body bytes, then FIN), reset (RST in place of an
answer, or after cut_after bytes), raw (bytes sent as they are), close (Connection: close). A list of replies is used
one after the other; the last one stays. A callable `(SeenRequest) -> Reply` decides per request.

`engine.idle_close_s` closes idle keep-alive connections, as uvicorn does after 5 s. `engine.freeze()` keeps every
connection open and answers nothing, new ones included (FC "close without FIN": the peer has gone and nobody says so);
`engine.thaw()` ends it.
"""

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

MAX_HEAD_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer; see the module's docstring."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = "application/json"
    delay_s: float = 0.0
    chunks: tuple[bytes, ...] | None = None
    gap_s: float = 0.0
    first_gap_s: float | None = None
    hang: bool = False
    drip_s: float = 0.0
    endless: bool = False
    stall: bool = False
    linger_s: float = 0.0
    cut_after: int | None = None
    reset: bool = False
    raw: bytes | None = None
    close: bool = False


@dataclass(slots=True, kw_only=True)
class SeenRequest:
    """One request as it arrived. Times are time.monotonic()."""

    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    connection: int  # number of the connection it came on
    at_s: float
    aborted_s: float | None = None  # when the client went away before the answer was complete
    done_s: float | None = None

    def json(self) -> dict[str, object]:
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded


Route = Reply | list[Reply] | Callable[[SeenRequest], Reply]


def json_reply(value: object, *, status: int = 200) -> Reply:
    return Reply(status=status, body=json.dumps(value).encode())


def sse_reply(texts: Sequence[str], *, gap_s: float = 0.0, done: bool = True, delay_s: float = 0.0) -> Reply:
    """A chat stream of one chunk per text; `[DONE]` ends it unless done is False."""
    events = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n" for text in texts]
    chunks = tuple(event.encode() for event in [*events, *(["data: [DONE]\n\n"] if done else [])])
    return Reply(chunks=chunks, gap_s=gap_s, content_type="text/event-stream", delay_s=delay_s)


def models_reply(models: Sequence[str], *, max_model_len: int | None = 8192) -> Reply:
    entries = [{"id": name, "object": "model", "root": models[0], "parent": None} for name in models]
    return json_reply({"object": "list", "data": [{**entry, "max_model_len": max_model_len} for entry in entries]})


COMPLETION = {
    "id": "cmpl-1",
    "object": "text_completion",
    "model": "m",
    "choices": [{"index": 0, "text": "a", "finish_reason": "length"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
CHAT = {
    **COMPLETION,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "length"}],
}


def vllm_page(*, model: str = "m", waiting: float = 0, running: float = 0, kv: float = 0.0, tokens: float = 0) -> str:
    """A small metrics page with vLLM 0.32 names."""
    labels = f'{{engine="0",model_name="{model}"}}'
    return (
        f"vllm:num_requests_running{labels} {running}\nvllm:num_requests_waiting{labels} {waiting}\n"
        f"vllm:kv_cache_usage_perc{labels} {kv}\nvllm:generation_tokens_total{labels} {tokens}\n"
        f"vllm:prompt_tokens_total{labels} {tokens}\n"
    )


@dataclass(slots=True)
class _Switches:
    routes: dict[str, Route] = field(default_factory=dict)
    seen: list[SeenRequest] = field(default_factory=list)
    connections: int = 0


class FakeEngine:
    """A context manager; every method may be called from the test's thread."""

    def __init__(self, *, models: Sequence[str] = ("m",), port: int = 0, idle_close_s: float | None = None) -> None:
        self.port = port
        self.idle_close_s = idle_close_s
        self._switches = _Switches()
        self._open: set[asyncio.StreamWriter] = set()
        self._transports: list[asyncio.WriteTransport] = []
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._frozen = threading.Event()
        self.on("/health", Reply())
        self.on("/version", json_reply({"version": "0.32.0"}))
        self.on("/v1/models", models_reply(models))
        self.on("/v1/completions", json_reply(COMPLETION))
        self.on("/v1/chat/completions", json_reply(CHAT))
        self.metrics(vllm_page(model=models[0]))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def connections(self) -> int:
        """How many connections were accepted so far."""
        return self._switches.connections

    def on(self, path: str, route: Route) -> None:
        """Answer `path` (without its query) so from the next request on."""
        self._switches.routes[path] = list(route) if isinstance(route, list) else route

    def metrics(self, page: str | bytes, *, status: int = 200, delay_s: float = 0.0) -> None:
        body = page.encode() if isinstance(page, str) else page
        text = "text/plain; version=1.0.0; charset=utf-8"
        self.on("/metrics", Reply(status=status, body=body, content_type=text, delay_s=delay_s))

    def requests(self, path: str | None = None) -> list[SeenRequest]:
        """What has arrived, oldest first; only for `path` if given."""
        return [seen for seen in list(self._switches.seen) if path in (None, seen.path.partition("?")[0])]

    def kill(self) -> None:
        """Like kill -9: the port refuses and every connection is reset."""
        self._call(self._stop(reset=True))

    def revive(self) -> None:
        self._call(self._listen())

    def drop_connections(self, *, reset: bool = False) -> None:
        """Close (or reset) what is open and go on listening."""
        self._call(self._drop(reset=reset))

    def freeze(self) -> None:
        self._frozen.set()

    def thaw(self) -> None:
        self._frozen.clear()

    def __enter__(self) -> Self:
        started = threading.Event()

        def serve() -> None:
            loop = asyncio.new_event_loop()
            self._loop = loop
            loop.call_soon(started.set)
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=serve, name="fake-engine", daemon=True)
        self._thread.start()
        started.wait()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _call(self, work: Coroutine[None, None, T]) -> T:
        assert self._loop is not None, "use the engine as a context manager"
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=MAX_HEAD_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self, *, reset: bool) -> None:
        await self._close_port()
        await self._drop(reset=reset)

    async def _close_port(self) -> None:
        """Stop accepting, let what was accepted just now get as far as being served, then close."""
        if self._server is not None:
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(5):
                await asyncio.sleep(0)
            self._server.close()
            self._server = None

    async def _drop(self, *, reset: bool) -> None:
        for writer in list(self._open):
            _close(writer, reset=reset)
        await asyncio.sleep(0)

    async def _shut_down(self) -> None:
        await self._close_port()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in self._transports:
            transport.abort()
        await asyncio.sleep(0.01)  # the loop tells the transports that they are closed

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._switches.connections += 1
        number = self._switches.connections
        self._open.add(writer)
        self._transports.append(writer.transport)
        try:
            while await self._serve_one(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open.discard(writer)
            _close(writer, reset=False)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self.idle_close_s)
        request = await _read_request(head, reader, number)
        self._switches.seen.append(request)
        while self._frozen.is_set():  # noqa: ASYNC110 (set from the test's thread)
            await asyncio.sleep(0.005)
        reply = self._pick(request)
        gone = asyncio.ensure_future(_until_gone(writer))
        answer = asyncio.ensure_future(_answer(reply, writer))
        try:
            await asyncio.wait({gone, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() or answer.exception() is not None:
                request.aborted_s = time.monotonic()
                return False
            request.done_s = time.monotonic()
            return answer.result() and request.headers.get("connection", "").lower() != "close"
        finally:
            for task in (gone, answer):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(gone, answer, return_exceptions=True)

    def _pick(self, request: SeenRequest) -> Reply:
        route = self._switches.routes.get(request.path.partition("?")[0])
        if route is None:
            return json_reply({"detail": "Not Found"}, status=404)
        if isinstance(route, list):
            return route.pop(0) if len(route) > 1 else route[0]
        return route if isinstance(route, Reply) else route(request)


async def _read_request(head: bytes, reader: asyncio.StreamReader, number: int) -> SeenRequest:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b"".join([part async for part in _body_parts(reader, headers)])
    return SeenRequest(method=method, path=path, headers=headers, body=body, connection=number, at_s=time.monotonic())


async def _body_parts(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", "0")))
        return
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")


async def _until_gone(writer: asyncio.StreamWriter) -> None:
    """Ends when the client has closed; polls the socket because a stream reader is busy with nobody."""
    while not writer.transport.is_closing() and not _peer_closed(writer):  # noqa: ASYNC110 (a socket's state)
        await asyncio.sleep(0.002)


def _peer_closed(writer: asyncio.StreamWriter) -> bool:
    raw = writer.get_extra_info("socket")
    if raw is None or raw.fileno() < 0:
        return True
    state: int = struct.unpack("B", raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1))[0]
    return state not in (1, 2, 3)  # ESTABLISHED and the SYN states


async def _answer(reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Send one reply; True when the connection may serve another request."""
    if reply.delay_s:
        await asyncio.sleep(reply.delay_s)
    if reply.hang:
        await asyncio.Event().wait()
    if reply.reset and reply.cut_after is None:
        _close(writer, reset=True)
        return False
    if reply.raw is not None:
        writer.write(reply.raw)
        await writer.drain()
        return not reply.close
    writer.write(_head(reply))
    await writer.drain()
    if reply.chunks is not None:
        await _send_chunks(reply, writer)
    else:
        await _send_body(reply, writer)
    if reply.cut_after is not None:
        if reply.linger_s:
            await asyncio.sleep(reply.linger_s)
        _close(writer, reset=reply.reset)
        return False
    return not reply.close


async def _send_chunks(reply: Reply, writer: asyncio.StreamWriter) -> None:
    gap_s = reply.gap_s if reply.first_gap_s is None else reply.first_gap_s
    for chunk in _chunks(reply):
        if gap_s:
            await asyncio.sleep(gap_s)
        gap_s = reply.gap_s
        writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await writer.drain()
    if reply.stall:
        await asyncio.Event().wait()
    if reply.cut_after is None:
        if reply.linger_s:
            await asyncio.sleep(reply.linger_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _chunks(reply: Reply) -> Iterator[bytes]:
    assert reply.chunks is not None
    yield from reply.chunks
    while reply.endless:
        yield reply.chunks[-1]


async def _send_body(reply: Reply, writer: asyncio.StreamWriter) -> None:
    body = reply.body if reply.cut_after is None else reply.body[: reply.cut_after]
    step = 1 if reply.drip_s else max(1, len(body))
    for start in range(0, len(body), step):
        if reply.drip_s:
            await asyncio.sleep(reply.drip_s)
        writer.write(body[start : start + step])
        await writer.drain()


def _head(reply: Reply) -> bytes:
    names = {name.lower() for name, _ in reply.headers}
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers)]
    if "content-type" not in names:
        lines.append(f"content-type: {reply.content_type}")
    if reply.chunks is not None:
        lines.append("transfer-encoding: chunked")
    elif "content-length" not in names:
        lines.append(f"content-length: {len(reply.body)}")
    if reply.close:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    raw = writer.get_extra_info("socket")
    if reset and raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    else:
        writer.close()
