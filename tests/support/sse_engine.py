"""An engine in a thread that streams words, and does what the wanted number of tokens or the prompt says."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":" wind"}}]}\n\n'
ERROR = b'data: {"error":{"message":"engine died","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"
FAILS = 13  # tokens that are answered with an error event after five of them
REFUSES = 14  # tokens that are answered with 400


class SseEngine:
    """Its address, and every body that it was sent."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.bodies: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []


@contextmanager
def sse_engine(*models: str, on_post: Callable[[int], None] = lambda _count: None) -> Iterator[SseEngine]:
    """Lists `models` and serves chat completions; `on_post` is told how many came before it answers one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps({"data": [{"id": name} for name in models]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            engine.bodies.append(body)
            engine.headers.append({name.lower(): value for name, value in self.headers.items()})
            on_post(len(engine.bodies))
            tokens = int(body["max_tokens"])
            if tokens == REFUSES:
                self._send(400, "application/json", b'{"error":{"message":"too long"}}')
            elif tokens == FAILS:
                self._send(200, "text/event-stream", ROLE + WORD * 5 + ERROR + DONE)
            else:
                self._send(200, "text/event-stream", ROLE + WORD * tokens + _usage(body, tokens) + DONE)

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    engine = SseEngine(f"127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _usage(body: dict[str, object], tokens: int) -> bytes:
    prompt = len(json.dumps(body["messages"])) // 4
    usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 0}}
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
