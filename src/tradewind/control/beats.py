"""Reads heartbeats as they come: the life cycle needs the evidence, telemetry stays as it is until someone asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tradewind.config.check import ID
from tradewind.model.cell import Cell
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import Telemetry
from tradewind.wire.convert import heartbeat_from_pb, telemetry_from_pb
from tradewind.wire.pb import tradewind_pb2 as pb

NO_TELEMETRY = Telemetry()
MAX_BEAT_BYTES = 256 * 1024  # of a cell with a thousand adapters some 100 KB; all gateways are told what is in it
MAX_INCARNATION_CHARS = 64
MAX_REASON_CHARS = 300


class PeerError(Exception):
    """A peer sent what cannot be used: counted, answered, survived."""

    def __init__(self, cell_id: str, message: str) -> None:
        super().__init__(message)
        self.cell_id = cell_id


class Refused(PeerError):
    """The beat is well formed, and its claim is not accepted."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The newest beat of a cell as it came, and when (control's monotonic clock)."""

    message: pb.Heartbeat
    at_s: float
    cell_bytes: bytes
    cell: Cell

    def fill_telemetry(self, telemetry: pb.Telemetry, now_s: float) -> None:
        """Ages travel, not times: copy the telemetry, with the time added that control has held it."""
        telemetry.CopyFrom(self.message.telemetry)
        held_s = max(0.0, now_s - self.at_s)
        if telemetry.HasField("engine_age_s"):
            telemetry.engine_age_s += held_s
        if telemetry.HasField("gpu_age_s"):
            telemetry.gpu_age_s += held_s
        if telemetry.cache.HasField("untouched_s"):
            telemetry.cache.untouched_s += held_s

    def telemetry(self, now_s: float) -> Telemetry:
        """The same, decoded."""
        telemetry = pb.Telemetry()
        self.fill_telemetry(telemetry, now_s)
        return telemetry_from_pb(telemetry)


def read_beat(raw: bytes, now_s: float, *, known: Mapping[str, Heard]) -> tuple[Heartbeat, Heard]:
    """Parse one beat; the Heartbeat carries no telemetry. Raises PeerError."""
    if len(raw) > MAX_BEAT_BYTES:
        raise PeerError("", f"a heartbeat of {len(raw)} bytes is too large, at most {MAX_BEAT_BYTES} are read")
    try:
        message = pb.Heartbeat.FromString(raw)
    except DecodeError as error:
        raise PeerError("", "a heartbeat cannot be read") from error
    cell_id = message.cell.cell_id
    if not ID.fullmatch(cell_id):
        raise PeerError("", "a heartbeat needs a cell id of letters, digits, '.', '_' and '-'")
    if not 0 < len(message.incarnation) <= MAX_INCARNATION_CHARS or message.sequence < 0:
        raise PeerError(cell_id, f"a heartbeat needs an incarnation of 1..{MAX_INCARNATION_CHARS} characters")
    cell_bytes = message.cell.SerializeToString()
    before = known.get(cell_id)
    # A cell seldom changes: it is decoded again only when its bytes differ.
    if before is not None and before.cell_bytes == cell_bytes:
        cell = before.cell
    else:
        cell = heartbeat_from_pb(pb.Heartbeat(cell=message.cell)).cell
    beat = Heartbeat(
        cell=cell,
        incarnation=message.incarnation,
        sequence=message.sequence,
        evidence=_evidence(message.evidence),
        telemetry=NO_TELEMETRY,
    )
    return beat, Heard(message=message, at_s=now_s, cell_bytes=cell_bytes, cell=cell)


def _evidence(message: pb.Evidence) -> Evidence:
    return Evidence(
        reachable=message.reachable if message.HasField("reachable") else None,
        model_listed=message.model_listed if message.HasField("model_listed") else None,
        warmed_up=message.warmed_up if message.HasField("warmed_up") else None,
        draining=message.draining,
        reason=message.reason[:MAX_REASON_CHARS],
    )
