"""The cells of one picker by id, and their pools: what views, probes, weights and other gateways say of them."""

from collections.abc import Mapping, Sequence

from tradewind.core.memory import LimitMemory
from tradewind.core.numbers import known, median
from tradewind.core.pick.calibration import Calibration
from tradewind.core.pick.cell import OthersLoad, PickCell
from tradewind.core.pick.eligible import Pool, build_pools
from tradewind.core.pick.prefixes import Forgets
from tradewind.core.pick.rates import RateTable
from tradewind.core.pick.settings import PickSettings
from tradewind.core.pick.slowness import Slowness
from tradewind.core.pick.work import Work
from tradewind.model.routing import WeightRow
from tradewind.model.view import CellView, GridView, PathReading


class PickFleet:
    """Pools are built when they are next asked for after a change."""

    def __init__(self, settings: PickSettings, index: Forgets) -> None:
        self._settings = settings
        self._index = index
        self._cells: dict[str, PickCell] = {}  # sorted by id
        self._views: dict[str, CellView] = {}
        self._gone: dict[str, PickCell] = {}  # left the view with work in flight
        self._table = RateTable(settings.rates, trials=settings.cost.trials)
        self._reach: dict[str, str] = {}
        self._unroutable: frozenset[str] = frozenset()
        self._rtts_s: dict[str, float] = {}
        self._pools: dict[str, Pool] | None = None
        self.calibration = Calibration(settings.learning)
        self.unknown_rtt_s = settings.cost.unknown_rtt_s
        self.seen = False  # a view with cells has come
        self.suspects = False  # some cell is suspected of a limit
        self._limited: list[str] = []  # cells with a learned limit or a suspicion

    def get(self, cell_id: str) -> PickCell | None:
        """A cell of the newest view."""
        return self._cells.get(cell_id)

    def cells(self) -> Sequence[PickCell]:
        """All cells of the newest view, sorted by id."""
        return tuple(self._cells.values())

    def tells(self, cell_id: str) -> bool:
        """Whether its engine's KV events are listened to."""
        cell = self._cells.get(cell_id)
        return cell is not None and cell.told

    def pool(self, model: str) -> Pool | None:
        """The cells of a model; None for a name that nobody has."""
        if self._pools is None:
            self._pools = build_pools(self.cells(), self._settings)
        return self._pools.get(model)

    def peers(self, cell: PickCell) -> Sequence[PickCell]:
        """Other cells that serve a model of this one."""
        mine = set(cell.models)
        return [other for other in self._cells.values() if other is not cell and not mine.isdisjoint(other.models)]

    def changed(self) -> None:
        """What pools are built from has changed."""
        self._pools = None

    def observe_view(self, view: GridView, now_s: float) -> None:
        """Takes the newest view, cell by cell where it differs from the last."""
        self.seen = self.seen or bool(view.cells)
        ids = [cell_view.cell.cell_id for cell_view in view.cells]
        for cell_id in [cell_id for cell_id in self._cells if cell_id not in set(ids)]:
            self._leave(cell_id)
        for cell_view in view.cells:
            cell_id = cell_view.cell.cell_id
            if self._views.get(cell_id) is not cell_view:
                self._views[cell_id] = cell_view
                self._take(cell_view, now_s)
        if ids != list(self._cells):
            self._cells = {cell_id: self._cells[cell_id] for cell_id in ids}
        self.limits_changed()
        self.changed()

    def observe_path(self, reading: PathReading) -> None:
        """Smooths the round trips; a probe that did not come back says nothing of them."""
        rtt_s = known(reading.rtt_s)
        if rtt_s is None or rtt_s < 0 or reading.reachable is False:
            return
        old_s = self._rtts_s.get(reading.cell_id)
        smooth_s = rtt_s if old_s is None else old_s + self._settings.cost.rtt_alpha * (rtt_s - old_s)
        self._rtts_s[reading.cell_id] = smooth_s
        cell = self._cells.get(reading.cell_id)
        if cell is not None:
            cell.rtt_s = smooth_s
            measured = median(c.rtt_s for c in self._cells.values() if c.rtt_s is not None)
            self.unknown_rtt_s = measured if measured is not None else self._settings.cost.unknown_rtt_s

    def observe_pressure(self, rows: Sequence[WeightRow]) -> None:
        """Weights and drains. A drain for lengths alone is not one here: each request is checked by itself."""
        by_id = {row.cell_id: row for row in rows}
        for cell in self._cells.values():
            row = by_id.get(cell.cell_id)
            refuses = row.refuses if row is not None else ()
            drained = row is not None and row.drained and not (row.short or refuses)
            cell.weight = row.weight if row is not None else 1
            if (drained, refuses) != (cell.drained, cell.refuses):
                cell.drained, cell.refuses = drained, refuses
                self.changed()
            if row is not None and drained:
                cell.why = row.reason
            elif cell.ready:
                cell.why = ""

    def observe_others(self, loads: Mapping[str, OthersLoad]) -> None:
        """Other gateways' work in flight."""
        nothing = OthersLoad()
        for cell in self._cells.values():
            cell.observe_others(loads.get(cell.cell_id, nothing), self._settings.others_decay_s)

    def set_reach(self, reach: Mapping[str, str]) -> None:
        """Addresses as this gateway reaches the cells."""
        self._reach = dict(reach)
        for cell in self._cells.values():
            cell.set_address(self._address(self._views[cell.cell_id]))

    def set_unroutable(self, cell_ids: frozenset[str]) -> None:
        """Cells whose address the proxy was not told, or has refused."""
        if cell_ids == self._unroutable:
            return
        self._unroutable = cell_ids
        for cell in self._cells.values():
            cell.unroutable = cell.cell_id in cell_ids
        self.changed()

    def limits_changed(self) -> None:
        """Something was learned of a limit: pools change when a cell becomes limited, or free."""
        limited = [cell.cell_id for cell in self._cells.values() if not cell.learned.quiet]
        self.suspects = any(self._cells[cell_id].learned.suspected for cell_id in limited)
        if limited != self._limited:
            self._limited = limited
            self.changed()

    def on_probe_served(self, cell_id: str, prompt_bytes: int, prompt_tokens: int | None, now_s: float) -> None:
        """A cell served a prompt of this length."""
        cell = self._cells.get(cell_id)
        if cell is not None and not cell.learned.quiet:
            cell.learned.on_probe_served(prompt_bytes, prompt_tokens, now_s)
            self.limits_changed()

    def remembered(self, now_s: float) -> tuple[LimitMemory, ...]:
        """Every limit that was learned, for a restart."""
        cells = (self._cells[cell_id] for cell_id in self._limited)
        found = (cell.learned.remembered(cell.cell_id, cell.engine_start_s, now_s) for cell in cells)
        return tuple(limit for limit in found if limit is not None)

    def refusals(self) -> tuple[tuple[str, int], ...]:
        """How many refusals have taught each limit: what must not be lost, however the process ends."""
        return tuple((cell_id, count) for cell_id in self._limited if (count := self._cells[cell_id].learned.refusals))

    def recall(self, limits: Sequence[LimitMemory], now_s: float) -> None:
        """Goes on from remembered limits of cells that are in the view; another engine will void its own."""
        for limit in limits:
            cell = self._cells.get(limit.cell_id)
            if cell is not None:
                cell.learned.recall(limit, now_s)
                cell.engine_start_s = limit.engine_start_s
        self.limits_changed()

    def _take(self, view: CellView, now_s: float) -> None:
        cell_id, hardware = view.cell.cell_id, view.cell.capabilities.hardware or ""
        cell = self._cells.get(cell_id)
        if cell is None:
            cell = self._gone.pop(cell_id, None)
            if cell is None or cell.incarnation != view.incarnation:
                cell = self._make(cell_id, hardware)
            self._cells[cell_id] = cell
        elif cell.rates.hardware != hardware and not cell.work.requests:
            self.calibration.remove_cell(cell_id, cell.rates)
            cell = self._cells[cell_id] = self._make(cell_id, hardware)
        cell.unroutable = cell_id in self._unroutable
        stale = cell.observe(view, self._address(view))
        cost = self._settings.cost
        cell.work.set_room(cost.kv_start_ratio * cell.kv_capacity_tokens, cost.max_running)
        if stale:
            self._index.forget(cell_id)
        elif cell.untouched_s is not None:
            self._index.trim(cell_id, now_s - cell.untouched_s)

    def _make(self, cell_id: str, hardware: str) -> PickCell:
        rates = self._table.of(hardware)
        slowness = Slowness(self._settings.learning)
        work = Work(rates, slowness, saturation=self._settings.cost.others_saturation)
        cell = PickCell(cell_id, rates, work, self.calibration.add_cell(cell_id, rates, slowness))
        cell.rtt_s = self._rtts_s.get(cell_id)
        return cell

    def _leave(self, cell_id: str) -> None:
        cell = self._cells.pop(cell_id)
        del self._views[cell_id]
        self.calibration.remove_cell(cell_id, cell.rates)
        self._rtts_s.pop(cell_id, None)
        self._index.forget(cell_id)
        # Work in flight on a cell that left is remembered, so that a cell that comes back is not thought idle.
        self._gone = {gone: kept for gone, kept in self._gone.items() if kept.work.requests}
        if cell.work.requests:
            self._gone[cell_id] = cell

    def _address(self, view: CellView) -> str:
        return self._reach.get(view.cell.cell_id, view.cell.address)
