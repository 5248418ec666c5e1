"""The grid as this control knows it: registry, newest telemetry, drains, reports, and who must be told what."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tradewind.control.beats import NO_TELEMETRY, Heard, PeerError, Refused, read_beat
from tradewind.control.events import EventRing
from tradewind.control.feed import Batch, Feed
from tradewind.control.gateways import GatewayReports, GatewayStatus
from tradewind.control.messages import ViewWriter, cell_view, told_at_once, what_lasts
from tradewind.control.prefixes import PrefixKey, parts_of, sound
from tradewind.control.saver import Saver
from tradewind.control.store import Drain, Saved
from tradewind.control.tuning import Tuning
from tradewind.core.lifecycle import CONFLICT_REPEAT_S, Life
from tradewind.core.registry import Registry
from tradewind.model.cell import CellState
from tradewind.model.heartbeat import Heartbeat
from tradewind.model.routing import Event
from tradewind.model.telemetry import Telemetry
from tradewind.model.view import CellView
from tradewind.wire.convert import order_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb

GRACE_S = 2.0  # a control with a saved state publishes after this long even if some known cell was not heard

COUNTERS = (
    "heartbeats",
    "heartbeats_invalid",
    "heartbeats_late",
    "heartbeats_refused",
    "reports",
    "reports_invalid",
    "agent_streams_refused",
    "agent_streams_stuck",
    "gateway_streams_refused",
    "state_changes",
    "ticks_skipped",
    "prefixes_heard",  # prompts that gateways have placed, as they told
    "prefixes_invalid",
    "prefixes_of_other_keys",
    "prefixes_untold",  # that gave way to newer ones before a gateway was told
    "prefix_blocks_relayed",  # to each gateway that is told
)
# Told to the agent and counted; as events they would push everything else out of the ring.
_PER_BEAT = frozenset({"heartbeat.late", "heartbeat.refused", "heartbeat.too-many"})
_REFUSALS = frozenset({"heartbeat.conflict", "heartbeat.refused", "heartbeat.too-many"})
_STATE_EVENTS = frozenset(f"cell.{state.value}" for state in CellState)


class UnknownCell(Exception):
    """An order names a cell that is not in the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus:
    """One cell for people: the view with telemetry as old as it is now."""

    view: CellView
    telemetry: Telemetry
    state_age_s: float | None
    heartbeat_age_s: float | None
    in_flight: int
    conflict: str


