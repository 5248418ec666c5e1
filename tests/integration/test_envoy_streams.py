"""Streams through a real Envoy: time limits, disconnects, bytes as they are, usage and errors seen in passing."""

import hashlib
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from tests.fakes.engine import FakeEngine, Reply, sse_reply
from tests.support.edge import Edge, running_edge, wait_for

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
STREAM = {**BODY, "stream": True}
CHAT = "/v1/chat/completions"
IDLE_LIMIT_S = 1.5


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """Its idle limit is short, so that what the limit must not cut can outlast it in seconds."""
    with running_edge(tmp_path_factory.mktemp("edge"), stream_idle_timeout_s=IDLE_LIMIT_S) as edge:
        yield edge


@pytest.fixture
def engine(edge: Edge) -> Iterator[FakeEngine]:
    with FakeEngine() as engine:
        edge.route({"m": [(engine.address, 1)]})
        yield engine


TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'


def raw_sse(*events: bytes, gap_s: float = 0.0, content_type: str = "text/event-stream") -> Reply:
    return Reply(chunks=events, gap_s=gap_s, content_type=content_type)


def open_stream(edge: Edge, body: object, *, request_id: str = "") -> socket.socket:
    """Send a request on a raw socket and leave the answer unread."""
    data = json.dumps(body).encode()
    extra = f"x-request-id: {request_id}\r\n" if request_id else ""
    connection = socket.create_connection(("127.0.0.1", edge.port), timeout=10)
    connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n{extra}content-length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def test_fc_11_long_streams_are_not_cut(edge: Edge, engine: FakeEngine) -> None:
    """Twice the idle limit in total, never silent for as long: complete and byte-exact."""
    texts = [str(i) for i in range(10)]
    engine.on(CHAT, sse_reply(texts, gap_s=IDLE_LIMIT_S / 4))
    received = edge.stream(STREAM)
    assert received.complete
    assert received.text.count(b"data: ") == 11
    assert received.text.endswith(b"data: [DONE]\n\n")


def test_fc_11_a_silent_answer_within_the_limit_arrives(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, Reply(delay_s=IDLE_LIMIT_S * 0.7, body=b'{"ok":1}'))
    assert edge.post(BODY).body == b'{"ok":1}'


def test_fc_11_no_time_limit_of_envoys_own_is_on(edge: Edge, engine: FakeEngine) -> None:
    """Envoy's default route timeout is 15 s, sent to the engine in a header; ours is off."""
    edge.post(BODY)
    assert "x-envoy-expected-rq-timeout-ms" not in engine.requests(CHAT)[-1].headers
    dump = edge.envoy.get("/config_dump?resource=dynamic_route_configs")
    assert '"timeout": "0s"' in dump


def test_fc_11_silence_beyond_the_limit_ends_and_closes_the_engines_side(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, Reply(hang=True))
    answer = edge.post(BODY, headers={"x-request-id": "silent"})
    assert answer.status == 504
    assert answer.json()["error"]["code"] == "idle_timeout"  # type: ignore[index]
    wait_for(lambda: engine.requests(CHAT)[-1].aborted_s is not None)
    assert edge.outcome("silent").status == 504


def test_fc_11_silence_in_a_stream_ends_it(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, replace(raw_sse(TOKEN), stall=True))
    started = time.monotonic()
    received = edge.stream(STREAM)
    assert (received.status, received.text, received.complete) == (200, TOKEN, False)
    assert time.monotonic() - started < IDLE_LIMIT_S * 3
    wait_for(lambda: engine.requests(CHAT)[-1].aborted_s is not None)


def test_fc_11_silence_before_the_first_token_is_an_answer(edge: Edge, engine: FakeEngine) -> None:
    """The engine's headers were held, so the client has a status and a body that say what happened."""
    engine.on(CHAT, Reply(chunks=(), content_type="text/event-stream", stall=True))
    answer = edge.post(STREAM)
    assert answer.status == 504
    assert answer.json()["error"]["code"] == "idle_timeout"  # type: ignore[index]
    wait_for(lambda: engine.requests(CHAT)[-1].aborted_s is not None)


def test_fc_13_disconnect_stops_a_stream(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, sse_reply(["x"] * 500, gap_s=0.02))
    with closing(open_stream(edge, STREAM, request_id="gone")) as connection:
        while connection.recv(65536).count(b"data: ") == 0:
            pass
        closed_s = time.monotonic()
    wait_for(lambda: engine.requests(CHAT)[-1].aborted_s is not None)
    aborted_s = engine.requests(CHAT)[-1].aborted_s
    assert aborted_s is not None
    assert aborted_s - closed_s < 1.0
    outcome = edge.outcome("gone")
    assert outcome.client_cancelled
    assert outcome.ttft_s is not None


