"""The emulator answers as the captured vLLM 0.32 did: status, headers, bodies, events, metric names, labels, buckets.

Ids, times, texts and token counts are normalised: the captures come from a tiny model with another tokenizer.
"""

import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.emulator import EmulatorHandle, EngineSpec, emulator
from tests.support.rawhttp import RawAnswer, ask, connect, receive, send

DATA = Path(__file__).parent / "data" / "vllm"
_DETAILS = re.compile(r',"prompt_tokens_details":\{[^}]*\}')  # these captures were made without the flag
JSON = {"Content-Type": "application/json"}
LONG = "x" * 5000
HELLO = [{"role": "user", "content": "hello world"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[EmulatorHandle]:
    spec = EngineSpec(model="tiny", aliases=("tiny-alias",), max_model_len=1024)
    with emulator(spec) as handle:
        yield handle


def captured(name: str, section: str = "") -> RawAnswer:
    """A captured response; `section` picks one of a file with "=== title" lines."""
    text = (DATA / name).read_text()
    if section:
        text = text.split(f"=== {section}\n", 1)[1].split("\n=== ", 1)[0]
    if not text.startswith("HTTP/"):
        return RawAnswer("HTTP/1.1 200 OK", (), text.strip().encode())
    head, _, body = text.partition("\n\n")
    status_line, *lines = head.splitlines()
    headers = tuple((name, value) for name, _, value in (line.partition(": ") for line in lines))
    return RawAnswer(status_line, headers, body.strip("\n").encode())


def shape(value: object, key: str = "") -> object:
    """A JSON value with everything that may differ between two runs replaced by its type."""
    if isinstance(value, dict):
        return [(name, shape(item, name)) for name, item in value.items()]
    if isinstance(value, list):
        return ["..."] if key in ("tokens", "token_strs") else [shape(item, key) for item in value]
    if key in {"id", "created", "content", "text", "system_fingerprint", "root"} and value != "":
        return f"<{type(value).__name__}>"
    if key.endswith("_tokens") or key == "count":
        return "<count>"
    return value


def assert_same_head(got: RawAnswer, wanted: RawAnswer) -> None:
    assert got.status_line == wanted.status_line
    # The earlier captures were made without --enable-request-id-headers; the emulator always has it.
    names = [name for name, _ in wanted.headers]
    if "x-request-id" not in names:
        names.insert(names.index("vary") + 1, "x-request-id")
    assert [name for name, _ in got.headers] == names
    for name in ("server", "content-type", "vary", "allow", "transfer-encoding"):
        assert got.header(name) == wanted.header(name)


@pytest.mark.parametrize(
    ("section", "path", "body"),
    [
        ("unknown model chat", "/v1/chat/completions", {"model": "nope", "messages": HELLO}),
        ("unknown model completions stream", "/v1/completions", {"model": "nope", "prompt": "hi", "stream": True}),
        (
            "overlong prompt chat",
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": LONG}], "max_tokens": 5},
        ),
        (
            "overlong prompt chat stream",
            "/v1/chat/completions",
            {"model": "tiny", "messages": [{"role": "user", "content": LONG}], "stream": True},
        ),
        ("overlong completions", "/v1/completions", {"model": "tiny", "prompt": LONG}),
        (
            "max_tokens too large",
            "/v1/chat/completions",
            {"model": "tiny", "messages": HELLO, "max_tokens": 5000},
        ),
        ("bad json", "/v1/chat/completions", b"{bad json"),
        ("missing messages", "/v1/chat/completions", {"model": "tiny"}),
        (
            "bad temperature",
            "/v1/chat/completions",
            {"model": "tiny", "messages": HELLO, "temperature": -1},
        ),
    ],
)
def test_refusals_are_byte_for_byte(engine: EmulatorHandle, section: str, path: str, body: object) -> None:
    wanted = captured("vllm_api_probes.txt", section)
    got = ask(engine.url, "POST", path, body, JSON)
    assert_same_head(got, wanted)
    assert got.body == wanted.body
    assert got.header("content-length") == wanted.header("content-length")


@pytest.mark.parametrize(
    ("section", "method", "path", "headers"),
    [
        ("wrong content-type", "POST", "/v1/chat/completions", {"Content-Type": "text/plain"}),
        ("404 path", "GET", "/v1/nothing", {}),
        ("405", "GET", "/v1/chat/completions", {}),
        ("embeddings on generate model", "POST", "/v1/embeddings", JSON),
    ],
)
def test_other_refusals(engine: EmulatorHandle, section: str, method: str, path: str, headers: dict[str, str]) -> None:
    wanted = captured("vllm_api_probes.txt", section)
    got = ask(engine.url, method, path, b"{}" if method == "POST" else b"", headers)
    assert_same_head(got, wanted)
    assert got.body == wanted.body


@pytest.mark.parametrize(
    "path", ["/health", "/ping", "/version", "/load", "/is_sleeping", "/is_paused", "/weight_info", "/kv_event_sources"]
)
def test_small_answers(engine: EmulatorHandle, path: str) -> None:
    wanted = captured("vllm_get_endpoints.txt", f"GET {path}")
    got = ask(engine.url, "GET", path)
    assert_same_head(got, wanted)
    assert got.body == wanted.body.strip()


def test_models(engine: EmulatorHandle) -> None:
    wanted = captured("vllm_api_probes.txt", "v1/models")
    got = ask(engine.url, "GET", "/v1/models")
    assert shape(got.json()) == shape(wanted.json())
    assert [entry["id"] for entry in got.json()["data"]] == ["tiny", "tiny-alias"]  # type: ignore[attr-defined]


def test_chat_without_stream(engine: EmulatorHandle) -> None:
    wanted = captured("chat_cached_tokens_orca_json.txt")
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a" * 250}], "max_tokens": 3}
    headers = {"X-Request-Id": "req-1", "endpoint-load-metrics-format": "json"}
    got = ask(engine.url, "POST", "/v1/chat/completions", body, headers)
    assert_same_head(got, wanted)
    first = json.loads(wanted.body.decode().splitlines()[0])
    assert shape(got.json()) == shape(first)
    assert got.json()["id"] == "chatcmpl-req-1"
    assert got.header("x-request-id") == "req-1"
    assert got.header("endpoint-load-metrics") == wanted.header("endpoint-load-metrics")


def test_the_second_equal_prompt_reports_whole_cached_blocks(engine: EmulatorHandle) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "b" * 250}], "max_tokens": 3}
    details = []
    for _ in range(2):
        usage = ask(engine.url, "POST", "/v1/chat/completions", body).json()["usage"]
        assert isinstance(usage, dict)
        details.append(usage["prompt_tokens_details"])
    assert [(detail["cached_tokens"], detail["created_cache_tokens"]) for detail in details] == [(0, 64), (64, 0)]


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        (
            "chat_stream_usage.sse",
            "/v1/chat/completions",
            {"messages": HELLO, "max_tokens": 5, "stream_options": {"include_usage": True}},
        ),
        (
            "completion_stream_contusage.sse",
            "/v1/completions",
            {
                "prompt": "hello world",
                "max_tokens": 4,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            },
        ),
    ],
)
def test_streams(engine: EmulatorHandle, name: str, path: str, body: dict[str, object]) -> None:
    wanted = captured(name)
    got = ask(engine.url, "POST", path, {"model": "tiny", "stream": True, **body})
    assert_same_head(got, wanted)
    assert len(got.events()) == len(wanted.events())
    for mine, theirs in zip(got.events(), wanted.events(), strict=True):
        assert _event_shape(_DETAILS.sub("", mine)) == _event_shape(theirs)
    assert got.body.endswith(b"data: [DONE]\n\n")


