"""What the edge lets through, refuses, strips and answers by itself, on a real Envoy."""

import gzip
import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fakes.engine import FakeEngine, Reply, SeenRequest
from tests.support.edge import Answer, Edge, running_edge, wait_for
from tests.support.envoy import free_port
from tradewind.xds.settings import ModelInfo

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
POSTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/responses",
    "/v1/messages",
    "/tokenize",
)


def echo(seen: SeenRequest) -> Reply:
    return Reply(body=json.dumps({"path": seen.path, "bytes": len(seen.body)}).encode())


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("edge"), log_level="debug") as edge:
        yield edge


@pytest.fixture
def engine(edge: Edge) -> Iterator[FakeEngine]:
    """Serves model `m`; `org/other` is known and has no cell."""
    with FakeEngine() as engine:
        for path in (*POSTS, "/v1/audio/transcriptions"):
            engine.on(path, echo)
        edge.route({"m": [(engine.address, 1)], "org/other": []}, models=[ModelInfo(model="m", max_model_len=8192)])
        yield engine


def raw(edge: Edge, request: bytes) -> bytes:
    """Send bytes as they are; the first line of the answer."""
    with closing(socket.create_connection(("127.0.0.1", edge.port), timeout=5)) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


def code(answer: Answer) -> object:
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


# Models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (b"", 400, "invalid_json"),
        (b"null", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b'"x"', 400, "invalid_json"),
        (b"{}", 400, "missing_required_parameter"),
        (b'{"messages":[]}', 400, "missing_required_parameter"),
        (b'{"model":""}', 400, "missing_required_parameter"),
        (b'{"model":null}', 400, "invalid_type"),
        (b'{"model":5}', 400, "invalid_type"),
        (b'{"model":["m"]}', 400, "invalid_type"),
        (b'{"model":{"model":"m"}}', 400, "invalid_type"),
        (b'{"model":"m"', 400, "invalid_json"),
        (b'{"model":"m', 400, "invalid_json"),
        (b'{"model" "m"}', 400, "invalid_json"),
        (b'{"model":"\\ud83d"}', 400, "invalid_json"),
        (b'{"model":"\\x"}', 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b'{"a":' + b"[" * 100_000, 400, "invalid_json"),
        ('{"model":"m"}'.encode("utf-16"), 400, "invalid_json"),
        (b'{"model":"M"}', 404, "model_not_found"),
        (b'{"model":"m "}', 404, "model_not_found"),
        (b'{"model":"m\\u0000"}', 404, "model_not_found"),
        (b'{"model":"m\\r\\nx-tw-cell: y"}', 404, "model_not_found"),
        (b'{"model":"' + b"x" * 1_000_000 + b'"}', 404, "model_not_found"),
        (b'{"messages":[{"model":"m"}],"model":"zz"}', 404, "model_not_found"),
    ],
)
def test_fc_26_no_or_unknown_model(edge: Edge, engine: FakeEngine, body: bytes, status: int, expected: str) -> None:
    answer = edge.post(body)
    assert (answer.status, code(answer)) == (status, expected)
    assert answer.headers["content-type"] == "application/json"
    assert engine.requests() == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m"}',
        b'  \r\n\t{ "a" : 1 , "model" : "m" , "b" : [1,{"model":"zz"}] }  ',
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"zz","model":"m"}',
        b'{"model":5,"model":"m"}',
        b'{"mod\\u0065l":"\\u006d"}',
        b'{"messages":[{"content":"say \\"model\\":\\"zz\\" \\\\"}],"model":"m"}',
        b'{"prompt":"\\\\\\"","model":"m","x":1e400,"n":3,"y":NaN}',
        b'{"prompt":[[1,2],[3]],"model":"m"}',
        b'{"messages":null,"model":"m"}',
        b'{"prompt":[' + b"1," * 400_000 + b'1],"model":"m"}',
        b'{"messages":[{"content":"' + b"x" * 3_000_000 + b'"}],"model":"m"}',
        b'{"messages":[{"content":"' + b'"'.replace(b'"', b'\\"') * 300_000 + b'"}],"model":"m"}',
    ],
)
def test_the_models_place_and_spelling_do_not_matter(edge: Edge, engine: FakeEngine, body: bytes) -> None:
    assert edge.post(body).status == 200
    assert engine.requests(CHAT)[-1].body == body


def test_the_model_is_found_in_a_chunked_body(edge: Edge, engine: FakeEngine) -> None:
    parts = [b'{"messages":[{"content":"', b"x" * 300_000, b'"}],"mo', b'del":"m"}']
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    assert raw(edge, head + chunks).split()[1] == b"200"
    assert engine.requests(CHAT)[-1].body == b"".join(parts)