def test_fc_13_disconnect_stops_a_silent_request(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, Reply(hang=True))
    with closing(open_stream(edge, BODY, request_id="gone-early")):
        wait_for(lambda: bool(engine.requests(CHAT)))
    wait_for(lambda: engine.requests(CHAT)[-1].aborted_s is not None)
    outcome = edge.outcome("gone-early")
    assert outcome.client_cancelled
    assert (outcome.attempts, outcome.status, outcome.ttft_s) == (1, 0, None)


def test_fc_15_an_error_inside_a_200_stream_is_seen(edge: Edge, engine: FakeEngine) -> None:
    """Behind the first token, where nobody can make it good."""
    error = b'{"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","code":500}}'
    engine.on(CHAT, raw_sse(TOKEN, b"data: " + error + b"\n\n", b"data: [DONE]\n\n"))
    answer = edge.post(STREAM, headers={"x-request-id": "in-band"})
    assert (answer.status, answer.body) == (200, TOKEN + b"data: " + error + b"\n\ndata: [DONE]\n\n")
    assert edge.outcome("in-band").stream_error_code == 500


def test_fc_15_an_error_of_plain_text_is_seen(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, raw_sse(TOKEN, b'data: {"choices":[],"error":"engine died"}\n\n'))
    edge.post(STREAM, headers={"x-request-id": "in-band-text"})
    assert edge.outcome("in-band-text").stream_error_code == 500


def test_fc_15_no_error_is_no_error(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, raw_sse(b'data: {"choices":[],"error":null}\n\n', b"data: [DONE]\n\n"))
    edge.post(STREAM, headers={"x-request-id": "null-error"})
    assert edge.outcome("null-error").stream_error_code is None


def test_fc_15_an_empty_200_is_told_by_its_bytes(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, Reply(body=b""))
    edge.post(BODY, headers={"x-request-id": "empty"})
    outcome = edge.outcome("empty")
    assert (outcome.status, outcome.response_bytes, outcome.ttft_s) == (200, 0, None)


FORMS = [
    b': ping\n\nevent: x\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    b': ping\r\n\r\nevent: x\r\ndata: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n',
    b': ping\r\revent: x\rdata: {"choices":[{"delta":{"content":"a"}}]}\r\r',
    b'data:{"choices":[{"delta":{"content":"a"}}]}\n\ndata:[DONE]\n\n',
    b'data: {"choices":\ndata: [{"delta":{"content":"a"}}]}\n\n',
]
USAGE = (
    b'data: {"choices":[],"usage":'
    b'{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}'
)


@pytest.mark.parametrize("number", range(len(FORMS)))
def test_fc_16_every_form_of_event_passes_as_it_is(edge: Edge, engine: FakeEngine, number: int) -> None:
    form = FORMS[number]
    newline = b"\r\n\r\n" if b"\r\n" in form else b"\r\r" if b"\r" in form else b"\n\n"
    text = form + USAGE + newline
    engine.on(CHAT, raw_sse(text))
    answer = edge.post(STREAM, headers={"x-request-id": f"form-{number}"})
    assert answer.body == text
    outcome = edge.outcome(f"form-{number}")
    assert (outcome.prompt_tokens, outcome.completion_tokens, outcome.cached_tokens) == (7, 3, 4)


ODD = (
    *(b"0", b"1.5", b"true", b"null", b'"x"', b"[]", b"[1]", b"{}", b"x", b"", b'[{"usage":1}]', b'{"usage":null}'),
    *(b'{"usage":[1]}', b'{"usage":{"prompt_tokens":"a"}}', b'{"usage":{"prompt_tokens":{}}}', b'{"error":[]}'),
    *(b'{"error":5}', b'{"usage":{"prompt_tokens":1e400}}', b'{"usage":{"prompt_tokens":-1}}', b"[" * 10_000),
    *(b'{"a":' * 10_000, b'{"usage":{"prompt_tokens":' + b"9" * 400, b"\xff\xfe\x00", b'"usage"', b'"error":"'),
)


def test_odd_events_harm_nobody(edge: Edge, engine: FakeEngine) -> None:
    """With Envoy 1.40's own JSON parser for events, `data: null` ended the process."""
    engine.on(CHAT, [raw_sse(TOKEN + b"data: " + event + b"\n\n") for event in ODD] + [Reply(body=b"{}")])
    for event in ODD:
        assert edge.post(STREAM).body == TOKEN + b"data: " + event + b"\n\n"
    assert edge.envoy.process.poll() is None
    assert edge.post(BODY, headers={"x-request-id": "after-odd"}).status == 200
    assert edge.outcome("after-odd").prompt_tokens is None


def test_words_of_a_text_are_neither_usage_nor_error(edge: Edge, engine: FakeEngine) -> None:
    said = json.dumps({"choices": [{"delta": {"content": '"usage":{"prompt_tokens":9},"error":{"code":500}'}}]})
    engine.on(CHAT, raw_sse(f"data: {said}\n\n".encode()))
    edge.post(STREAM, headers={"x-request-id": "said"})
    outcome = edge.outcome("said")
    assert (outcome.prompt_tokens, outcome.stream_error_code) == (None, None)