def test_stream_with_cached_tokens_tells_the_details(engine: EmulatorHandle) -> None:
    wanted = captured("chat_stream_cached_tokens_usage.sse")
    body = {
        "model": "tiny",
        "stream": True,
        "messages": [{"role": "user", "content": "c" * 250}],
        "max_tokens": 2,
        "stream_options": {"include_usage": True},
    }
    ask(engine.url, "POST", "/v1/chat/completions", body)
    got = ask(engine.url, "POST", "/v1/chat/completions", body)
    assert [shape(json.loads(event)) for event in got.events()[:-1]] == [
        shape(json.loads(event)) for event in wanted.events()[:-1]
    ]
    assert json.loads(got.events()[-2])["usage"]["prompt_tokens_details"]["cached_tokens"] == 64


def test_completion_without_stream(engine: EmulatorHandle) -> None:
    wanted = captured("vllm_api_probes.txt", "completions nonstream")
    got = ask(engine.url, "POST", "/v1/completions", {"model": "tiny", "prompt": "hello", "max_tokens": 3})
    assert_same_head(got, wanted)
    assert shape(got.json()) == shape(wanted.json())


def test_a_client_request_id_becomes_the_body_id(engine: EmulatorHandle) -> None:
    wanted = captured("request_id.txt")
    body = {"model": "tiny", "prompt": "x", "max_tokens": 1, "request_id": "loses"}
    got = ask(engine.url, "POST", "/v1/completions", body, {"X-Request-Id": "my-req-42"})
    assert_same_head(got, wanted)
    assert got.json()["id"] == wanted.json()["id"] == "cmpl-my-req-42"
    assert got.header("x-request-id") == wanted.header("x-request-id")
    assert ask(engine.url, "POST", "/v1/completions", body).json()["id"] == "cmpl-loses"