def test_fc_26_a_lora_adapter_goes_only_where_it_is(edge: Edge) -> None:
    with FakeEngine() as first, FakeEngine() as second:
        edge.route({"base": [(first.address, 1), (second.address, 1)], "base-lora1": [(first.address, 1)]})
        assert {edge.post({"model": "base-lora1"}).status for _ in range(20)} == {200}
        assert len(first.requests(CHAT)) == 20
        first.kill()
        answer = edge.post({"model": "base-lora1"})
        assert (answer.status, code(answer)) == (503, "service_unavailable")
        edge.route({"base": [(second.address, 1)], "base-lora1": []})
        answer = edge.post({"model": "base-lora1"})
        assert (answer.status, code(answer)) == (503, "no_ready_cell")
        edge.route({"base": [(second.address, 1)]})
        assert edge.post({"model": "base-lora1"}).status == 404
        assert second.requests() == []


def test_a_compressed_body_goes_by_header_or_to_the_only_pool(edge: Edge, engine: FakeEngine) -> None:
    body = gzip.compress(json.dumps(BODY).encode())
    coded = {"content-encoding": "gzip"}
    answer = edge.post(body, headers=coded)
    assert (answer.status, code(answer)) == (415, "unsupported_content_encoding")
    assert edge.post(body, headers={**coded, "tradewind-model": "m"}).status == 200
    assert edge.post(body, headers={**coded, "tradewind-model": "zz"}).status == 404
    edge.route({"m": [(engine.address, 1)]})
    assert edge.post(body, headers=coded).status == 200
    assert [seen.body for seen in engine.requests(CHAT)] == [body, body]
    assert all(seen.headers["content-encoding"] == "gzip" for seen in engine.requests(CHAT))


# Paths --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS)
def test_fc_28_every_endpoint_is_routed_by_its_model(edge: Edge, engine: FakeEngine, path: str) -> None:
    assert edge.post({"model": "m", "input": "x"}, path=path).status == 200
    assert engine.requests(path)[-1].path == path
    assert edge.post({"model": "zz"}, path=path).status == 404


def test_fc_28_large_embeddings_pass(edge: Edge, engine: FakeEngine) -> None:
    reply = json.dumps({"data": [[0.123456789] * 1536] * 100, "usage": {"prompt_tokens": 5}}).encode()
    engine.on("/v1/embeddings", Reply(body=reply))
    assert edge.post({"model": "m"}, path="/v1/embeddings").body == reply


def form(*fields: tuple[str, bytes], boundary: str = "----b0") -> bytes:
    parts = [
        b"--%b\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % (boundary.encode(), n.encode(), v)
        for n, v in fields
    ]
    return b"".join(parts) + b"--%b--\r\n" % boundary.encode()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([('name="file"; filename="a.wav"', b"\r\n\x00audio\r\n--x" * 1000), ('name="model"', b"m")], 200),
        ([('name="model"', b"m"), ('name="file"; filename="model"', b'name="model"\r\n\r\nzz')], 200),
        ([("name=model", b"m")], 200),
        ([('name="model"', b"zz"), ('name="model"', b"m")], 200),
        ([('name="file"; filename="model"', b"m")], 400),
        ([('name="model"', b"")], 400),
        ([('name="model"', b"zz")], 404),
    ],
)
def test_fc_28_transcriptions_name_their_model_in_a_form(
    edge: Edge, engine: FakeEngine, fields: list[tuple[str, bytes]], status: int
) -> None:
    path = "/v1/audio/transcriptions"
    body = form(*fields)
    answer = edge.post(body, path=path, headers={"content-type": "multipart/form-data; boundary=----b0"})
    assert answer.status == status
    assert [seen.body for seen in engine.requests()] == ([body] if status == 200 else [])
    assert edge.post(BODY, path=path).status == 400


def test_fc_27_the_model_list_is_answered_from_the_view(edge: Edge, engine: FakeEngine) -> None:
    """No engine is asked: one that is down or hangs cannot delay it."""
    engine.freeze()
    answer = edge.get("/v1/models")
    engine.thaw()
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "object": "list",
        "data": [
            {"id": "m", "object": "model", "created": 0, "owned_by": "tradewind", "max_model_len": 8192},
            {"id": "org/other", "object": "model", "created": 0, "owned_by": "tradewind"},
        ],
    }
    assert engine.requests() == []


