"""One connection, event by event: what its end says of the answer."""

import asyncio

import pytest

from tradewind.telemetry.http_connection import Fault, FetchFailed, HttpConnection, Response

PAGE = b"HTTP/1.0 200 OK\r\n\r\nload 1\nload 2\n"


class Wire(asyncio.Transport):
    """Takes what is written; the peer's side is played by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


def answer(*, data: bytes, lost: Exception | None) -> Response | FetchFailed:
    """What a request gives when `data` arrives and the connection then ends, by a close or by an error."""

    async def scenario() -> Response | FetchFailed:
        connection = HttpConnection(on_lost=None, clock=lambda: 0.0)
        connection.connection_made(Wire())
        asked = asyncio.ensure_future(connection.request(b"GET / HTTP/1.1", timeout_s=10.0, max_bytes=1000))
        await asyncio.sleep(0)
        connection.data_received(data)
        connection.connection_lost(lost)
        try:
            return await asked
        except FetchFailed as failure:
            return failure

    return asyncio.run(scenario())


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    response = answer(data=PAGE, lost=None)
    assert isinstance(response, Response)
    assert (response.body, response.whole, response.reusable) == (b"load 1\nload 2\n", False, False)


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), OSError(113, "No route to host")])
def test_a_connection_that_breaks_is_not_the_end_of_a_body(error: Exception) -> None:
    failure = answer(data=PAGE, lost=error)
    assert isinstance(failure, FetchFailed)
    assert failure.fault is Fault.RESET
    assert failure.detail == "connection lost inside the answer"


@pytest.mark.parametrize("data", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nload"])
def test_an_end_before_the_answer_is_whole_is_none(data: bytes) -> None:
    failure = answer(data=data, lost=None)
    assert isinstance(failure, FetchFailed)
    assert failure.fault is Fault.RESET
