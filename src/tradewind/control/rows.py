"""From what control holds to the admin API's documents; telemetry is decoded here, when a person asks, not per beat."""

from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime

from tradewind.control.api import (
    CellRow,
    DrainRow,
    GatewayRow,
    PathRow,
    UnknownRow,
)
from tradewind.control.gateways import GatewayStatus
from tradewind.control.grid import CellStatus
from tradewind.control.store import Drain
from tradewind.model.telemetry import CacheReading, EngineReading, GpuReading, Histogram, HostReading, Telemetry

_READINGS: tuple[tuple[str, type], ...] = (
    ("engine", EngineReading),
    ("gpu", GpuReading),
    ("host", HostReading),
    ("cache", CacheReading),
)


def rfc3339(unix_s: float) -> str:
    """A wall-clock time for people, in UTC to the millisecond; "" for one that no calendar has, as on a bad disk."""
    try:
        return datetime.fromtimestamp(unix_s, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def cell_row(status: CellStatus) -> CellRow:
    view, telemetry = status.view, status.telemetry
    cell, able = view.cell, view.cell.capabilities
    return CellRow(
        cell_id=cell.cell_id,
        site=cell.site,
        address=cell.address,
        state=view.state.value,
        reason=view.reason,
        silent=view.silent,
        draining=view.draining,
        incarnation=view.incarnation,
        sequence=view.sequence,
        state_age_s=status.state_age_s,
        heartbeat_age_s=status.heartbeat_age_s,
        engine_age_s=telemetry.engine_age_s,
        gpu_age_s=telemetry.gpu_age_s,
        models=list(able.models),
        lora_models=list(able.lora_models),
        max_model_len=able.max_model_len,
        kv_capacity_tokens=able.kv_capacity_tokens,
        engine=able.engine,
        engine_version=able.engine_version,
        hardware=able.hardware,
        labels=dict(cell.labels),
        signals=dict(signals(telemetry)),
        unknown=[UnknownRow(signal=item.signal, reason=item.reason) for item in telemetry.unknown],
        flags=list(telemetry.flags),
        in_flight=status.in_flight,
        conflict=status.conflict,
    )


def signals(telemetry: Telemetry) -> Iterator[tuple[str, float | bool | None]]:
    """Every scalar reading as ("engine.queue_requests", value or None); a missing group is all unknown."""
    for group, kind in _READINGS:
        reading = getattr(telemetry, group)
        for item in fields(kind):
            value = getattr(reading, item.name, None)
            if isinstance(value, Histogram):
                yield f"{group}.{item.name}_count", value.counts[-1] if value.counts else None
            else:
                yield f"{group}.{item.name}", value


def drain_row(cell_id: str, drain: Drain) -> DrainRow:
    return DrainRow(cell_id=cell_id, since=rfc3339(drain.since_unix_s), reason=drain.reason)


def gateway_row(status: GatewayStatus) -> GatewayRow:
    report = status.report
    return GatewayRow(
        gateway_id=report.gateway_id,
        site=report.site,
        connected=status.connected,
        report_sequence=report.sequence,
        report_age_s=status.report_age_s,
        views_sent=status.views_sent,
        waiting_cells=status.waiting_cells,
        waiting_blocks=status.waiting_blocks,
        prefixes_shared=status.prefixes_shared,
        paths=[
            PathRow(
                cell_id=path.cell_id,
                rtt_s=path.rtt_s,
                jitter_s=path.jitter_s,
                reachable=path.reachable,
                succeeded=path.succeeded,
                failed=path.failed,
                in_flight=path.in_flight,
                slowness_ratio=path.slowness_ratio,
                prefill_tokens_per_s=path.prefill_tokens_per_s,
                first_tokens=path.first_tokens,
            )
            for path in report.paths
        ],
        weights=dict(report.weights),
        pressures=dict(report.pressures),
        notes=dict(report.notes),
    )