def test_two_choices_in_one_stream(engine: EmulatorHandle) -> None:
    wanted = captured("vllm_api_probes.txt", "completions n=2 stream")
    body = {"model": "tiny", "prompt": "hello", "max_tokens": 2, "n": 2, "stream": True}
    got = ask(engine.url, "POST", "/v1/completions", body)
    assert [_event_shape(event) for event in got.events()] == [
        # The captured random model gave empty texts; ours gives a word.
        _event_shape(event.replace('"text":""', '"text":"w"'))
        for event in wanted.events()
    ]


def test_tokenize(engine: EmulatorHandle) -> None:
    wanted = captured("vllm_api_probes.txt", "tokenize prompt")
    got = ask(engine.url, "POST", "/tokenize", {"model": "tiny", "prompt": "hello world here"})
    assert_same_head(got, wanted)
    assert list(got.json()) == list(wanted.json())
    assert got.json()["count"] == 4
    chat = ask(engine.url, "POST", "/tokenize", {"messages": HELLO, "return_token_strs": True}).json()
    assert len(chat["token_strs"]) == chat["count"]  # type: ignore[arg-type]


def test_pause_and_sleep_answers(engine: EmulatorHandle) -> None:
    try:
        for method, path, section in (
            ("POST", "/pause", "pause"),
            ("GET", "/is_paused", "is_paused"),
            ("GET", "/health", "health while paused"),
            ("POST", "/resume", "resume"),
            ("POST", "/sleep?level=1", "sleep (not enabled)"),
        ):
            wanted = captured("vllm_api_probes.txt", section)
            got = ask(engine.url, method, path)
            assert_same_head(got, wanted)
            assert got.body == wanted.body.strip()
    finally:
        assert ask(engine.url, "POST", "/wake_up").body == b'{"status":"awake","tags":null}'


def test_a_full_queue_answers_503() -> None:
    wanted = captured("vllm_503_queue_full.txt")
    body = {"model": "tiny", "prompt": "x", "max_tokens": 500, "stream": True}
    with emulator(EngineSpec(model="tiny", max_num_queued_reqs=1)) as handle, connect(handle.url) as busy:
        send(busy, "POST", "/v1/completions", body)
        assert busy.recv(1, socket.MSG_PEEK) == b"H"  # headers come at once: the request is inside
        got = ask(handle.url, "POST", "/v1/completions", body)
        assert_same_head(got, wanted)
        assert got.body == wanted.body
        assert got.header("retry-after") is None
        page = ask(handle.url, "GET", "/metrics").body.decode()
    assert 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 1.0' in page


def test_sigterm_cuts_a_stream_with_an_error_event() -> None:
    wanted = captured("stream_cut_by_sigterm.sse")
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 2000, "stream": True}
    with emulator(EngineSpec(model="tiny")) as handle, connect(handle.url) as connection:
        send(connection, "POST", "/v1/chat/completions", body)
        _until_generating(handle)
        handle.inject("drain", cell="a1", params={"timeout_s": 0})
        rest = receive(connection)
    assert rest.complete
    events = [event for event in wanted.events() if event.startswith(("{", "["))]
    assert rest.events()[-2:] == events[-2:]
    assert _event_shape(rest.events()[0]) == _event_shape(events[0])


# -- /metrics ---------------------------------------------------------------------------------------------------------

_LABEL_VALUES = re.compile(r'(model_name|version|patchlevel|minor|major|implementation|generation)="[^"]*"')
_CACHE_VALUES = re.compile(r'="[^"]*"')