class Grid:
    """Single-threaded: no method waits. Time comes from `clock`, or as now_s of the same clock (monotonic)."""

    def __init__(
        self,
        *,
        name: str,
        control_id: str,
        incarnation: str,
        expected: frozenset[str],
        ttl_s: float,
        events: EventRing,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
        draw_key: Callable[[], int],
        tuning: Tuning | None = None,
    ) -> None:
        """`expected`: cells that the grid file names; once all are heard, nothing is held back.

        `draw_key`: 64 random bits, for a grid whose gateways have no prefix key yet.
        """
        self.name = name
        self.control_id = control_id
        self.incarnation = incarnation
        self.events = events
        self.drains: dict[str, Drain] = {}
        self.feeds: list[Feed] = []
        self.publishing = False
        self.tuning = tuning
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._registry = Registry(expected=expected, ttl_s=ttl_s)
        self._awaited: set[str] = set()  # known from the saved state and not heard yet
        self.clock = clock
        self._unix_clock = unix_clock
        self._started_s = clock()
        self._saver: Saver | None = None
        self._ids: set[str] = set()  # of all cells in the registry
        self._heard: dict[str, Heard] = {}
        self._since_s: dict[str, float] = {}  # when a cell came into its state
        self._reports = GatewayReports()
        self._prefix_key = PrefixKey(draw_key)
        self._writer = ViewWriter(control_id=control_id, incarnation=incarnation)

    # Inputs

    def start(self, saved: Saved, saver: Saver) -> None:
        """Take over what was saved; from here on changes are saved by `saver`."""
        if self.tuning is not None:
            self.tuning.start(saved, saver, on_order=self._tell_of_order)
        self._take_over(saved)
        self._saver = saver

    def found_late(self, saved: Saved) -> None:
        """Take over what could not be read at the start; what was heard and ordered since stands."""
        if self.tuning is not None:
            self.tuning.found_late(saved)
        changed = sorted(self._take_over(saved))
        self.events.add("state.found_late", None, f"{len(saved.cells)} cells and {len(saved.drains)} drains")
        for cell_id in changed:
            self._tell_urgently(self._life(cell_id))

    def heartbeat(self, raw: bytes, now_s: float) -> Heartbeat:
        """Take one beat. Raises PeerError when it cannot be read or is refused."""
        self.counters["heartbeats"] += 1
        try:
            beat, heard = read_beat(raw, now_s, known=self._heard)
        except PeerError:
            self.counters["heartbeats_invalid"] += 1
            raise
        cell_id = beat.cell.cell_id
        before = self._registry.life(cell_id)
        events = self._registry.on_heartbeat(beat, now_s)
        self._take_events(events, now_s)
        for event in events:
            if event.name in _REFUSALS:
                self.counters["heartbeats_refused"] += 1
                raise Refused(cell_id, f"{event.name}: {event.detail}")
        after = self._registry.life(cell_id)
        if after is None or after is before or after.sequence != beat.sequence:
            self.counters["heartbeats_late"] += 1
            return beat
        self._ids.add(cell_id)
        self._heard[cell_id] = heard
        self._awaited.discard(cell_id)
        self._tell_of_beat(before, after)
        return beat

    def report(self, raw: bytes, now_s: float, *, feed: Feed | None = None) -> None:
        """Take one gateway report, of the stream that `feed` feeds. Raises PeerError when it cannot be read."""
        try:
            report, placed, other_work = self._reports.take(raw, now_s, of=feed.gateway_id if feed is not None else "")
        except PeerError:
            self.counters["reports_invalid"] += 1
            raise
        self.counters["reports"] += 1
        if feed is not None and not feed.gateway_id:
            feed.gateway_id = report.gateway_id
            self.events.add("gateway.connected", None, report.gateway_id)
        self._tell_of_events(self._registry.on_report(report, now_s), now_s)
        self._settle_key(now_s)
        if other_work:
            for other in self.feeds:
                if other.gateway_id != report.gateway_id:
                    other.loaded()
        if placed:
            self._relay(report.gateway_id, report.prefix_key, placed)
        if self.tuning is not None:
            self.tuning.hear(report.samples, now_s)

    def tick(self, now_s: float) -> None:
        """Let time pass: silence, and the end of holding back."""
        self._tell_of_events(self._registry.on_tick(now_s), now_s)
        if not self.publishing and not self.holding_back_because:
            self.publishing = True
            self.events.add("views.published", None, f"{self.cells} cells known")
            for feed in self.feeds:
                feed.release()

    def drain(self, cell_id: str, *, reason: str) -> CellView:
        """Put a cell under an operator's drain; again is the same as once. Raises UnknownCell."""
        self._life(cell_id)
        if cell_id not in self.drains:
            self.drains[cell_id] = Drain(since_unix_s=self._unix_clock(), reason=reason)
            self._ordered("drain.on", cell_id, reason or "by an operator", self._registry.drain(cell_id, self.clock()))
        return cell_view(self._life(cell_id), self.clock())

    def undrain(self, cell_id: str) -> CellView:
        """End an operator's drain. Raises UnknownCell."""
        self._life(cell_id)
        if self.drains.pop(cell_id, None) is not None:
            self._ordered("drain.off", cell_id, "by an operator", self._registry.undrain(cell_id, self.clock()))
        return cell_view(self._life(cell_id), self.clock())

    def forget(self, cell_id: str) -> CellView:
        """Terminate a cell and forget it, drain included. Raises UnknownCell."""
        self._life(cell_id)
        now_s = self.clock()
        self.drains.pop(cell_id, None)
        self._registry.undrain(cell_id, now_s)
        self._take_events(self._registry.terminate(cell_id, now_s), now_s)
        view = cell_view(self._life(cell_id), self.clock())
        self._registry.forget(cell_id)
        self._ids.discard(cell_id)
        self._heard.pop(cell_id, None)
        self._since_s.pop(cell_id, None)
        self._writer.forget(cell_id)
        self._awaited.discard(cell_id)
        if self._saver is not None:
            self._saver.put_cell(cell_id, None)
            self._saver.put_drain(cell_id, None)
        for feed in self.feeds:
            feed.removed(cell_id)
        return view

    # Views

    @contextmanager
    def feed(self) -> Iterator[Feed]:
        """A feed of one view stream, for as long as the block lasts."""
        feed = Feed(self.clock, known=self._cell_ids)
        if self.publishing:
            feed.release()
        self.feeds.append(feed)
        try:
            yield feed
        finally:
            self.feeds.remove(feed)
            if feed.gateway_id:
                self.events.add("gateway.disconnected", None, feed.gateway_id)

    def message(self, batch: Batch, now_s: float, *, gateway_id: str = "") -> bytes:
        """A serialised ViewDelta for a gateway, with the named cells as they are now.

        A gateway is told the prefix key once it has said by which it goes: it may be the one who knows.
        """
        lives = (self._registry.life(cell_id) for cell_id in batch.cell_ids)
        cells = [(life, self._heard.get(life.cell.cell_id)) for life in lives if life is not None]
        others = self._reports.loads(but=gateway_id, now_s=now_s) if gateway_id else ()
        order = self.tuning.order if self.tuning is not None else None
        told = order_to_pb(order) if order is not None else None
        key = self._prefix_key.value if gateway_id else None
        return self._writer.message(batch, cells, now_s, others=others, order=told, prefix_key=key)

    @property
    def version(self) -> int:
        """Counts the view messages of this incarnation."""
        return self._writer.version

    # Reading, for the admin API and the state file

    @property
    def holding_back_because(self) -> str:
        """Why no view is published yet, or "": missing knowledge must not look like a change."""
        now_s = self.clock()
        if self.publishing:
            return ""
        if not self._registry.ready_to_publish(now_s):
            return "started without a saved state; waiting for agents"
        left_s = self._started_s + GRACE_S - now_s
        if self._awaited and left_s > 0:
            return f"just started: {len(self._awaited)} known cells not heard yet, waiting {left_s:.1f} s more"
        return ""

    def saved(self) -> Saved:
        """What must last, as it is now."""
        cells = {view.cell.cell_id: view for view in self._registry.view(self.clock())}
        saved = Saved(cells=cells, drains=dict(self.drains))
        return self.tuning.saved(saved) if self.tuning is not None else saved

    def statuses(self, *, telemetry: bool = True) -> list[CellStatus]:
        """Every cell, sorted by id."""
        return [self._status(self._life(cell_id), telemetry=telemetry) for cell_id in self._cell_ids()]

    def status(self, cell_id: str) -> CellStatus:
        """One cell. Raises UnknownCell."""
        return self._status(self._life(cell_id), telemetry=True)

    @property
    def cells(self) -> int:
        """How many cells are known."""
        return len(self._ids)

    def cells_by_state(self) -> dict[str, int]:
        counts = dict.fromkeys((state.value for state in CellState), 0)
        for cell_id in self._ids:
            counts[self._life(cell_id).state.value] += 1
        return counts

    def gateways(self) -> list[GatewayStatus]:
        """Gateways that are connected or reported lately, sorted by id."""
        return self._reports.statuses(self.feeds, self.clock(), prefix_key=self._prefix_key.value)

    # Inside

    def _take_over(self, saved: Saved) -> set[str]:
        """Cells and drains of an earlier process. Returns the ids of cells that were changed by it."""
        drained = saved.drains.keys() - self.drains.keys()
        new = saved.cells.keys() - self._ids
        self.drains |= {cell_id: saved.drains[cell_id] for cell_id in drained}
        self._registry.restore(saved.cells.values(), saved.drains)
        self._ids |= new
        self._awaited |= new
        for cell_id in sorted(drained - new):
            self._take_events(self._registry.drain(cell_id, self.clock()), self.clock())
        return new | (drained & self._ids)

    def _tell_of_beat(self, before: Life | None, after: Life) -> None:
        cell_id = after.cell.cell_id
        urgent = before is None or told_at_once(before) != told_at_once(after)
        for feed in self.feeds:
            (feed.changed if urgent else feed.refreshed)(cell_id)
        if before is None or what_lasts(before) != what_lasts(after):
            self._save(after)

    def _settle_key(self, now_s: float) -> None:
        connected = {feed.gateway_id for feed in self.feeds}
        if self._prefix_key.settle(self._reports.prefix_keys(connected=connected, now_s=now_s), now_s):
            self.counters["prefixes_of_other_keys"] += sum(feed.drop_placed() for feed in self.feeds)
            self.events.add("prefixes.key_changed", None, "most gateways go by another one")

    def _relay(self, gateway_id: str, prefix_key: int | None, placed: Sequence[pb.Placed]) -> None:
        """Pass on to all other gateways what this one has placed."""
        self.counters["prefixes_heard"] += len(placed)
        if prefix_key is None or prefix_key != self._prefix_key.value:
            self.counters["prefixes_of_other_keys"] += len(placed)
            return
        fit = sound(placed, self._ids)
        self.counters["prefixes_invalid"] += len(placed) - len(fit)
        feeds = [feed for feed in self.feeds if feed.gateway_id not in ("", gateway_id)]
        parts = list(parts_of(fit)) if feeds else []
        for feed in feeds:
            self.counters["prefixes_untold"] += feed.placed(parts)
            self.counters["prefix_blocks_relayed"] += sum(part.blocks for part in parts)

    def _tell_of_order(self) -> None:
        for feed in self.feeds:
            feed.ordered()

    def _tell_of_events(self, events: Iterable[Event], now_s: float) -> None:
        self._take_events(events, now_s)
        for cell_id in dict.fromkeys(event.cell_id for event in events):
            life = None if cell_id is None else self._registry.life(cell_id)
            if life is not None:
                self._tell_urgently(life)

    def _tell_urgently(self, life: Life) -> None:
        for feed in self.feeds:
            feed.changed(life.cell.cell_id)
        self._save(life)

    def _take_events(self, events: Iterable[Event], now_s: float) -> None:
        for event in events:
            if event.name in _PER_BEAT:
                continue
            if event.cell_id is not None and event.name in _STATE_EVENTS:
                self._since_s[event.cell_id] = now_s
                self.counters["state_changes"] += 1
            self.events.add(event.name, event.cell_id, event.detail)

    def _ordered(self, name: str, cell_id: str, detail: str, events: Iterable[Event]) -> None:
        self.events.add(name, cell_id, detail)
        self._take_events(events, self.clock())
        if self._saver is not None:
            self._saver.put_drain(cell_id, self.drains.get(cell_id))
        self._tell_urgently(self._life(cell_id))

    def _save(self, life: Life) -> None:
        if self._saver is not None:
            self._saver.put_cell(life.cell.cell_id, cell_view(life, self.clock()))

    def _cell_ids(self) -> list[str]:
        return sorted(self._ids)

    def _life(self, cell_id: str) -> Life:
        life = self._registry.life(cell_id)
        if life is None:
            raise UnknownCell(cell_id)
        return life

    def _status(self, life: Life, *, telemetry: bool) -> CellStatus:
        now_s = self.clock()
        cell_id = life.cell.cell_id
        heard, since_s = self._heard.get(cell_id), self._since_s.get(cell_id)
        said_s = life.rival_said_s
        disputed = said_s is not None and now_s - said_s <= 2 * CONFLICT_REPEAT_S
        return CellStatus(
            view=cell_view(life, self.clock()),
            telemetry=heard.telemetry(now_s) if telemetry and heard is not None else NO_TELEMETRY,
            state_age_s=None if since_s is None else now_s - since_s,
            heartbeat_age_s=None if life.heard_s is None else now_s - life.heard_s,
            in_flight=self._registry.in_flight(cell_id, now_s),
            conflict=f"a second live agent ({life.rival}) claims this cell id" if disputed else "",
        )
