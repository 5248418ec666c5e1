"""The whole grid as one pure machine: cells' lives in, grid views and deltas out."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.core.aging import aged
from tradewind.core.lifecycle import (
    HEARTBEAT_TTL_S,
    Beat,
    Drain,
    Life,
    LifeEvent,
    Terminate,
    Tick,
    in_flight,
    is_failing,
    is_silent,
    step,
    with_word,
)
from tradewind.model.cell import CellState
from tradewind.model.heartbeat import Heartbeat
from tradewind.model.routing import Event
from tradewind.model.telemetry import Telemetry
from tradewind.model.view import CellView, GatewayReport, GridView

MAX_CELLS = 20_000
MAX_REMOVED = 4096  # a stream that lags further behind gets a full view
MAX_GATEWAYS = 1024  # of which a late report is known to be late
GATHER_S = 3.0  # an empty control waits this long after its first heartbeat for the other agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs from an earlier revision."""

    revision: int
    full: bool  # the earlier revision is unknown here: `cells` is everything
    cells: tuple[CellView, ...]
    removed: tuple[str, ...] = ()


class Registry:
    """Cells by id. Every method that moves a cell returns the events of it, for logs and people."""

    def __init__(self, *, expected: Iterable[str] = (), ttl_s: float = HEARTBEAT_TTL_S) -> None:
        self._ttl_s = ttl_s
        self._expected = frozenset(expected)
        self._lives: dict[str, Life] = {}
        self._revisions: dict[str, int] = {}
        self._removed: deque[tuple[int, str]] = deque(maxlen=MAX_REMOVED)
        self._drains: set[str] = set()  # also of cells that are yet to come
        self._sequences: dict[str, int] = {}  # gateway -> newest report; the longest silent first
        self._oldest_delta = 0
        self._first_heard_s: float | None = None
        self._restored = False
        self.revision = 0
        self.observer_blind = False
        self.conflicts_total = 0
        self.late_beats_total = 0

    # --- inputs ---------------------------------------------------------------------------------------------

    def on_heartbeat(self, heartbeat: Heartbeat, now_s: float) -> tuple[Event, ...]:
        """One beat. Events "heartbeat.conflict" and "heartbeat.refused" mean that it was refused."""
        cell_id = heartbeat.cell.cell_id
        life = self._lives.get(cell_id)
        if life is None:
            if len(self._lives) >= MAX_CELLS:
                return (Event(at_s=now_s, name="heartbeat.too-many", cell_id=cell_id, detail=f"{MAX_CELLS} cells"),)
            life = Life(cell=heartbeat.cell, ttl_s=self._ttl_s, drained=cell_id in self._drains)
        if self._first_heard_s is None:
            self._first_heard_s = now_s
        events = self._step(life, Beat(heartbeat=heartbeat), now_s)
        if events:
            self.late_beats_total += sum(event.name == "heartbeat.late" for event in events)
            self.conflicts_total += sum(event.name in ("heartbeat.conflict", "heartbeat.refused") for event in events)
        return events

    def on_report(self, report: GatewayReport, now_s: float) -> tuple[Event, ...]:
        """A gateway's evidence. A late or repeated report is ignored; a gateway that restarted counts from below."""
        newest = self._sequences.get(report.gateway_id)
        if newest is not None and newest - 16 <= report.sequence <= newest:
            return ()
        self._sequences.pop(report.gateway_id, None)
        if len(self._sequences) >= MAX_GATEWAYS:
            del self._sequences[next(iter(self._sequences))]  # the one that has been silent longest
        self._sequences[report.gateway_id] = report.sequence
        for path in report.paths:
            life = self._lives.get(path.cell_id)
            if life is not None:  # verdicts wait for the tick, which alone sees whether all cells look dead at once
                self._lives[path.cell_id] = with_word(life, report.gateway_id, path, now_s)
        return self.on_tick(now_s)

    def on_tick(self, now_s: float) -> tuple[Event, ...]:
        """Lets silence tell; call it a few times per TTL."""
        candidates = [life for life in self._lives.values() if life.serving is CellState.READY]
        blind = len(candidates) >= 2 and all(is_failing(life, now_s) for life in candidates)
        events: list[Event] = []
        if blind != self.observer_blind:
            self.observer_blind = blind
            detail = f"all {len(candidates)} cells look dead at once: states kept" if blind else ""
            name = "observer.blind" if blind else "observer.seeing"
            events.append(Event(at_s=now_s, name=name, cell_id=None, detail=detail))
        tick = Tick(observer_blind=blind)
        for life in list(self._lives.values()):
            events += self._step(life, tick, now_s)
        return tuple(events)

    def drain(self, cell_id: str, now_s: float = 0.0) -> tuple[Event, ...]:
        """No new requests for the cell; holds for a cell that is yet to come, too."""
        self._drains.add(cell_id)
        return self._of(cell_id, Drain(on=True), now_s)

    def undrain(self, cell_id: str, now_s: float = 0.0) -> tuple[Event, ...]:
        """Takes the drain back."""
        self._drains.discard(cell_id)
        return self._of(cell_id, Drain(on=False), now_s)

    def terminate(self, cell_id: str, now_s: float) -> tuple[Event, ...]:
        """The cell is gone for good; it stays visible as TERMINATED until forgotten."""
        return self._of(cell_id, Terminate(), now_s)

    def forget(self, cell_id: str) -> None:
        """Removes a cell from the views."""
        if self._lives.pop(cell_id, None) is None:
            return
        self._revisions.pop(cell_id, None)
        self.revision += 1
        if len(self._removed) == MAX_REMOVED:
            self._oldest_delta = self._removed[0][0]
        self._removed.append((self.revision, cell_id))

    def restore(self, saved: GridView | Iterable[CellView], drains: Iterable[str] = ()) -> None:
        """Cells as last saved: states kept, silent until heard. A cell already heard is left alone."""
        self._drains |= set(drains)
        for view in saved.cells if isinstance(saved, GridView) else saved:
            cell_id = view.cell.cell_id
            if cell_id in self._lives or len(self._lives) >= MAX_CELLS:
                continue
            drained = view.draining or cell_id in self._drains
            if drained:
                self._drains.add(cell_id)
            serving = CellState.READY if view.state is CellState.DRAINING else view.state
            life = Life(
                cell=view.cell,
                ttl_s=self._ttl_s,
                state=view.state,
                reason="restored from the saved view",
                incarnation=view.incarnation,
                sequence=view.sequence,
                serving=serving,
                drained=drained,
            )
            self._put(life)
            self._restored = True

    # --- outputs --------------------------------------------------------------------------------------------

    @property
    def drains(self) -> tuple[str, ...]:
        """Cells under an operator's drain, sorted."""
        return tuple(sorted(self._drains))

    def life(self, cell_id: str) -> Life | None:
        """What is known of one cell."""
        return self._lives.get(cell_id)

    def in_flight(self, cell_id: str, now_s: float) -> int:
        """Requests outstanding at a cell over all gateways."""
        life = self._lives.get(cell_id)
        return 0 if life is None else in_flight(life, now_s)

    def ready_to_publish(self, now_s: float) -> bool:
        """False while publishing could shrink what gateways hold: an empty control waits for its agents."""
        if self._restored:
            return True
        if self._first_heard_s is None:
            return False
        if self._expected and self._expected <= self._lives.keys():
            return True
        return now_s - self._first_heard_s >= GATHER_S

    def view(self, now_s: float) -> tuple[CellView, ...]:
        """All cells, sorted by id, ages advanced by the time they were held here."""
        return tuple(self._view(self._lives[cell_id], now_s) for cell_id in sorted(self._lives))

    def changes(self, since: int, now_s: float) -> Changes:
        """What differs from revision `since`; a revision that is unknown here gets everything."""
        if since <= 0 or since > self.revision or since < self._oldest_delta:
            return Changes(revision=self.revision, full=True, cells=self.view(now_s))
        changed = sorted(cell_id for cell_id, revision in self._revisions.items() if revision > since)
        removed = sorted({cell for revision, cell in self._removed if revision > since and cell not in self._lives})
        cells = tuple(self._view(self._lives[cell_id], now_s) for cell_id in changed)
        return Changes(revision=self.revision, full=False, cells=cells, removed=tuple(removed))

    @staticmethod
    def _view(life: Life, now_s: float) -> CellView:
        held_s = 0.0 if life.heard_s is None else max(0.0, now_s - life.heard_s)
        telemetry = life.telemetry
        if life.heard_s is None:
            telemetry = Telemetry()
        elif held_s:
            telemetry = aged(telemetry, held_s=held_s)
        return CellView(
            cell=life.cell,
            state=life.state,
            incarnation=life.incarnation,
            sequence=life.sequence,
            reason=life.reason,
            silent=is_silent(life, now_s),
            draining=life.drained or (life.evidence is not None and life.evidence.draining),
            telemetry=telemetry,
        )

    # --- inside ---------------------------------------------------------------------------------------------

    def _of(self, cell_id: str, event: LifeEvent, now_s: float) -> tuple[Event, ...]:
        life = self._lives.get(cell_id)
        return () if life is None else self._step(life, event, now_s)

    def _step(self, life: Life, event: LifeEvent, now_s: float) -> tuple[Event, ...]:
        after, events = step(life, event, now_s)
        if after is not life:
            self._put(after)
        return events

    def _put(self, life: Life) -> None:
        before = self._lives.get(life.cell.cell_id)
        self._lives[life.cell.cell_id] = life
        if before is None or _visible(before) != _visible(life):
            self.revision += 1
            self._revisions[life.cell.cell_id] = self.revision


def _visible(life: Life) -> tuple[object, ...]:
    """The parts of a life that a view shows."""
    return (life.cell, life.state, life.incarnation, life.sequence, life.reason, life.silent, life.drained)