def test_fc_28_one_model_by_its_id(edge: Edge, engine: FakeEngine) -> None:
    assert edge.get("/v1/models/m").json()["max_model_len"] == 8192
    assert edge.get("/v1/models/org/other").json()["id"] == "org/other"
    assert edge.get("/v1/models/org%2Fother").json()["id"] == "org/other"
    answer = edge.get("/v1/models/zz")
    assert (answer.status, code(answer)) == (404, "model_not_found")


def test_a_long_model_list_is_answered(edge: Edge) -> None:
    edge.route({f"org/model-{i:04}": [] for i in range(500)})
    data = edge.get("/v1/models").json()["data"]
    assert isinstance(data, list)
    assert len(data) == 500


ODD_PATHS = (
    *("/", "/metrics", "/health", "/version", "/ping", "/sleep", "/wake_up", "/collective_rpc", "/reset_prefix_cache"),
    *(
        "/load_lora_adapter",
        "/v1/load_lora_adapter",
        "/detokenize",
        "/pooling",
        "/server_info",
        "/docs",
        "/openapi.json",
    ),
    *(
        "/v1",
        "/v1/",
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/..%5cmetrics",
        "/v1/./../metrics",
    ),
    *(
        "//metrics",
        "/v1/models;x",
        "/V1/models",
        "/v1/chat/completions/",
        "/v1/chat/completions;x",
        "/v1/chat/completions%00",
    ),
    *("/v1/chat%252fcompletions", "/v1/chat/completions%20", "/v1/chat/completions/../../../metrics", "/%6detrics"),
    *("/v1/chat/completions/..%2f..%2f..%2fmetrics", "/v1/models/../../metrics", "/v1/files", "/v1/fine_tuning/jobs"),
    *("/v1/chat/../chat/completions/x", "http://engine/metrics", "/v1/completions#/metrics", "*"),
)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_fc_62_only_the_allowed_paths_reach_an_engine(edge: Edge, engine: FakeEngine, method: str) -> None:
    assert len(ODD_PATHS) >= 40
    body = json.dumps(BODY).encode()
    for path in ODD_PATHS:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        status = raw(edge, head.encode() + body).split()[1]
        assert status in (b"400", b"404"), (path, status)
    assert {seen.path for seen in engine.requests()} == set()


def test_fc_62_spellings_of_allowed_paths(edge: Edge, engine: FakeEngine) -> None:
    """Merged slashes and dot segments lead to what they mean; the engine sees the clean path."""
    for path in (
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/./chat/completions",
        "/x/../v1/chat/completions",
    ):
        assert edge.post(BODY, path=path).status == 200
    assert edge.post(BODY, path="/v1/chat%2Fcompletions").status == 200
    assert {seen.path for seen in engine.requests()} == {CHAT}
    assert edge.get("//v1/models").status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT"])
def test_fc_62_other_methods_are_refused(edge: Edge, engine: FakeEngine, method: str) -> None:
    for path in (CHAT, "/v1/models", "/metrics"):
        if (method, path) != ("GET", "/v1/models"):
            status = raw(edge, f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()).split()[1]
            assert status in (b"400", b"403", b"404", b"405"), (path, status)
    assert engine.requests() == []


# Headers ------------------------------------------------------------------------------------------------------------


def test_internal_headers_of_a_client_have_no_effect(edge: Edge, engine: FakeEngine) -> None:
    with FakeEngine() as other:
        edge.route({"m": [(engine.address, 1)], "secret": [(other.address, 1)]})
        spoofed = {
            "x-tw-pool": "secret",
            "X-TW-Cell": other.address,
            "x-tw-key": "0",
            "x_tw_pool": "secret",
            "x-tw-anything": "1",
            "x-envoy-upstream-alt-stat-name": "a",
            "x-envoy-retry-on": "5xx",
        }
        assert edge.post(BODY, headers=spoofed).status == 200
        assert edge.request("GET", "/metrics", None, spoofed).status == 404
        assert other.requests() == []
        seen = engine.requests(CHAT)[-1].headers
        assert not [name for name in seen if name.startswith(("x-tw", "x_tw"))]


def test_fc_21_large_headers(edge: Edge, engine: FakeEngine) -> None:
    token = "Bearer " + "j" * 16_384
    assert edge.post(BODY, headers={"x-jwt": token}).status == 200
    assert engine.requests(CHAT)[-1].headers["x-jwt"] == token
    answer = edge.post(BODY, headers={"x-jwt": "j" * 70_000})
    assert answer.status == 431


