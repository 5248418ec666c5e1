"""The grid as this control knows it: registry, newest telemetry, drains, reports, and who must be told what."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tradewind.config.check import ID
from tradewind.control.api import CellReply
from tradewind.control.events import EventRing
from tradewind.control.feed import Batch, Feed
from tradewind.control.saver import Saver
from tradewind.control.standin import Registry, Update
from tradewind.control.store import Drain, Saved
from tradewind.model.cell import Cell, CellState
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.telemetry import Telemetry
from tradewind.model.view import CellView, GatewayReport
from tradewind.wire.convert import cell_view_to_pb, heartbeat_from_pb, report_from_pb, telemetry_from_pb
from tradewind.wire.pb import tradewind_pb2 as pb

MAX_CELLS = 10_000
MAX_GATEWAY_REPORTS = 64
GATEWAY_FORGOTTEN_S = 60.0  # a gateway that has not reported for so long, and is not connected, is dropped from status
GRACE_S = 2.0  # a control that has just started publishes after this long even if some known cell was not heard
SHARED_S = 0.02  # how long a serialised cell may be reused for other gateways

COUNTERS = (
    "heartbeats",
    "heartbeats_invalid",
    "heartbeats_stale",
    "heartbeats_refused",
    "reports",
    "reports_invalid",
    "agent_streams_refused",
    "agent_streams_stuck",
    "gateway_streams_refused",
    "state_changes",
)

NO_TELEMETRY = Telemetry()


class PeerError(Exception):
    """A peer sent what cannot be used: counted, answered, survived."""

    def __init__(self, cell_id: str, message: str) -> None:
        super().__init__(message)
        self.cell_id = cell_id


class UnknownCell(Exception):
    """An order names a cell that is not in the grid."""


@dataclass(slots=True)
class Heard:
    """The newest beat of a cell as it came; decoded in full only when a person asks."""

    message: pb.Heartbeat
    at_s: float
    cell_bytes: bytes
    cell: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """One cell for people: the view with telemetry as old as it is now."""

    view: CellView
    telemetry: Telemetry
    state_age_s: float | None
    heartbeat_age_s: float | None
    conflict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """One gateway for people."""

    report: GatewayReport
    report_age_s: float
    connected: bool
    views_sent: int
    waiting_cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reported:
    report: GatewayReport
    at_s: float


class Grid:
    """Single-threaded: every method returns without waiting. Time comes from `clock` or as now_s (monotonic)."""

    def __init__(
        self,
        *,
        name: str,
        control_id: str,
        incarnation: str,
        heartbeat_ttl_s: float,
        expected: frozenset[str],
        events: EventRing,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.control_id = control_id
        self.incarnation = incarnation
        self.version = 0
        self.events = events
        self.drains: dict[str, Drain] = {}
        self.feeds: list[Feed] = []
        self.publishing = False
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._registry = Registry(heartbeat_ttl_s=heartbeat_ttl_s)
        self._awaited = expected
        self._clock = clock
        self._unix_clock = unix_clock
        self._started_s = clock()
        self._saver: Saver | None = None
        self._heard: dict[str, Heard] = {}
        self._reports: dict[str, _Reported] = {}
        self._states: dict[str, _Stated] = {}
        self._fragments: dict[str, _Fragment] = {}

    # Inputs

    def start(self, saved: Saved, saver: Saver) -> None:
        """Take over what was saved; from here on changes are saved by `saver`."""
        self._saver = saver
        self.drains = dict(saved.drains)
        self._registry.restore(saved.cells.values(), frozenset(saved.drains), self._clock())
        self._awaited |= saved.cells.keys()

    def heartbeat(self, raw: bytes, now_s: float) -> Heartbeat:
        """Take one beat. Raises PeerError when it is refused or cannot be read."""
        self.counters["heartbeats"] += 1
        message, heard = self._read_beat(raw, now_s)
        beat = _without_telemetry(message, heard.cell)
        cell_id = heard.cell.cell_id
        update = self._registry.on_heartbeat(beat, now_s)
        if update.refused:
            self._refuse(cell_id, update.refused)
        if update.stale:
            self.counters["heartbeats_stale"] += 1
            return beat
        self._heard[cell_id] = heard
        self._tell(update)
        for feed in self.feeds:
            feed.refreshed(cell_id)
        return beat

    def report(self, raw: bytes, now_s: float) -> str:
        """Take one gateway report; returns the gateway's id. Raises PeerError when it cannot be read."""
        try:
            report = report_from_pb(pb.GatewayReport.FromString(raw))
        except (DecodeError, ValueError) as error:
            self.counters["reports_invalid"] += 1
            raise PeerError("", f"report cannot be read: {error}") from error
        if not ID.fullmatch(report.gateway_id):
            self.counters["reports_invalid"] += 1
            raise PeerError("", "gateway ids are letters, digits, '.', '_' and '-'")
        self.counters["reports"] += 1
        self._reports.pop(report.gateway_id, None)
        if len(self._reports) >= MAX_GATEWAY_REPORTS:
            del self._reports[next(iter(self._reports))]  # the one that was silent longest
        self._reports[report.gateway_id] = _Reported(report=report, at_s=now_s)
        self._tell(self._registry.on_report(report, now_s))
        return report.gateway_id

    def tick(self, now_s: float) -> None:
        """Let time pass: silence, grace, gateways that went away."""
        self._tell(self._registry.on_tick(now_s))
        if not self.publishing and not self.holding_back_because:
            self.publishing = True
            for feed in self.feeds:
                feed.release()

    def drain(self, cell_id: str, *, reason: str) -> CellReply:
        self._known_or_raise(cell_id)
        if cell_id not in self.drains:
            self.drains[cell_id] = Drain(since_unix_s=self._unix_clock(), reason=reason)
            self._save_drain(cell_id)
            self.events.add("drain.on", cell_id, cause=reason or "operator")
            self._tell(self._registry.drain(cell_id, self._clock()))
        return self._reply(cell_id)

    def undrain(self, cell_id: str) -> CellReply:
        self._known_or_raise(cell_id)
        if self.drains.pop(cell_id, None) is not None:
            self._save_drain(cell_id)
            self.events.add("drain.off", cell_id, cause="operator")
            self._tell(self._registry.undrain(cell_id, self._clock()))
        return self._reply(cell_id)

    def forget(self, cell_id: str) -> CellReply:
        self._known_or_raise(cell_id)
        self.drains.pop(cell_id, None)
        self._heard.pop(cell_id, None)
        self._states.pop(cell_id, None)
        self._registry.forget(cell_id, self._clock())
        if self._saver is not None:
            self._saver.put_cell(cell_id, None)
            self._saver.put_drain(cell_id, None)
        self.version += 1
        self.events.add("cell.forgotten", cell_id, cause="operator")
        for feed in self.feeds:
            feed.removed(cell_id)
        return CellReply(cell_id=cell_id, state=CellState.TERMINATED.value, draining=False, saved=False)

    # Views

    @contextmanager
    def feed(self) -> Iterator[Feed]:
        """A feed of one view stream, for as long as the block lasts."""
        feed = Feed(self._clock, known=self._publishable)
        if self.publishing:
            feed.release()
        self.feeds.append(feed)
        try:
            yield feed
        finally:
            self.feeds.remove(feed)

    def message(self, batch: Batch, now_s: float) -> bytes:
        """A serialised ViewDelta with the named cells as they are now.

        Messages of one type that are concatenated parse as merged (protobuf's encoding guide), so a cell is
        serialised once for all gateways.
        """
        self.version += 1
        head = pb.ViewDelta(
            version=pb.ViewVersion(control_id=self.control_id, incarnation=self.incarnation, counter=self.version),
            full=batch.full,
            removed=batch.removed,
        )
        parts = [head.SerializeToString()]
        for cell_id in batch.cell_ids:
            view = self._registry.cells.get(cell_id)
            if view is not None:
                parts.append(self._serialised(view, now_s))
        return b"".join(parts)

    # Reading, for the admin API and the state file

    @property
    def holding_back_because(self) -> str:
        """Why no view is published yet, or "": missing knowledge must not look like a change."""
        if self.publishing or not self._registry.cells:
            return "" if self.publishing else "no cell is known yet"
        missing = len(self._awaited - self._heard.keys())
        if self._awaited and not missing:
            return ""
        left_s = self._started_s + GRACE_S - self._clock()
        if left_s <= 0:
            return ""
        return f"just started: {missing} known cells not heard yet, waiting {left_s:.1f} s more"

    def saved(self) -> Saved:
        """What must last, as it is now."""
        cells = {cell_id: view.cell for cell_id, view in self._registry.cells.items()}
        return Saved(cells=cells, drains=dict(self.drains))

    def statuses(self, *, telemetry: bool = True) -> list[CellStatus]:
        """Every cell, sorted by id."""
        return [self._status(self._registry.cells[cell_id], telemetry) for cell_id in sorted(self._registry.cells)]

    def status(self, cell_id: str) -> CellStatus:
        """One cell. Raises UnknownCell."""
        self._known_or_raise(cell_id)
        return self._status(self._registry.cells[cell_id], True)

    def cells_by_state(self) -> dict[str, int]:
        counts = dict.fromkeys((state.value for state in CellState), 0)
        for view in self._registry.cells.values():
            counts[view.state.value] += 1
        return counts

    def gateways(self) -> list[GatewayStatus]:
        """Gateways that are connected or reported within the last minute, sorted by id."""
        now_s = self._clock()
        feeds = {feed.gateway_id: feed for feed in self.feeds if feed.gateway_id}
        found = []
        for gateway_id, reported in sorted(self._reports.items()):
            feed = feeds.get(gateway_id)
            age_s = now_s - reported.at_s
            if feed is not None or age_s < GATEWAY_FORGOTTEN_S:
                found.append(
                    GatewayStatus(
                        report=reported.report,
                        report_age_s=age_s,
                        connected=feed is not None,
                        views_sent=feed.sent if feed else 0,
                        waiting_cells=feed.waiting if feed else 0,
                    )
                )
        return found

    # Inside

    def _read_beat(self, raw: bytes, now_s: float) -> tuple[pb.Heartbeat, Heard]:
        try:
            message = pb.Heartbeat.FromString(raw)
        except DecodeError as error:
            self.counters["heartbeats_invalid"] += 1
            raise PeerError("", f"heartbeat cannot be read: {error}") from error
        cell_id = message.cell.cell_id
        if not ID.fullmatch(cell_id) or not message.incarnation or message.sequence < 0:
            self.counters["heartbeats_invalid"] += 1
            raise PeerError("", "a heartbeat needs a cell id of letters, digits, '.', '_', '-' and an incarnation")
        known = self._heard.get(cell_id)
        if known is None and cell_id not in self._registry.cells and len(self._registry.cells) >= MAX_CELLS:
            self._refuse(cell_id, f"control holds its limit of {MAX_CELLS} cells")
        cell_bytes = message.cell.SerializeToString()
        # A cell seldom changes: decode it again only when its bytes do.
        same = known is not None and known.cell_bytes == cell_bytes
        cell = known.cell if known is not None and same else heartbeat_from_pb(pb.Heartbeat(cell=message.cell)).cell
        return message, Heard(message=message, at_s=now_s, cell_bytes=cell_bytes, cell=cell)

    def _refuse(self, cell_id: str, reason: str) -> None:
        self.counters["heartbeats_refused"] += 1
        raise PeerError(cell_id, reason)

    def _tell(self, update: Update) -> None:
        for cell_id in update.changed:
            view = self._registry.cells[cell_id]
            self._note(cell_id, view)
            for feed in self.feeds:
                feed.changed(cell_id)

    def _note(self, cell_id: str, view: CellView) -> None:
        """Keep the trail: an event per change of state, a saved row per change of the cell itself."""
        self._fragments.pop(cell_id, None)
        before = self._states.get(cell_id)
        if before is None or before.view.state is not view.state:
            self.counters["state_changes"] += 1
            was = before.view.state.value if before else ""
            self.events.add("cell.state", cell_id, before=was, after=view.state.value, cause=view.reason)
            self._states[cell_id] = _Stated(view=view, since_s=self._clock())
        if self._saver is not None and (before is None or before.view.cell != view.cell):
            self._saver.put_cell(cell_id, view.cell)

    def _save_drain(self, cell_id: str) -> None:
        if self._saver is not None:
            self._saver.put_drain(cell_id, self.drains.get(cell_id))

    def _serialised(self, view: CellView, now_s: float) -> bytes:
        cell_id = view.cell.cell_id
        made = self._fragments.get(cell_id)
        if made is not None and made.sequence == view.sequence and now_s - made.at_s <= SHARED_S:
            return made.content
        message = cell_view_to_pb(view)
        heard = self._heard.get(cell_id)
        if heard is not None:
            message.telemetry.CopyFrom(heard.message.telemetry)
            _add_age(message.telemetry, now_s - heard.at_s)
        content = pb.ViewDelta(cells=[message]).SerializeToString()
        self._fragments[cell_id] = _Fragment(content=content, sequence=view.sequence, at_s=now_s)
        return content

    def _publishable(self) -> list[str]:
        """Cells heard by this process. What is only remembered is not told: a gateway may know better."""
        return [cell_id for cell_id in sorted(self._registry.cells) if cell_id in self._heard]

    def _known_or_raise(self, cell_id: str) -> None:
        if cell_id not in self._registry.cells:
            raise UnknownCell(cell_id)

    def _reply(self, cell_id: str) -> CellReply:
        state = self._registry.cells[cell_id].state.value
        return CellReply(cell_id=cell_id, state=state, draining=cell_id in self.drains, saved=False)

    def _status(self, view: CellView, telemetry: bool) -> CellStatus:
        now_s = self._clock()
        heard = self._heard.get(view.cell.cell_id)
        stated = self._states.get(view.cell.cell_id)
        reading = NO_TELEMETRY
        if telemetry and heard is not None:
            message = pb.Telemetry()
            message.CopyFrom(heard.message.telemetry)
            _add_age(message, now_s - heard.at_s)
            reading = telemetry_from_pb(message)
        return CellStatus(
            view=view,
            telemetry=reading,
            state_age_s=now_s - stated.since_s if stated else None,
            heartbeat_age_s=now_s - heard.at_s if heard else None,
            conflict="",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    view: CellView
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fragment:
    """One cell as part of a ViewDelta message."""

    content: bytes
    sequence: int
    at_s: float


def _without_telemetry(message: pb.Heartbeat, cell: Cell) -> Heartbeat:
    """The life cycle reads evidence only; telemetry goes to gateways as it came."""
    evidence = message.evidence
    return Heartbeat(
        cell=cell,
        incarnation=message.incarnation,
        sequence=message.sequence,
        evidence=Evidence(
            reachable=evidence.reachable if evidence.HasField("reachable") else None,
            model_listed=evidence.model_listed if evidence.HasField("model_listed") else None,
            warmed_up=evidence.warmed_up if evidence.HasField("warmed_up") else None,
            draining=evidence.draining,
            reason=evidence.reason,
        ),
        telemetry=NO_TELEMETRY,
    )


def _add_age(telemetry: pb.Telemetry, held_s: float) -> None:
    """Ages travel, not times: add how long control has held the reading."""
    if telemetry.HasField("engine_age_s"):
        telemetry.engine_age_s += held_s
    if telemetry.HasField("gpu_age_s"):
        telemetry.gpu_age_s += held_s
