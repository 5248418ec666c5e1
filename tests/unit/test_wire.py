"""Model to protobuf and back is the identity; unknown stays unknown."""

import dataclasses
from typing import Any

from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram, Telemetry, UnknownSignal
from tradewind.model.tuning import Sample, TuningOrder, Weights
from tradewind.model.view import CellView, GatewayReport, PathReading, ViewDelta, ViewVersion
from tradewind.wire import convert
from tradewind.wire.pb import tradewind_pb2 as pb

CELL = Cell(
    cell_id="east-0",
    site="east",
    address="127.0.0.1:9001",
    capabilities=Capabilities(models=("m", "m-lora"), lora_models=("m-lora",), max_model_len=0),
    labels=(("rack", "r1"),),
)
TELEMETRY = Telemetry(
    engine=EngineReading(queue_requests=0.0, ttft_s=Histogram(bounds=(0.1, 1.0), counts=(1.0, 2.0, 3.0), total=2.5)),
    engine_age_s=0.25,
    gpu=GpuReading(gpus=2, temperature_c=61.0, xid=0),
    unknown=(UnknownSignal(signal="sm_active_ratio", reason="not exported"),),
    flags=("dcgm_fallback",),
)


def test_heartbeat_round_trip_over_the_wire() -> None:
    evidence = Evidence(reachable=True, model_listed=False)
    beat = Heartbeat(cell=CELL, incarnation="a1", sequence=7, evidence=evidence, telemetry=TELEMETRY)
    wire = convert.heartbeat_to_pb(beat).SerializeToString()
    assert convert.heartbeat_from_pb(pb.Heartbeat.FromString(wire)) == beat


def test_zero_and_unknown_stay_apart() -> None:
    wire = convert.telemetry_to_pb(TELEMETRY)
    assert wire.engine.HasField("queue_requests")
    assert not wire.engine.HasField("running_requests")
    decoded = convert.telemetry_from_pb(wire)
    assert decoded.engine is not None
    assert decoded.engine.queue_requests == 0.0
    assert decoded.engine.running_requests is None
    assert decoded.host is None


def test_an_empty_reading_is_still_a_reading() -> None:
    telemetry = dataclasses.replace(TELEMETRY, engine=EngineReading())
    assert convert.telemetry_from_pb(convert.telemetry_to_pb(telemetry)) == telemetry


def test_view_delta_and_report_round_trip() -> None:
    view = CellView(
        cell=CELL, state=CellState.DRAINING, incarnation="a", sequence=1, draining=True, telemetry=TELEMETRY
    )
    version = ViewVersion(control_id="c", incarnation="i", counter=3)
    delta = ViewDelta(version=version, full=True, cells=(view,), removed=("gone",))
    assert convert.delta_from_pb(convert.delta_to_pb(delta)) == delta
    report = GatewayReport(
        gateway_id="g",
        site="east",
        sequence=2,
        paths=(
            PathReading(cell_id="east-0", rtt_s=0.02, reachable=True, succeeded=3),
            PathReading(cell_id="east-1", slowness_ratio=2.0, prefill_tokens_per_s=900.0, first_tokens=0),
        ),
        weights=(("east-0", 134),),
        pressures=(("east-0", 0.25),),
        notes=(("east-0", "best"),),
    )
    assert convert.report_from_pb(convert.report_to_pb(report)) == report


ORDER = TuningOrder(
    driver="control.a1.0", generation=7, weights=Weights(1.0, 0.0), child=Weights(0.5, 2.0), child_share=0.5
)
SAMPLE = Sample(
    driver="control.a1.0",
    generation=7,
    child=True,
    cell_id="east-0",
    dispatched_s=-1.5,
    finished_s=0.0,
    rtt_s=0.03,
    queue_s=0.0,
    prefill_s=0.2,
    prompt_tokens=900,
    uncached_tokens=400,
    least_uncached_tokens=0,
    ttft_s=0.0,
    e2e_s=1.5,
    itl_s=None,
    failed=False,
)


def test_an_order_and_samples_travel() -> None:
    version = ViewVersion(control_id="c", incarnation="i", counter=3)
    for order in (ORDER, ORDER._replace(child=None, child_share=0.0), None):
        delta = ViewDelta(version=version, full=False, order=order)
        wire = convert.delta_to_pb(delta).SerializeToString()
        assert convert.delta_from_pb(pb.ViewDelta.FromString(wire)) == delta
    report = GatewayReport(gateway_id="g", site="east", sequence=2, samples=(SAMPLE, SAMPLE._replace(ttft_s=None)))
    wire = convert.report_to_pb(report).SerializeToString()
    decoded = convert.report_from_pb(pb.GatewayReport.FromString(wire))
    assert decoded == report
    assert decoded.samples[1].ttft_s is None, "unknown is not the zero of the first"


def test_an_older_version_knows_of_no_order_and_no_samples() -> None:
    """A message without the newer fields, as an older control or gateway writes it."""
    old = pb.ViewDelta(version=pb.ViewVersion(control_id="c", incarnation="i", counter=1), full=True)
    assert convert.delta_from_pb(pb.ViewDelta.FromString(old.SerializeToString())).order is None
    assert convert.report_from_pb(pb.GatewayReport(gateway_id="g", sequence=1)).samples == ()


def test_times_of_a_sample_move_to_the_receivers_clock() -> None:
    moved = SAMPLE.moved(1_000.0)
    assert (moved.dispatched_s, moved.finished_s) == (998.5, 1_000.0)


def test_an_order_that_no_picker_may_follow() -> None:
    assert ORDER.usable
    for bad in (
        ORDER._replace(weights=Weights(float("nan"), 1.0)),
        ORDER._replace(weights=Weights(1.0, -0.1)),
        ORDER._replace(child=Weights(float("inf"), 1.0)),
        ORDER._replace(child_share=1.5),
        ORDER._replace(child_share=float("nan")),
    ):
        assert not bad.usable


def test_every_model_field_has_its_message_field() -> None:
    pairs: list[tuple[Any, Any]] = [(Cell, pb.Cell), (Capabilities, pb.Capabilities), (EngineReading, pb.EngineReading)]
    pairs += [(GpuReading, pb.GpuReading), (Telemetry, pb.Telemetry), (CellView, pb.CellView)]
    for model, message in pairs:
        assert [item.name for item in dataclasses.fields(model)] == [field.name for field in message.DESCRIPTOR.fields]
    for named, message in ((Sample, pb.Sample), (TuningOrder, pb.TuningOrder), (Weights, pb.Weights)):
        assert list(named._fields) == [field.name for field in message.DESCRIPTOR.fields]
