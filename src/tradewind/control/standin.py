"""A stand-in for core's registry until it lands: heartbeats and TTL only."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tradewind.model.cell import Cell, CellState
from tradewind.model.heartbeat import Heartbeat
from tradewind.model.view import CellView, GatewayReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What one input did: cells whose view changed, and why the input was refused."""

    changed: tuple[str, ...] = ()
    refused: str = ""
    stale: bool = False


class Registry:
    """Heartbeats in, states out."""

    def __init__(self, *, heartbeat_ttl_s: float) -> None:
        self._ttl_s = heartbeat_ttl_s
        self.cells: dict[str, CellView] = {}
        self._heard_s: dict[str, float] = {}

    def on_heartbeat(self, beat: Heartbeat, now_s: float) -> Update:
        cell_id = beat.cell.cell_id
        old = self.cells.get(cell_id)
        if old is not None and old.incarnation != beat.incarnation and not old.silent and old.incarnation:
            return Update(refused="another live agent owns this cell id")
        if old is not None and old.incarnation == beat.incarnation and beat.sequence <= old.sequence:
            return Update(stale=True)
        evidence = beat.evidence
        draining = old.draining if old else False
        if evidence.reachable is False:
            state, reason = CellState.FAULTED, evidence.reason or "engine not reachable"
        elif not (evidence.reachable and evidence.model_listed and evidence.warmed_up):
            state, reason = CellState.LOADING, evidence.reason or "loading"
        elif draining or evidence.draining:
            state, reason = CellState.DRAINING, "operator's drain"
        else:
            state, reason = CellState.READY, ""
        new = CellView(
            cell=beat.cell,
            state=state,
            incarnation=beat.incarnation,
            sequence=beat.sequence,
            reason=reason,
            draining=draining,
        )
        self.cells[cell_id] = new
        self._heard_s[cell_id] = now_s
        same = old is not None and replace(old, sequence=new.sequence) == new
        return Update(changed=() if same else (cell_id,))

    def on_report(self, report: GatewayReport, now_s: float) -> Update:
        return Update()

    def on_tick(self, now_s: float) -> Update:
        changed = []
        for cell_id, heard_s in self._heard_s.items():
            view = self.cells[cell_id]
            if not view.silent and now_s - heard_s > self._ttl_s:
                self.cells[cell_id] = replace(view, silent=True, state=CellState.FAULTED, reason="silent")
                changed.append(cell_id)
        return Update(changed=tuple(changed))

    def drain(self, cell_id: str, now_s: float) -> Update:
        return self._set_drain(cell_id, draining=True)

    def undrain(self, cell_id: str, now_s: float) -> Update:
        return self._set_drain(cell_id, draining=False)

    def _set_drain(self, cell_id: str, *, draining: bool) -> Update:
        view = self.cells[cell_id]
        state = view.state
        if draining and state is CellState.READY:
            state = CellState.DRAINING
        elif not draining and state is CellState.DRAINING:
            state = CellState.READY
        self.cells[cell_id] = replace(view, draining=draining, state=state, reason="operator's drain" * draining)
        return Update(changed=(cell_id,))

    def forget(self, cell_id: str, now_s: float) -> Update:
        self.cells.pop(cell_id, None)
        self._heard_s.pop(cell_id, None)
        return Update(changed=(cell_id,))

    def restore(self, cells: Iterable[Cell], drains: frozenset[str], now_s: float) -> None:
        for cell in cells:
            self.cells[cell.cell_id] = CellView(
                cell=cell, state=CellState.LOADING, incarnation="", sequence=0, silent=True,
                draining=cell.cell_id in drains, reason="not heard since control started",
            )  # fmt: skip
