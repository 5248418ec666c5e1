"""JSON that is nested without end is bad input like any other, wherever something foreign is read."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from tradewind.control.answers import BadRequest, read_body
from tradewind.gateway.epp.tokens import UsageReader
from tradewind.gateway.pick.capture import CaptureError, parse_capture
from tradewind.runtime.ask import AskFailed, ask
from tradewind.workload.errors import TraceError
from tradewind.workload.mooncake import parse_mooncake
from tradewind.workload.requestlog import parse_request_log

DEEP = b'{"x":' + b"[" * 1_500 + b"]" * 1_500 + b"}"  # fits into what is kept of an answer


@pytest.mark.parametrize("parse", [parse_mooncake, parse_request_log])
def test_a_trace_names_the_line(parse: Callable[..., Iterator[object]]) -> None:
    with pytest.raises(TraceError, match="1"):
        list(parse([DEEP]))


def test_a_capture_names_the_line() -> None:
    with pytest.raises(CaptureError, match="line 1"):
        parse_capture(DEEP + b"\n")


def test_an_engine_of_the_endpoint_picker_that_sends_it_has_told_no_usage() -> None:
    usage = DEEP.replace(b'"x"', b'"prompt_tokens":3,"x"')
    reader = UsageReader()
    reader.feed(b'{"usage":' + usage + b"}")
    assert reader.tokens() == (None, None, None)


def test_the_admin_api_answers_400() -> None:
    class Body(msgspec.Struct):
        reason: str = ""

    async def read() -> Body:
        return await read_body(Request({"type": "http"}, receive=_receive), Body)

    with pytest.raises(BadRequest, match="write no body"):
        asyncio.run(read())


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": DEEP, "more_body": False}


@pytest.fixture
def deep_server() -> Iterator[Callable[[int], str]]:
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[0])
            self.send_header("content-length", str(len(DEEP)))
            self.end_headers()
            self.wfile.write(DEEP)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the base class's name

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def answering(with_status: int) -> str:
        status[0] = with_status
        return f"127.0.0.1:{server.server_port}"

    yield answering
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 500])
def test_what_asks_an_admin_page_says_so(deep_server: Callable[[int], str], status: int) -> None:
    with pytest.raises(AskFailed, match="not JSON" if status == 200 else "answers 500"):
        ask(deep_server(status), "/v1/status")