def test_the_id_of_a_stored_response_is_seen(edge: Edge, engine: FakeEngine) -> None:
    """FC-29: in a stream's first event and in a whole answer; other ids are nobody's business."""
    created = b'data: {"type":"response.created","response":{"id":"resp_s1","object":"response"}}\n\n'
    whole = b'{"id":"resp_w1","object":"response","usage":{"input_tokens":3,"output_tokens":2}}'
    for name, reply, expected in (
        ("stream", raw_sse(created, b"data: [DONE]\n\n"), "resp_s1"),
        ("whole", Reply(body=whole), "resp_w1"),
        ("chat", Reply(body=b'{"id":"chatcmpl-1","usage":{"prompt_tokens":3}}'), ""),
    ):
        engine.on(CHAT, reply)
        edge.post(STREAM, headers={"x-request-id": name})
        assert edge.outcome(name).stored_id == expected


def test_counts_that_come_in_parts_are_put_together(edge: Edge, engine: FakeEngine) -> None:
    """Anthropic's way: the prompt first, the completion last; here also split inside the key."""
    first = b'data: {"type":"message_start","message":{"usage":{"input_tokens":25,"output_tokens":1}}}\n\n'
    last = b'data: {"type":"message_delta","usage":{"output_tokens":15}}\n\n'
    engine.on(CHAT, raw_sse(first[:50], first[50:], b": ping\n\n" * 300, last[:40], last[40:]))
    edge.post(STREAM, headers={"x-request-id": "parts"})
    outcome = edge.outcome("parts")
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (25, 15)


def test_fc_17_events_are_not_held_back(edge: Edge, engine: FakeEngine) -> None:
    event = b"data: " + b"x" * 239 + b"\n\n"
    engine.on(CHAT, raw_sse(*[event] * 8, gap_s=0.1))
    received = edge.stream(STREAM)
    assert received.text == event * 8
    times = [at for at, _ in received.parts]
    assert len(times) == 8
    assert times[-1] - times[0] > 0.6


def test_fc_17_nor_are_chunks_of_json(edge: Edge, engine: FakeEngine) -> None:
    engine.on(CHAT, raw_sse(*[b" " * 100] * 4, b"{}", gap_s=0.1, content_type="application/json"))
    received = edge.stream(BODY)
    assert received.text == b" " * 400 + b"{}"
    assert len(received.parts) == 5


def test_fc_18_characters_split_over_segments(edge: Edge, engine: FakeEngine) -> None:
    contents = "你好🦀\u2028\u0085無"
    events = [
        json.dumps({"choices": [{"delta": {"content": contents}}]}, ensure_ascii=False),
        json.dumps({"choices": [{"delta": {"tool_calls": [{"arguments": '{"city":"杭州"}'}]}}]}, ensure_ascii=False),
        json.dumps({"usage": {"prompt_tokens": 9, "completion_tokens": 2}}),
    ]
    text = "".join(f"data: {event}\n\n" for event in events).encode()
    engine.on(CHAT, raw_sse(*[text[i : i + 1] for i in range(len(text))], gap_s=0.0005))
    answer = edge.post(STREAM, headers={"x-request-id": "split"})
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(text).digest()
    outcome = edge.outcome("split")
    assert (outcome.prompt_tokens, outcome.completion_tokens) == (9, 2)


def test_ttft_is_the_first_byte_of_the_body(edge: Edge, engine: FakeEngine) -> None:
    """The engine sends its headers at once and the first event 0.3 s later."""
    engine.on(CHAT, sse_reply(["a", "b"], gap_s=0.3))
    edge.post(STREAM, headers={"x-request-id": "ttft"})
    outcome = edge.outcome("ttft")
    assert outcome.ttft_s is not None
    assert 0.29 < outcome.ttft_s < outcome.duration_s - 0.25


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("chat", {"usage": {"prompt_tokens": 11, "total_tokens": 16, "completion_tokens": 5}, "x": None}, (11, 5)),
        ("messages", {"usage": {"input_tokens": 11, "output_tokens": 5}}, (11, 5)),
        ("embeddings", {"data": [[0.5] * 100_000], "usage": {"prompt_tokens": 8}}, (8, None)),
        ("quoted", {"text": '"usage":{"prompt_tokens":1}', "n": '"usage"'}, (None, None)),
        ("none", {"usage": None}, (None, None)),
        ("no-object", [], (None, None)),
    ],
)
def test_usage_of_whole_answers(
    edge: Edge, engine: FakeEngine, name: str, answer: object, expected: tuple[int | None, int | None]
) -> None:
    engine.on(CHAT, Reply(body=json.dumps(answer).encode()))
    assert edge.post(BODY, headers={"x-request-id": f"usage-{name}"}).body == json.dumps(answer).encode()
    outcome = edge.outcome(f"usage-{name}")
    assert (outcome.prompt_tokens, outcome.completion_tokens) == expected