def test_fc_30_request_id_and_trace_headers(edge: Edge, engine: FakeEngine) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = edge.post(BODY, headers={"x-request-id": "abc", "traceparent": trace, "tracestate": "a=b"})
    seen = engine.requests(CHAT)[-1].headers
    assert (seen["x-request-id"], seen["traceparent"], seen["tracestate"]) == ("abc", trace, "a=b")
    assert answer.headers["x-request-id"] == "abc"
    assert edge.outcome("abc").status == 200


def test_fc_30_without_an_id_one_is_made_and_returned(edge: Edge, engine: FakeEngine) -> None:
    answer = edge.post(BODY)
    made = answer.headers["x-request-id"]
    assert len(made) == 36
    assert engine.requests(CHAT)[-1].headers["x-request-id"] == made
    assert edge.outcome(made).status == 200


@pytest.mark.parametrize("junk", ["x" * 10_240, "a b", "ü", 'a"\tb'])
def test_fc_30_a_junk_id_is_replaced(edge: Edge, engine: FakeEngine, junk: str) -> None:
    answer = edge.post(BODY, headers={"x-request-id": junk})
    made = answer.headers["x-request-id"]
    assert made != junk
    assert len(made) == 36
    assert engine.requests(CHAT)[-1].headers["x-request-id"] == made


def test_fc_30_line_breaks_in_an_id_make_no_header(edge: Edge, engine: FakeEngine) -> None:
    body = json.dumps(BODY).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-request-id: a\rx-tw-cell: y\r\ncontent-length: {len(body)}\r\n\r\n"
    raw(edge, head.encode() + body)
    for seen in engine.requests():
        assert len(seen.headers["x-request-id"]) == 36
        assert "x-tw-cell" not in seen.headers


# Secrets ------------------------------------------------------------------------------------------------------------

CANARY = "CANARY-8f3"
CREDENTIALS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie")


def test_fc_63_a_clients_key_reaches_no_engine(edge: Edge, engine: FakeEngine) -> None:
    headers = dict.fromkeys(CREDENTIALS, f"Bearer {CANARY}")
    assert edge.post(BODY, headers=headers, path=f"{CHAT}?api_key={CANARY}").status == 200
    seen = engine.requests()[-1]
    assert seen.path == CHAT
    assert CANARY not in json.dumps(seen.headers)


def test_fc_63_keys_and_prompts_are_in_no_log_and_no_dump(tmp_path_factory: pytest.TempPathFactory) -> None:
    """At the log level that Envoy runs with; its own debug log holds headers by design and is off."""
    directory = tmp_path_factory.mktemp("quiet")
    with FakeEngine() as engine, running_edge(directory) as edge:
        engine.on(CHAT, echo)
        edge.route({"m": [(engine.address, 1)]})
        bad = [
            edge.post(BODY, headers={"authorization": f"Bearer {CANARY}"}),
            edge.post({**BODY, "messages": [{"content": "CANARY-prompt"}]}, headers={"authorization": CANARY}),
            edge.post({"model": CANARY + "\x00"}, headers={"authorization": f"Bearer {CANARY}"}),
            edge.post(b'{"model":5,"key":"CANARY-8f3"}', path=f"{CHAT}?api_key={CANARY}"),
            edge.get(f"/metrics?api_key={CANARY}", headers={"authorization": f"Basic {CANARY}"}),
        ]
        wait_for(lambda: len(edge.gateway.outcomes) == len(bad))
        told = [repr(outcome) for outcome in edge.gateway.outcomes] + [str(answer) for answer in bad]
        told += [edge.envoy.log.read_text(), edge.envoy.get("/config_dump?include_eds"), edge.envoy.get("/stats")]
        told += [repr(event) for event in edge.gateway.events] + [repr(edge.gateway.state())]
        assert not [text[:300] for text in told if "CANARY" in text]


def test_fc_63_a_key_is_forwarded_where_that_is_configured(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("forward")
    with FakeEngine() as engine, running_edge(directory, forward_authorization=True) as edge:
        edge.route({"m": [(engine.address, 1)]})
        edge.post(BODY, headers={"authorization": f"Bearer {CANARY}"})
        assert engine.requests(CHAT)[-1].headers["authorization"] == f"Bearer {CANARY}"


def test_one_bad_cell_does_not_hold_back_its_neighbours(edge: Edge, engine: FakeEngine) -> None:
    unusable = ["engine.example:8000", "127.0.0.1", "127.0.0.1:0", "::1:8000", f"127.0.0.1:{free_port()}0000"]
    edge.route({"m": [(engine.address, 1), *[(address, 1) for address in unusable]]})
    assert {edge.post(BODY).status for _ in range(8)} == {200}
