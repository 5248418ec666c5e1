"""A live emulated engine: what a client, a queue, a disconnect, a pause and a drain look like."""

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.emulator import EmulatorHandle, EngineSpec, emulator
from tests.support.rawhttp import RawAnswer, ask, connect, receive, send

LONG_STREAM = {"model": "tiny", "prompt": "hello", "max_tokens": 20_000, "stream": True}
SHORT = {"model": "tiny", "prompt": "hello", "max_tokens": 3}


@pytest.fixture(scope="module")
def shared() -> Iterator[EmulatorHandle]:
    """For tests that leave the engine as they found it."""
    with emulator(EngineSpec(model="tiny", max_num_seqs=2)) as handle:
        yield handle


@pytest.fixture
def engine() -> Iterator[EmulatorHandle]:
    """For tests that count from zero or end the engine."""
    with emulator(EngineSpec(model="tiny", max_num_seqs=2)) as handle:
        yield handle


def metric(handle: EmulatorHandle, name: str, *labels: str) -> float:
    """One series of the engine's page; 0 for http series that are not there yet."""
    for line in ask(handle.url, "GET", "/metrics").body.decode().splitlines():
        if line.startswith(name) and all(label in line for label in labels):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


def wait_for(holds: Callable[[], bool], *, within_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "did not happen"
        time.sleep(0.01)


def running(handle: EmulatorHandle) -> float:
    return metric(handle, "vllm:num_requests_running{")


def occupy(handle: EmulatorHandle, count: int) -> list[socket.socket]:
    """Starts `count` long streams and waits until they are inside."""
    connections = [connect(handle.url) for _ in range(count)]
    for connection in connections:
        send(connection, "POST", "/v1/completions", LONG_STREAM)
    wait_for(lambda: running(handle) + metric(handle, "vllm:num_requests_waiting{") >= count)
    return connections


def silent(connection: socket.socket, for_s: float) -> bool:
    """Nothing arrives for so long."""
    connection.settimeout(for_s)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)


