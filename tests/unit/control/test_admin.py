"""The admin API's document, guard and metrics, without a socket."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message

from tests.unit.control.test_grid import Bench
from tradewind.control import metrics
from tradewind.control.admin import Admin
from tradewind.control.api import StateRow, StatusRow, TunerHistoryRow, TunerReply, TunerRow, WeightsRow
from tradewind.control.beats import PeerError
from tradewind.control.events import MAX_EVENTS, EventRing
from tradewind.control.openapi import Endpoint
from tradewind.control.saver import Saver
from tradewind.runtime.loop import LoopLag
from tradewind.wire.pb import tradewind_pb2 as pb

Json = dict[str, object]
HOST = "127.0.0.1:7401"


def admin_of(bench: Bench) -> Admin:
    saver = Saver(Path("never-written"), incarnation="c1", snapshot=bench.grid.saved)
    return Admin(grid=bench.grid, saver=saver, metrics=registry_of(bench), status=status_row, version="9.9")


def registry_of(bench: Bench) -> CollectorRegistry:
    saver = Saver(Path("never-written"), incarnation="c1", snapshot=bench.grid.saved)
    return metrics.registry(
        metrics.ControlCollector(grid=bench.grid, saver=saver, lag=LoopLag(), agent_streams=lambda: 0)
    )


def status_row() -> StatusRow:
    state = StateRow(path="", saved=True, problem="", started_empty_because="", failures=0)
    return StatusRow(
        control_id="control",
        incarnation="c1",
        version="9.9",
        uptime_s=0.0,
        publishing=True,
        holding_back_because="",
        cells={},
        gateways=0,
        state=state,
        loop_lag_s=0.0,
        loop_lag_worst_s=0.0,
        counters={},
    )


def call(
    app: Starlette, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """One request straight into the application."""
    path, _, query = path.partition("?")
    given = {"Host": HOST} | dict(headers or {})
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    sent: list[Message] = []
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return pending.pop() if pending else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def document(bench: Bench | None = None) -> Json:
    status, body = call(admin_of(bench or Bench()).app(token=""), "GET", "/openapi.json")
    assert status == 200
    parsed: Json = msgspec.json.decode(body)
    return parsed


def test_every_route_is_documented_and_every_document_entry_is_a_route() -> None:
    admin = admin_of(Bench())
    app = admin.app(token="")
    served = {
        (path.path, method.lower())
        for path in app.routes
        if isinstance(path, Route)
        for method in (path.methods or set()) - {"HEAD"}
    }
    paths = document()["paths"]
    assert isinstance(paths, dict)
    documented = {(path, method) for path, operations in paths.items() for method in operations}
    assert served == documented


def test_every_reference_of_the_document_resolves_and_every_operation_is_whole() -> None:
    parsed = document()
    text = msgspec.json.encode(parsed).decode()
    schemas = parsed["components"]["schemas"]  # type: ignore[index]
    assert set(re.findall(r"#/components/schemas/(\w+)", text)) <= set(schemas)
    names: list[str] = []
    for endpoint in admin_of(Bench()).endpoints:
        operation = parsed["paths"][endpoint.path][endpoint.method.lower()]  # type: ignore[index]
        names.append(operation["operationId"])
        assert operation["summary"]
        assert operation["responses"]["200"]["content"]
        in_path = set(re.findall(r"{(\w+)}", endpoint.path))
        assert {item["name"] for item in operation["parameters"] if item["in"] == "path"} == in_path
    assert len(names) == len(set(names))


def test_the_schema_of_a_cell_names_what_a_cell_says() -> None:
    bench = Bench()
    bench.beat(0)
    status, body = call(admin_of(bench).app(token=""), "GET", "/v1/cells/cell-0000")
    assert status == 200
    schemas = document()["components"]["schemas"]  # type: ignore[index]
    assert set(msgspec.json.decode(body)) == set(schemas["CellRow"]["properties"])
    assert set(msgspec.json.decode(body)) == set(schemas["CellRow"]["required"])


BODIES = {
    "/v1/tuner/set": b'{"rtt": 0.5, "queue": 1}',
    "/v1/tuner/check": b'{"other": {"rtt": 1, "queue": 0.5}}',
}


def answers(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{cell_id}", "cell-0000")


def test_every_endpoint_answers_as_documented() -> None:
    bench = Bench(expected=frozenset({"cell-0000"}), tuned=True)
    bench.beat(0)
    bench.grid.tick(bench.now_s)
    admin = admin_of(bench)
    for endpoint in sorted(admin.endpoints, key=lambda item: item.method, reverse=True):  # POST, GET, DELETE
        sent = BODIES.get(endpoint.path, b"")
        status, body = call(admin.app(token=""), endpoint.method, answers(endpoint), body=sent)
        assert status == 200, endpoint
        if not isinstance(endpoint.reply, str):
            msgspec.json.decode(body, type=endpoint.reply)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "say"),
    [
        ("POST", "/v1/cells/nobody/drain", b"", 404, "GET /v1/grid"),
        ("POST", "/v1/cells/nobody/undrain", b"", 404, "GET /v1/grid"),
        ("DELETE", "/v1/cells/nobody", b"", 404, "GET /v1/grid"),
        ("GET", "/v1/cells/nobody", b"", 404, "GET /v1/grid"),
        ("POST", "/v1/cells/cell-0000/drain", b"{", 400, "reason"),
        ("POST", "/v1/cells/cell-0000/drain", b"[]", 400, "reason"),
        ("POST", "/v1/cells/cell-0000/drain", b'{"why":"x"}', 400, "reason"),
        ("POST", "/v1/cells/cell-0000/drain", b'{"reason":7}', 400, "reason"),
        ("POST", "/v1/cells/cell-0000/drain", b"\xff\xfe", 400, "reason"),
        ("POST", "/v1/cells/cell-0000/drain", b'{"reason":"' + b"x" * 300 + b'"}', 400, "at most 200"),
        ("POST", "/v1/cells/cell-0000/drain", b" " * 5000, 413, "4096"),
        ("GET", "/v1/events?after=-1", b"", 400, "after"),
        ("GET", "/v1/events?limit=many", b"", 400, "limit"),
        ("GET", "/v1/events?after=" + "9" * 400, b"", 400, "after"),
        ("GET", "/v1/tuner", b"", 404, "tuner: {}"),
        ("GET", "/v1/tuner/history", b"", 404, "tuner: {}"),
        ("GET", "/v1/tuner/check", b"", 404, "tuner: {}"),
        ("POST", "/v1/tuner/freeze", b"", 404, "tuner: {}"),
        ("POST", "/v1/tuner/set", b"", 404, "tuner: {}"),
        ("GET", "/nothing", b"", 404, "/openapi.json"),
        ("PUT", "/v1/grid", b"", 405, "/openapi.json"),
    ],
)
def test_bad_input_gets_a_json_error_that_says_what_to_write(
    method: str, path: str, body: bytes, status: int, say: str
) -> None:
    bench = Bench()
    bench.beat(0)
    given, reply = call(admin_of(bench).app(token=""), method, path, body=body)
    assert given == status
    assert say in msgspec.json.decode(reply)["error"]["message"]
    assert bench.grid.drains == {}


@pytest.mark.parametrize(
    ("path", "body", "status", "say"),
    [
        ("set", b"", 400, "write a JSON object with: rtt, queue, reason"),
        ("set", b'{"rtt": 1}', 400, "rtt, queue, reason"),
        ("set", b'{"rtt": 1e999, "queue": 1}', 400, ""),
        ("set", b'{"rtt": 9, "queue": 1}', 409, "between 0 and 2"),
        ("check", b"", 400, "other, requests, seed"),
        ("check", b'{"other": {"rtt": 1, "queue": 1}}', 409, "the same"),
        ("set", b'{"rtt": 1, "queue": 1, "reason": "' + b"x" * 300 + b'"}', 400, "at most 200"),
    ],
)
def test_bad_orders_to_the_tuner_are_told(path: str, body: bytes, status: int, say: str) -> None:
    bench = Bench(tuned=True)
    given, reply = call(admin_of(bench).app(token=""), "POST", f"/v1/tuner/{path}", body=body)
    assert given == status
    assert say in msgspec.json.decode(reply)["error"]["message"]
    assert bench.grid.tuning is not None
    assert not bench.grid.tuning.history


def test_the_tuner_is_told_and_ordered_about() -> None:
    bench = Bench(tuned=True)
    app = admin_of(bench).app(token="")
    status, body = call(app, "POST", "/v1/tuner/set", body=b'{"rtt": 0.5, "queue": 1, "reason": "pretrain"}')
    reply = msgspec.json.decode(body, type=TunerReply)
    assert (status, reply.saved, reply.tuner.weights) == (200, True, WeightsRow(rtt=0.5, queue=1.0))
    call(app, "POST", "/v1/tuner/freeze")
    row = msgspec.json.decode(call(app, "GET", "/v1/tuner")[1], type=TunerRow)
    assert (row.frozen, row.driver, row.generation) == (True, "c.1", 3)
    _, body = call(app, "GET", "/v1/tuner/history?after=1")
    history = msgspec.json.decode(body, type=TunerHistoryRow)
    assert ([line.what for line in history.events], history.first, history.last) == (["frozen"], 1, 2)
    names = [event.name for event in bench.grid.events.after(0, limit=50)]
    assert {"tuner.set", "tuner.frozen"} <= set(names)
    page = generate_latest(registry_of(bench)).decode()
    assert 'tradewind_control_tuner_weight{weight="rtt"} 0.5' in page
    assert "tradewind_control_tuner_frozen 1.0" in page
    assert 'tradewind_control_tuner_events_total{what="set"} 1.0' in page


def test_with_a_token_only_health_is_open() -> None:
    admin = admin_of(Bench(expected=frozenset()))
    app = admin.app(token="s3cret")
    for endpoint in admin.endpoints:
        status, body = call(app, endpoint.method, answers(endpoint))
        assert (status == 401) != endpoint.open, endpoint
        assert b"s3cret" not in body
    for header in ("Bearer wrong", "s3cret", "Basic s3cret", "Bearer", "Bearer s3cret2"):
        assert call(app, "GET", "/v1/grid", headers={"Authorization": header})[0] == 401
    assert call(app, "GET", "/v1/grid?api_key=s3cret")[0] == 401
    assert call(app, "GET", "/v1/grid", headers={"Authorization": "bearer s3cret"})[0] == 200


def test_a_page_of_another_origin_cannot_give_orders() -> None:
    bench = Bench()
    bench.beat(0)
    app = admin_of(bench).app(token="")
    for origin in ("https://evil.example", "null", "http://["):
        assert call(app, "POST", "/v1/cells/cell-0000/drain", headers={"Origin": origin})[0] == 403
    assert bench.state() == "ready"
    assert call(app, "POST", "/v1/cells/cell-0000/drain", headers={"Origin": f"http://{HOST}"})[0] == 200
    assert bench.state() == "draining"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7401", "127.0.0.1.evil.example", "[", "evil.localhost.example"]
)
def test_a_page_whose_name_points_at_loopback_reads_and_orders_nothing(host: str) -> None:
    """DNS rebinding: its owner lets the name of the page point here, so the browser takes control for its own site."""
    admin = admin_of(Bench(expected=frozenset()))
    app = admin.app(token="")
    for endpoint in admin.endpoints:
        headers = {"Host": host, "Origin": f"http://{host}"} if endpoint.method != "GET" else {"Host": host}
        status, _ = call(app, endpoint.method, answers(endpoint), headers=headers)
        assert (status == 403) != endpoint.open, endpoint
    assert call(admin.app(token="s3cret"), "GET", "/v1/grid", headers={"Host": host})[0] == 401


@pytest.mark.parametrize("host", ["localhost:7401", "127.0.0.1", "[::1]:7401", "10.0.0.7:80", ""])
def test_an_address_is_no_name_of_anybody_else(host: str) -> None:
    app = admin_of(Bench(expected=frozenset())).app(token="")
    assert call(app, "GET", "/v1/grid", headers={"Host": host})[0] == 200


def test_fc_64_five_thousand_cells_make_a_bounded_page_and_removed_cells_leave_it() -> None:
    bench = Bench()
    for number in range(5_000):
        bench.beat(number)
    page = generate_latest(registry_of(bench))
    assert len(page) < 1_000_000
    series = [line for line in page.decode().splitlines() if not line.startswith("#")]
    assert len(series) < 600
    assert 'tradewind_control_cell_ready_ratio{cell="other",site="other"} 1.0' in series
    for number in range(1, 5_000):
        bench.grid.forget(f"cell-{number:04}")
    page = generate_latest(registry_of(bench))
    assert b"cell-0000" in page
    assert b"cell-0001" not in page
    assert b'cell="other"' not in page


def test_fc_64_refused_ids_make_no_series() -> None:
    bench = Bench()
    for number in range(5_000):
        message = pb.Heartbeat(cell=pb.Cell(cell_id=f"no such id {number}"), incarnation="b1", sequence=1)
        with pytest.raises(PeerError):
            bench.grid.heartbeat(message.SerializeToString(), bench.now_s)
    assert len(generate_latest(registry_of(bench)).splitlines()) < 200


def test_metric_names_have_units_and_help() -> None:
    bench = Bench()
    bench.beat(0)
    endings = ("_seconds", "_ratio", "_total", "_cells", "_streams", "_bytes", "_created", "_fds")
    for family in registry_of(bench).collect():
        assert family.documentation
        for sample in family.samples:
            assert sample.name.endswith(endings), sample.name


def test_events_are_bounded_and_say_how_many_are_gone() -> None:
    ring = EventRing(lambda: 5.0)
    for number in range(MAX_EVENTS + 10):
        ring.add("cell.ready", "a", "x" * 1_000 + str(number))
    rows = ring.after(0, limit=MAX_EVENTS * 2)
    assert (len(rows), ring.dropped, ring.last) == (MAX_EVENTS, 10, MAX_EVENTS + 10)
    assert [row.sequence for row in ring.after(ring.last - 2, limit=10)] == [ring.last - 1, ring.last]
    assert [row.sequence for row in ring.after(0, limit=1)] == [ring.last]
    assert max(len(row.detail) for row in rows) == 300
