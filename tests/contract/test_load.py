"""What an engine does with more work than it can run: queue, refuse, order, pause, and forget clients that left."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterator

from tests.contract.client import DONE, Stream, chunks_of, eventually, get, post, send
from tests.contract.engine import LIMITS, Engine
from tests.contract.metrics import page, running, total, value, waiting
from tests.contract.requests import CHAT, COMPLETIONS, LONG_TOKENS, chat, completion

SEQUENCES = LIMITS.max_num_seqs
SETTLE_S = 20.0  # for a state that must come, however slow the machine
GONE_S = 5.0  # a client's disconnect frees its sequence: vLLM takes 0.15 s, the request would have taken far longer
HANG_S = 1.5  # silence that shows a hang


@contextlib.contextmanager
def long_streams(engine: Engine, count: int) -> Iterator[list[Stream]]:
    """`count` streams that run for seconds; they are dropped at the end of the block."""
    with contextlib.ExitStack() as opened:
        body = [chat(max_tokens=LONG_TOKENS, stream=True) for _ in range(count)]
        yield [opened.enter_context(Stream(engine, CHAT, each)) for each in body]


@contextlib.contextmanager
def full(engine: Engine) -> Iterator[None]:
    """An engine whose every sequence is taken for seconds."""
    with long_streams(engine, SEQUENCES):
        eventually(lambda: running(engine) == SEQUENCES, within_s=SETTLE_S, what="every sequence is taken")
        yield


def test_headers_come_while_the_request_is_queued(engine: Engine) -> None:
    with full(engine), Stream(engine, CHAT, chat(stream=True)) as queued:
        assert queued.status == 200
        eventually(lambda: waiting(engine) == 1, within_s=SETTLE_S, what="it waits")


def test_a_queued_stream_is_served_when_room_comes(engine: Engine) -> None:
    with contextlib.ExitStack() as held:
        with full(engine):
            queued = held.enter_context(Stream(engine, CHAT, chat(stream=True)))
            eventually(lambda: waiting(engine) == 1, within_s=SETTLE_S, what="the request waits")
        assert chunks_of(queued)[-1]["choices"][0]["finish_reason"] == "length"


def test_gauges_tell_running_from_waiting(engine: Engine) -> None:
    with long_streams(engine, SEQUENCES + 3):
        eventually(lambda: waiting(engine) == 3, within_s=SETTLE_S, what="three wait")
        assert running(engine) == SEQUENCES
        assert value(engine, "vllm:num_requests_waiting_by_reason", reason="capacity") == 3
        assert value(engine, "vllm:kv_cache_usage_perc") > 0
    eventually(lambda: running(engine) + waiting(engine) == 0, within_s=SETTLE_S, what="idle again")


def test_a_full_queue_refuses_with_503(engine: Engine) -> None:
    rejected = value(engine, "vllm:admission_rejections_total", reason="max_num_queued_reqs")
    with long_streams(engine, LIMITS.max_num_queued_reqs):
        eventually(
            lambda: running(engine) + waiting(engine) == LIMITS.max_num_queued_reqs,
            within_s=SETTLE_S,
            what="the queue is full",
        )
        answer = post(engine, CHAT, chat(stream=True))
    assert answer.status == 503
    assert "retry-after" not in answer.headers
    assert answer.error() == {
        "message": "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        "type": "Service Unavailable",
        "param": None,
        "code": 503,
    }
    assert value(engine, "vllm:admission_rejections_total", reason="max_num_queued_reqs") == rejected + 1


def test_a_stream_whose_client_left_stops(engine: Engine) -> None:
    with Stream(engine, CHAT, chat(max_tokens=LONG_TOKENS, stream=True)) as stream:
        next(iter(stream))
        eventually(lambda: running(engine) == 1, within_s=SETTLE_S, what="it runs")
        before = counted(engine)
    eventually(lambda: running(engine) + waiting(engine) == 0, within_s=GONE_S, what="generation stops")
    assert counted(engine) == before


def test_a_whole_request_whose_client_left_stops(engine: Engine) -> None:
    before = counted(engine)
    with contextlib.suppress(TimeoutError):
        send_and_leave(engine)
    eventually(lambda: running(engine) + waiting(engine) == 0, within_s=GONE_S, what="generation stops")
    assert counted(engine) == before


def send_and_leave(engine: Engine) -> None:
    send(engine, "POST", CHAT, chat(max_tokens=LONG_TOKENS), timeout_s=0.5)
    raise AssertionError("the request was too short to be left")


def test_a_queued_request_whose_client_left_is_forgotten(engine: Engine) -> None:
    with full(engine):
        with Stream(engine, CHAT, chat(stream=True)):
            eventually(lambda: waiting(engine) == 1, within_s=SETTLE_S, what="it waits")
        eventually(lambda: waiting(engine) == 0, within_s=GONE_S, what="the queue is empty")


def counted(engine: Engine) -> tuple[float, float]:
    """Finished requests of any reason, and end-to-end times: an abandoned request is counted in neither."""
    text = page(engine)
    return total(text, "vllm:request_success_total"), total(text, "vllm:e2e_request_latency_seconds_count")


def test_lower_priority_numbers_go_first(engine: Engine) -> None:
    order: queue.Queue[int] = queue.Queue()
    with contextlib.ExitStack() as held:
        # Blockers of different lengths free one sequence at a time, so that who goes next can be seen.
        for index in range(SEQUENCES):
            blocker = completion(max_tokens=800 + 80 * index, stream=True)
            held.enter_context(Stream(engine, COMPLETIONS, blocker))
        eventually(lambda: running(engine) == SEQUENCES, within_s=SETTLE_S, what="every sequence is taken")
        threads = [served_in_turn(engine, priority, order, held) for priority in (0, 0, 10, -10)]
        for thread in threads:
            thread.join()
    served = [order.get_nowait() for _ in range(4)]
    assert served == [-10, 0, 0, 10]


def served_in_turn(
    engine: Engine, priority: int, order: "queue.Queue[int]", held: contextlib.ExitStack
) -> threading.Thread:
    """Queues one request and reports its priority when its first data comes."""
    before = waiting(engine)
    body = completion(max_tokens=20, priority=priority, stream=True)
    stream = held.enter_context(Stream(engine, COMPLETIONS, body))
    eventually(lambda: waiting(engine) == before + 1, within_s=SETTLE_S, what=f"the request at {priority} waits")

    def read() -> None:
        for _ in stream:
            order.put(priority)
            break

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_a_paused_engine_is_healthy_and_hangs(engine: Engine) -> None:
    assert post(engine, "/pause").json() == {"status": "paused"}
    try:
        with Stream(engine, CHAT, chat(stream=True)) as hung:
            assert get(engine, "/health").status == 200
            assert get(engine, "/is_paused").json() == {"is_paused": True}
            assert waiting(engine) == 0
            events: queue.Queue[float] = queue.Queue()
            reader = threading.Thread(target=note_times, args=(hung, events))
            reader.start()
            reader.join(HANG_S)
            assert events.empty()
            resumed_s = time.monotonic()
            assert post(engine, "/resume").json() == {"status": "resumed"}
            reader.join(SETTLE_S)
            assert events.get_nowait() > resumed_s
    finally:
        post(engine, "/resume")


def note_times(stream: Stream, times: "queue.Queue[float]") -> None:
    for _ in stream:
        times.put(time.monotonic())


def test_pause_ends_what_was_running(engine: Engine) -> None:
    aborted = value(engine, "vllm:request_success_total", finished_reason="abort")
    with Stream(engine, CHAT, chat(max_tokens=LONG_TOKENS, stream=True)) as stream:
        next(iter(stream))
        try:
            post(engine, "/pause")
            *_, last, done = list(stream)
            assert done == DONE
            assert isinstance(last, dict)
            assert last["choices"][0]["finish_reason"] == "abort"
        finally:
            post(engine, "/resume")
    assert value(engine, "vllm:request_success_total", finished_reason="abort") == aborted + 1