def test_metrics_families_labels_and_buckets_are_the_captured_ones(engine: EmulatorHandle) -> None:
    """Idle page against idle page, line by line: HELP, TYPE, series in order, with their labels."""
    with emulator(EngineSpec(model="tiny")) as handle:
        got = ask(handle.url, "GET", "/metrics")
    wanted = (DATA / "vllm_0.32.0_metrics_idle.txt").read_text()
    assert _series(got.body.decode()) == _series(wanted)
    assert got.header("content-type") == "text/plain; version=1.0.0; charset=utf-8"


def test_all_75_families_are_there_once_sleep_was_used() -> None:
    with emulator(EngineSpec(model="tiny")) as handle:
        ask(handle.url, "POST", "/sleep?level=1")
        got = ask(handle.url, "GET", "/metrics").body.decode()
    wanted = (DATA / "vllm_0.32.0_metrics_under_load.txt").read_text()

    def types(page: str) -> list[str]:
        return [line for line in page.splitlines() if line.startswith("# TYPE vllm:")]

    assert types(got) == types(wanted)
    assert len(types(got)) == 75
    assert 'vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 0.0' in got


def test_http_families_come_with_the_first_request(engine: EmulatorHandle) -> None:
    ask(engine.url, "POST", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1})
    ask(engine.url, "GET", "/health")
    got = ask(engine.url, "GET", "/metrics").body.decode()
    wanted = (DATA / "vllm_0.32.0_metrics_under_load.txt").read_text()

    def http_lines(page: str) -> set[str]:
        lines = {line.rsplit(" ", 1)[0] for line in page.splitlines() if "http_re" in line}
        return {line for line in lines if line.startswith("#") or 'handler="/v1/completions"' in line}

    assert http_lines(wanted) - {line for line in http_lines(wanted) if "4xx" in line} <= http_lines(got)
    assert 'handler="/health"' not in got
    assert 'handler="/metrics"' not in got


def test_the_page_parses_and_counts(engine: EmulatorHandle) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    def read() -> dict[str, float]:
        page = ask(engine.url, "GET", "/metrics").body.decode()
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return {f"{s.name}{s.labels.get('finished_reason', s.labels.get('source', ''))}": s.value for s in samples}

    before = read()
    prompt = list(range(100))
    ask(engine.url, "POST", "/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": 10})
    ask(engine.url, "POST", "/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": 10})
    after = read()
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["vllm:prompt_tokens_total"] == 200
    assert grown["vllm:generation_tokens_total"] == 20
    assert grown["vllm:request_success_totallength"] == 2
    assert grown["vllm:time_to_first_token_seconds_count"] == 2
    assert grown["vllm:inter_token_latency_seconds_count"] == 18
    assert grown["vllm:e2e_request_latency_seconds_count"] == 2
    assert grown["vllm:prefix_cache_queries_total"] == 200
    assert grown["vllm:prefix_cache_hits_total"] == 96
    assert grown["vllm:prompt_tokens_by_source_totallocal_compute"] == 104
    assert grown["vllm:prompt_tokens_by_source_totallocal_cache_hit"] == 96
    assert after["process_start_time_seconds"] == before["process_start_time_seconds"]


def test_cache_config_tells_the_capacity(engine: EmulatorHandle) -> None:
    page = ask(engine.url, "GET", "/metrics").body.decode()
    line = next(line for line in page.splitlines() if line.startswith("vllm:cache_config_info{"))
    assert 'block_size="16"' in line
    assert 'num_gpu_blocks="12500"' in line
    assert 'kv_cache_size_tokens="200000"' in line


def _series(page: str) -> list[str]:
    lines = []
    for line in page.splitlines():
        name = line if line.startswith("#") else line.rsplit(" ", 1)[0]
        name = _LABEL_VALUES.sub(r"\1", name)
        lines.append(_CACHE_VALUES.sub("=", name) if "cache_config_info{" in name else name)
    return lines


def _event_shape(event: str) -> object:
    return event if event == "[DONE]" else shape(json.loads(event))


def _until_generating(handle: EmulatorHandle) -> None:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        page = ask(handle.url, "GET", "/metrics").body.decode()
        count = re.search(r"^vllm:generation_tokens_total\{[^}]*\} (\S+)$", page, re.M)
        if count and float(count[1]) > 3:
            return
    raise AssertionError("no token within 10 s")