def take_head(connection: socket.socket) -> bytes:
    """Reads up to the end of the headers."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    return head


def test_headers_come_at_once_and_data_only_when_the_queue_is_through(shared: EmulatorHandle) -> None:
    busy = occupy(shared, 2)
    with connect(shared.url) as queued:
        send(queued, "POST", "/v1/completions", LONG_STREAM)
        assert take_head(queued).startswith(b"HTTP/1.1 200 OK")
        assert silent(queued, 0.3)
        assert metric(shared, "vllm:num_requests_waiting{") == 1
        busy[0].close()
        assert queued.recv(5)
    busy[1].close()
    wait_for(lambda: running(shared) == 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_stops_generation_and_is_counted_nowhere(engine: EmulatorHandle, *, stream: bool) -> None:
    with connect(engine.url) as connection:
        send(connection, "POST", "/v1/completions", LONG_STREAM | {"stream": stream})
        wait_for(lambda: metric(engine, "vllm:generation_tokens_total{") > 3)
    wait_for(lambda: running(engine) == 0)
    tokens = metric(engine, "vllm:generation_tokens_total{")
    ask(engine.url, "POST", "/v1/completions", SHORT)
    assert metric(engine, "vllm:generation_tokens_total{") == tokens + 3
    assert metric(engine, "vllm:request_success_total{", 'finished_reason="abort"') == 0
    assert metric(engine, "vllm:e2e_request_latency_seconds_count{") == 1
    assert metric(engine, "vllm:time_to_first_token_seconds_count{") == 2
    assert metric(engine, "http_requests_total{", 'handler="/v1/completions"', 'status="2xx"') == 2
    assert ask(engine.url, "GET", "/load").json() == {"server_load": 0}


def test_a_lower_priority_value_jumps_the_queue(shared: EmulatorHandle) -> None:
    busy = occupy(shared, 2)
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 300, "stream": True}
    with connect(shared.url) as late, connect(shared.url) as urgent:
        send(late, "POST", "/v1/completions", body)
        wait_for(lambda: metric(shared, "vllm:num_requests_waiting{") == 1)
        send(urgent, "POST", "/v1/completions", body | {"priority": -10})
        wait_for(lambda: metric(shared, "vllm:num_requests_waiting{") == 2)
        for connection in (late, urgent):
            take_head(connection)
        busy[0].close()
        assert urgent.recv(5)
        assert silent(late, 0.2)
    busy[1].close()
    wait_for(lambda: running(shared) == 0)


def test_pause_hangs_new_requests_until_resume(engine: EmulatorHandle) -> None:
    (running_one,) = occupy(engine, 1)
    with running_one as aborted:
        assert ask(engine.url, "POST", "/pause").status == 200
        answer = receive(aborted)
    assert json.loads(answer.events()[-2])["choices"][0]["finish_reason"] == "abort"
    with connect(engine.url) as waiting:
        send(waiting, "POST", "/v1/completions", SHORT)
        assert silent(waiting, 0.2)
        assert ask(engine.url, "GET", "/health").status == 200
        assert metric(engine, "vllm:num_requests_waiting{") == 0
        ask(engine.url, "POST", "/resume")
        assert receive(waiting).json()["usage"]["completion_tokens"] == 3  # type: ignore[index]
    assert metric(engine, "vllm:request_success_total{", 'finished_reason="abort"') == 1


def test_sleep_shows_new_requests_as_waiting_until_wake_up(shared: EmulatorHandle) -> None:
    ask(shared.url, "POST", "/sleep?level=1")
    assert ask(shared.url, "GET", "/is_sleeping").json() == {"is_sleeping": True}
    with connect(shared.url) as waiting:
        send(waiting, "POST", "/v1/completions", SHORT)
        assert silent(waiting, 0.2)
        assert metric(shared, "vllm:num_requests_waiting{") == 1
        ask(shared.url, "POST", "/wake_up")
        assert receive(waiting).status == 200


def test_one_connection_answers_many_requests_and_closes_when_idle(shared: EmulatorHandle) -> None:
    with connect(shared.url) as connection:
        for index in range(20):
            send(connection, "POST", "/v1/completions", SHORT, {"X-Request-Id": f"r{index}"})
            assert receive(connection).json()["id"] == f"cmpl-r{index}"
        connection.settimeout(9)
        assert connection.recv(1) == b"", "uvicorn closes a connection after 5 s of idleness"


def test_pipelined_requests_are_answered_in_order(shared: EmulatorHandle) -> None:
    with connect(shared.url) as connection:
        for index in range(5):
            send(connection, "POST", "/v1/completions", SHORT, {"X-Request-Id": f"r{index}"})
        stream = connection.makefile("rb")
        ids: list[str] = []
        while len(ids) < 5:
            line = stream.readline()
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            elif line == b"\r\n":
                ids.append(json.loads(stream.read(length))["id"])
    assert ids == [f"cmpl-r{index}" for index in range(5)]


def test_a_large_body_in_chunks_with_expect_continue(shared: EmulatorHandle) -> None:
    body = json.dumps({"model": "tiny", "prompt": "word " * 10_000, "max_tokens": 1}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\n"
    with connect(shared.url) as connection:
        connection.sendall((head + "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n").encode())
        assert take_head(connection).startswith(b"HTTP/1.1 100 Continue")
        for start in range(0, len(body), 7000):
            piece = body[start : start + 7000]
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        answer = receive(connection)
    assert answer.json()["usage"]["prompt_tokens"] == 12_500  # type: ignore[index]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: e\r\nX-Large: " + "x" * 100_000 + "\r\n\r\n", 431),
        ("GET http://[ HTTP/1.1\r\nHost: e\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: e\r\n\r\n", 404),
    ],
)
def test_odd_heads_are_answered(shared: EmulatorHandle, head: str, status: int) -> None:
    with connect(shared.url) as connection:
        connection.sendall(head.encode())
        assert receive(connection).status in (status, 400)
    assert ask(shared.url, "GET", "/health").status == 200


@pytest.mark.parametrize("garbage", [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n"])
def test_garbage_is_refused_and_harms_nobody(shared: EmulatorHandle, garbage: bytes) -> None:
    with connect(shared.url) as connection:
        connection.sendall(garbage)
        assert receive(connection).status == 400
    assert ask(shared.url, "POST", "/v1/completions", SHORT).status == 200


def test_shared_text_shares_blocks_and_the_next_turn_hits_the_answer(shared: EmulatorHandle) -> None:
    question = {"role": "user", "content": "tell me " * 100}
    first = ask(shared.url, "POST", "/v1/chat/completions", {"messages": [question], "max_tokens": 200}).json()
    answer = first["choices"][0]["message"]  # type: ignore[index]
    following = [question, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "go on"}]
    second = ask(shared.url, "POST", "/v1/chat/completions", {"messages": following, "max_tokens": 1}).json()
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]  # type: ignore[index]
    total = first["usage"]["total_tokens"]  # type: ignore[index]
    assert total - 32 < cached <= total


def test_the_same_prompt_gives_the_same_answer(shared: EmulatorHandle) -> None:
    def text() -> object:
        return ask(shared.url, "POST", "/v1/completions", SHORT).json()["choices"][0]["text"]  # type: ignore[index]

    assert text() == text()
    assert isinstance(text(), str)


def test_a_one_token_warm_up_is_quick(engine: EmulatorHandle) -> None:
    answer = ask(engine.url, "POST", "/v1/completions", {"prompt": "hi", "max_tokens": 1})
    assert answer.status == 200
    assert metric(engine, "vllm:e2e_request_latency_seconds_sum{") < 0.5


def test_drain_finishes_the_stream_and_refuses_the_rest(engine: EmulatorHandle) -> None:
    with connect(engine.url) as connection:
        send(connection, "POST", "/v1/completions", LONG_STREAM | {"max_tokens": 200})
        wait_for(lambda: metric(engine, "vllm:generation_tokens_total{") > 3)
        engine.inject("drain", cell="a1", params={"timeout_s": 30})
        refused: list[RawAnswer] = []

        def drains() -> bool:
            refused.append(ask(engine.url, "POST", "/v1/completions", SHORT))
            return refused[-1].status == 500

        wait_for(drains, within_s=2)
        assert b"cannot schedule new futures after shutdown" in refused[-1].body
        assert ask(engine.url, "GET", "/health").status == 200
        answer = receive(connection)
    assert answer.complete
    assert len(answer.events()) == 201
    assert answer.events()[-1] == "[DONE]"
    wait_for(lambda: engine.pid("a1") is None)
    with pytest.raises(ConnectionRefusedError):
        connect(engine.url)
