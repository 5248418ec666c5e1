"""Control tells a gateway what the other gateways have in flight, and nothing of itself."""

from tradewind.control.gateways import LOAD_KEPT_S, GatewayReports
from tradewind.model.view import GatewayReport, PathReading
from tradewind.wire.convert import report_to_pb


def raw(gateway_id: str, **in_flight: int) -> bytes:
    paths = tuple(
        PathReading(cell_id=cell, in_flight=n, waiting_tokens=10 * n, decoding=n - 1) for cell, n in in_flight.items()
    )
    report = GatewayReport(gateway_id=gateway_id, site="s", sequence=1, paths=paths)
    return bytes(report_to_pb(report).SerializeToString())


def test_every_other_gateway_with_its_age() -> None:
    reports = GatewayReports()
    reports.take(raw("g1", a=3, b=0), 1.0)
    reports.take(raw("g2", a=1), 1.5)
    (load,) = reports.loads(but="g2", now_s=2.0)
    assert (load.gateway_id, load.age_s) == ("g1", 1.0)
    assert [(c.cell_id, c.requests, c.waiting_tokens, c.decoding) for c in load.cells] == [("a", 3, 30, 2)]
    assert not reports.loads(but="g1", now_s=1.5 + LOAD_KEPT_S)


def test_other_work_than_before_is_news() -> None:
    reports = GatewayReports()
    seen = [reports.take(raw("g1", **work), 1.0).other_work for work in ({"a": 0}, {"a": 1}, {"a": 1, "b": 0}, {})]
    assert seen == [False, True, False, True]
