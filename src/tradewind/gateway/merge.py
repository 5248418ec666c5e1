"""Merges the view streams of several controls, cell by cell; knowledge that is merely missing removes nothing.

Rules, in order:

1. Of two records of a cell the one with the newer (incarnation, sequence) wins. Incarnations are random, so
   their order is the order in which this gateway first saw them; a record that its control calls silent never
   starts a newer incarnation over one that still speaks.
2. Equal (incarnation, sequence): a control that is connected beats one that is not, then the smallest id.
3. An operator's drain at any connected control holds.
4. Of tuners' orders, that of the first control in the gateway's list that is connected and has one is followed, so
   that gateways with the same list agree; while none is connected, the last one.
5. A cell leaves only when a control says so explicitly (`removed`, or a full view of the same control
   incarnation without it) and no other connected control still lists it. A control that came back empty has a new
   incarnation and removes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tradewind.core.aging import aged
from tradewind.core.inforce import differs
from tradewind.model.cell import CellState
from tradewind.model.tuning import TuningOrder
from tradewind.model.view import CellView, GridView, ViewDelta, ViewVersion

SAVED = ""  # the control id under which cells from disk are held; never connected
INCARNATIONS_KEPT = 8  # per cell; older ones are forgotten and would count as new
FORGET_AFTER_S = 600.0  # an unreachable cell that no connected control lists is dropped after this


@dataclass(frozen=True, slots=True)
class _Record:
    view: CellView
    received_at_s: float


@dataclass(slots=True)
class _Control:
    """What one control has said; `records` survive its restart."""

    version: ViewVersion | None = None
    connected: bool = False
    full_seen: bool = False
    updated_at_s: float | None = None
    order: TuningOrder | None = None  # of its tuner, as of its newest message
    records: dict[str, _Record] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlStatus:
    """How this gateway stands with one control; ages in seconds, None before the first message."""

    control_id: str
    connected: bool
    full_seen: bool
    age_s: float | None
    cells: int


class ViewMerger:
    """Holds the newest record of every cell from every control. No clock of its own: `now_s` comes in."""

    def __init__(self, gateway_id: str) -> None:
        self._gateway_id = gateway_id
        self._controls: dict[str, _Control] = {}
        self._incarnations: dict[str, list[str]] = {}
        self._counter = 0
        self._merged: dict[str, CellView] = {}  # as last given out; the same object until something is new
        self._sorted: tuple[str, ...] = ()
        self._followed: TuningOrder | None = None  # that was followed last

    def restore(self, cells: Iterable[CellView], *, now_s: float, order: TuningOrder | None = None) -> None:
        """Start from cells and the order kept on disk; any word of a live control outranks them."""
        self._followed = order
        control = self._control(SAVED)
        for view in cells:
            control.records[view.cell.cell_id] = _Record(view, now_s)
            self._rank(view, current=None)
        self._merged.clear()
        self._counter += 1

    def apply(self, control_id: str, delta: ViewDelta, *, now_s: float) -> bool:
        """Take one message of one control's stream; True when the life cycle or the membership changed by it."""
        control = self._control(control_id)
        same_process = control.version is not None and control.version.incarnation == delta.version.incarnation
        listed = {view.cell.cell_id for view in delta.cells}
        gone = set(delta.removed)
        if delta.full and same_process:
            gone |= control.records.keys() - listed
        if not control.connected:
            self._merged.clear()
        control.version, control.connected, control.updated_at_s = delta.version, True, now_s
        control.full_seen = control.full_seen or delta.full
        control.order = delta.order if delta.order is not None and delta.order.usable else None
        changed = False
        for view in delta.cells:
            changed |= self._take(control, view, now_s)
        for cell_id in sorted(gone - listed):
            changed |= self._remove(control, cell_id)
        self._counter += 1
        return changed

    def disconnected(self, control_id: str) -> None:
        """The stream to this control ended; what it said is kept and ages."""
        control = self._controls.get(control_id)
        if control is not None and control.connected:
            control.connected = False
            self._merged.clear()

    def forget(self, unreachable: frozenset[str], *, now_s: float) -> tuple[str, ...]:
        """Drop cells that this gateway cannot reach and that no connected control has listed for ten minutes."""
        dropped = []
        for cell_id in sorted(unreachable & self._incarnations.keys()):
            records = [control.records[cell_id] for control in self._holders(cell_id)]
            live = any(control.connected for control in self._holders(cell_id))
            if records and not live and all(now_s - record.received_at_s > FORGET_AFTER_S for record in records):
                self._erase(cell_id)
                dropped.append(cell_id)
        return tuple(dropped)

    @property
    def ready(self) -> bool:
        """True once at least one control has sent a full view."""
        return any(control.full_seen for control in self._controls.values())

    @property
    def live(self) -> bool:
        """True while at least one control that has sent a full view is connected."""
        return any(control.connected and control.full_seen for control in self._controls.values())

    def order(self, controls: Sequence[str]) -> TuningOrder | None:
        """What to follow, with these controls configured, in this order; None = the policy's own weights."""
        connected = [c for name in controls if (c := self._controls.get(name)) is not None and c.connected]
        if connected:
            self._followed = next((control.order for control in connected if control.order is not None), None)
        return self._followed

    def view(self, *, now_s: float) -> GridView:
        """The merged view. A cell with news has ages as of `now_s`; one without is the same object as before."""
        if len(self._sorted) != len(self._incarnations):
            self._sorted = tuple(sorted(self._incarnations))
        merged = self._merged
        for cell_id in self._sorted:
            if cell_id not in merged:
                merged[cell_id] = self._merge(cell_id, now_s)
        cells = tuple([merged[cell_id] for cell_id in self._sorted])
        version = ViewVersion(control_id=self._gateway_id, incarnation="merged", counter=self._counter)
        return GridView(version=version, cells=cells)

    def cells_now(self, *, now_s: float) -> tuple[CellView, ...]:
        """The merged cells with every age as of `now_s`, for people."""
        return tuple(self._merge(cell_id, now_s) for cell_id in sorted(self._incarnations))

    def controls(self, *, now_s: float) -> tuple[ControlStatus, ...]:
        """One row per control heard so far, sorted by id; the saved view is not a control."""
        return tuple(
            ControlStatus(
                control_id=control_id,
                connected=control.connected,
                full_seen=control.full_seen,
                age_s=None if control.updated_at_s is None else now_s - control.updated_at_s,
                cells=len(control.records),
            )
            for control_id, control in sorted(self._controls.items())
            if control_id != SAVED
        )

    def _control(self, control_id: str) -> _Control:
        if control_id not in self._controls:
            self._controls[control_id] = _Control()
            self._controls = dict(sorted(self._controls.items()))
        return self._controls[control_id]

    def _take(self, control: _Control, view: CellView, now_s: float) -> bool:
        """Hold a record if it is no older than the one held; True when routing should look at once."""
        cell_id = view.cell.cell_id
        winner = self._winner(cell_id)
        before = winner.view if winner else None
        self._rank(view, current=before, contested=self._spoken_for(control, winner, cell_id))
        held = control.records.get(cell_id)
        if held is not None and self._order(view) < self._order(held.view):
            return False
        control.records[cell_id] = _Record(view, now_s)
        self._merged.pop(cell_id, None)
        winner = self._winner(cell_id)
        assert winner is not None
        drain_moved = view.draining != (held is not None and held.view.draining)
        return drain_moved or before is None or differs(before, winner.view)

    def _rank(self, view: CellView, *, current: CellView | None, contested: bool = False) -> None:
        """Give an incarnation its place; "" (a cell nobody has heard a heartbeat of) is the oldest.

        `contested`: another live control stands for the `current` record; a silent newcomer then waits behind it.
        """
        seen = self._incarnations.setdefault(view.cell.cell_id, [])
        if view.incarnation in seen:
            if current is not None and current.silent and not view.silent:
                seen.remove(view.incarnation)  # it speaks and the one we took for newer does not
                seen.append(view.incarnation)
            return
        stale = contested and current is not None and view.silent and not current.silent
        if stale or not view.incarnation:
            seen.insert(0, view.incarnation)
        else:
            seen.append(view.incarnation)
            del seen[:-INCARNATIONS_KEPT]

    def _spoken_for(self, control: _Control, winner: _Record | None, cell_id: str) -> bool:
        """Whether another live control holds what wins now. Records from disk, and this control's own older word, do
        not keep out what it says now."""
        if winner is None:
            return False
        incarnation = winner.view.incarnation
        return any(
            other is not control and other.connected and other.records[cell_id].view.incarnation == incarnation
            for other in self._holders(cell_id)
        )

    def _order(self, view: CellView) -> tuple[int, int]:
        seen = self._incarnations[view.cell.cell_id]
        rank = seen.index(view.incarnation) if view.incarnation in seen else -1
        return rank, view.sequence

    def _holders(self, cell_id: str) -> list[_Control]:
        """Controls with a record of the cell, by control id."""
        return [control for control in self._controls.values() if cell_id in control.records]

    def _winner(self, cell_id: str) -> _Record | None:
        holders = self._holders(cell_id)
        if len(holders) == 1:
            return holders[0].records[cell_id]
        best: tuple[tuple[int, int], bool] | None = None
        record = None
        for control in holders:  # the first of equals stays
            candidate = control.records[cell_id]
            key = (self._order(candidate.view), control.connected)
            if best is None or key > best:
                best, record = key, candidate
        return record

    def _merge(self, cell_id: str, now_s: float) -> CellView:
        record = self._winner(cell_id)
        assert record is not None, f"{cell_id} is ranked but nobody holds it"
        held_s = max(0.0, now_s - record.received_at_s)
        view = record.view
        if held_s > 0.0:
            view = replace(view, telemetry=aged(view.telemetry, held_s=held_s))
        if not view.draining and self._drained(cell_id):
            view = replace(view, draining=True)
        if view.draining and view.state is CellState.READY:
            view = replace(view, state=CellState.DRAINING)
        return view

    def _remove(self, control: _Control, cell_id: str) -> bool:
        """Drop this control's record, and the cell unless another connected control lists it; True if the cell left."""
        control.records.pop(cell_id, None)
        self._merged.pop(cell_id, None)
        if cell_id not in self._incarnations or any(other.connected for other in self._holders(cell_id)):
            return False
        self._erase(cell_id)
        return True

    def _erase(self, cell_id: str) -> None:
        for control in self._controls.values():
            control.records.pop(cell_id, None)
        self._incarnations.pop(cell_id, None)
        self._merged.pop(cell_id, None)
        self._sorted = ()

    def _drained(self, cell_id: str) -> bool:
        return any(c.connected and c.records[cell_id].view.draining for c in self._holders(cell_id))
