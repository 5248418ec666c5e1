"""FC-66: what counts as a success, and what TTFT is, against scripted answers whose truth is known."""

import asyncio

import pytest

from tradewind.lab.events import StreamReader
from tradewind.lab.exchange import Exchange, begin
from tradewind.measure.record import Failure, Record
from tradewind.workload.plan import Planned

PLANNED = Planned(request_id="r", at_s=0.0, prompt_tokens=10, output_tokens=5)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":" wind"}}]}\n\n'
REASON = b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":'
    b'{"cached_tokens":4}}}\n\n'
)
ERROR = b'data: {"error":{"message":"engine died","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def chunks(*events: bytes) -> bytes:
    return b"".join(chunk(event) for event in events)


def play(*pieces: bytes, lost: bool = False) -> Record:
    """The record of an exchange that receives these pieces, and then loses its connection if `lost`."""

    async def main() -> Record:
        exchange = Exchange(asyncio.get_running_loop(), start_s=0.0)
        for piece in pieces:
            exchange.data_received(piece)
        if lost:
            exchange.connection_lost(ConnectionResetError("reset by peer"))
        assert exchange.ended.done()
        return exchange.record(begin(PLANNED))

    return asyncio.run(main())


END = b"0\r\n\r\n"


def test_fc_66_success_counts_content_and_usage() -> None:
    record = play(HEAD, chunks(ROLE, WORD, WORD, USAGE, DONE), END)
    assert record.ok
    assert record.content_events == 2
    assert (record.usage_prompt_tokens, record.usage_cached_tokens, record.usage_completion_tokens) == (9, 4, 2)


def test_fc_66_role_alone_is_not_the_first_token() -> None:
    record = play(HEAD, chunks(ROLE), chunks(WORD), chunks(DONE), END)
    assert record.headers_s is not None
    assert record.content_s is not None
    silent = play(HEAD, chunks(ROLE, USAGE, DONE), END)
    assert silent.failure is Failure.EMPTY
    assert silent.content_s is None


def test_fc_66_reasoning_is_a_first_token() -> None:
    record = play(HEAD, chunks(ROLE, REASON, WORD, DONE), END)
    assert record.ok
    assert record.content_events == 2


@pytest.mark.parametrize("key", ["reasoning_content", "text", "content"])
def test_fc_66_content_by_any_of_its_names(key: str) -> None:
    place = b'{"%s":"a"}' % key.encode()
    event = place if key == "text" else b'{"delta":' + place + b"}"
    assert play(HEAD, chunks(b'data: {"choices":[' + event + b"]}\n\n", DONE), END).ok


@pytest.mark.parametrize(
    ("pieces", "lost", "failure"),
    [
        ([], True, Failure.RESET),
        ([b"HTTP/1.1 200 OK\r\nconte"], True, Failure.RESET),
        ([HEAD], True, Failure.HEADERS_ONLY),
        ([HEAD, chunks(ROLE)], True, Failure.BYTES_DELIVERED),
        ([HEAD, chunks(WORD, DONE)], True, Failure.BYTES_DELIVERED),
        ([HEAD, chunks(WORD, WORD, WORD, WORD, WORD, ERROR, DONE), END], False, Failure.STREAM_ERROR),
        ([HEAD, chunks(ERROR), END], False, Failure.STREAM_ERROR),
        ([HEAD, chunks(WORD, USAGE), END], False, Failure.TRUNCATED),
        ([HEAD, END], False, Failure.EMPTY),
        ([HEAD, chunks(b"data: {broken\n\n", DONE), END], False, Failure.PROTOCOL),
        ([b"SSH-2.0-OpenSSH\r\n"], False, Failure.PROTOCOL),
        ([b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}"], False, Failure.STATUS),
        ([b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"], False, Failure.EMPTY),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"], False, Failure.PROTOCOL),
    ],
)
def test_fc_66_failures_by_kind(pieces: list[bytes], failure: Failure, *, lost: bool) -> None:
    record = play(*pieces, lost=lost)
    assert record.failure is failure
    assert not record.ok


def test_fc_66_content_that_speaks_of_errors_is_no_error() -> None:
    event = b'data: {"choices":[{"delta":{"content":"say \\"error\\": {} and \\"usage\\":{"}}]}\n\n'
    assert play(HEAD, chunks(WORD, event, DONE), END).content_events == 2


def test_stream_without_length_ends_with_its_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    assert play(head, WORD + DONE, lost=True).ok
    assert play(head, WORD, lost=True).failure is Failure.BYTES_DELIVERED


def test_whole_answer_is_read_with_its_usage() -> None:
    body = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    record = play(head + body)
    assert record.ok
    assert record.usage_prompt_tokens == 3


def test_error_text_is_kept() -> None:
    record = play(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 8\r\n\r\ntoo long")
    assert (record.status, record.detail) == (400, "too long")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_reader_takes_pieces_of_any_size(size: int) -> None:
    stream = ROLE + WORD + b": keep-alive\n\n" + b"event: x\r\n" + WORD.replace(b"\n", b"\r\n") + USAGE + DONE
    reader = StreamReader()
    for start in range(0, len(stream), size):
        reader.feed(stream[start : start + size])
    assert (reader.content_events, reader.done, reader.error, reader.malformed) == (2, True, "", "")
    assert reader.usage == (9, 4, 2)


def test_reader_is_bounded() -> None:
    reader = StreamReader()
    for _ in range(20):
        reader.feed(b"x" * 65_536)
    reader.feed(b"data: {}" * 20_000)
    assert reader.malformed == "an event without an end"
