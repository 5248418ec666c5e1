"""From a decision and a view to the pools that Envoy is told: what changed is published, what is in doubt is kept.

What is never published: a pool emptied because knowledge is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.core.pools import Router
from tradewind.model.cell import Cell, CellState
from tradewind.model.routing import Event, PoolRouting, Routing, WeightDecision
from tradewind.model.view import CellView, GridView

# A pool emptied by these is emptied by missing knowledge or by all cells dying at once: keep its endpoints.
_DOUBTFUL = frozenset({CellState.FAULTED, CellState.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one decision changed. `publish` None: Envoy keeps what it has."""

    known: frozenset[str]  # every model that has a pool
    publish: Routing | None
    membership_changed: bool
    events: tuple[Event, ...] = ()


class RoutingInForce:
    """The routing of one gateway, as its Envoy has it."""

    def __init__(self, *, reach: Mapping[str, str], models: frozenset[str]) -> None:
        self.reach = reach  # cell id -> address by which this gateway reaches it, where it differs from the agent's
        self.models = models  # from the grid file: pools that exist even while nobody serves them
        self.picks = False  # a picker looks at each request
        self.routing: Routing | None = None
        self.held: frozenset[str] = frozenset()  # models whose pool keeps its last endpoints for want of better
        self._router = Router(reach, models)
        self._router_key: object = None
        self._models_of: dict[str, tuple[str, ...]] = {}  # as last listed while READY

    def restore(self, routing: Routing, cells: tuple[CellView, ...]) -> None:
        """Go on from what was in force before a restart."""
        self.routing = routing
        for view in cells:
            self._models_of[view.cell.cell_id] = view.cell.capabilities.models

    def known_models(self, view: GridView) -> frozenset[str]:
        """Every model that must have a pool: configured, listed now, or last listed by a cell that is still there."""
        for item in view.cells:
            if item.state is CellState.READY and item.cell.capabilities.models:
                self._models_of[item.cell.cell_id] = item.cell.capabilities.models
        present = {item.cell.cell_id for item in view.cells}
        self._models_of = {cell_id: models for cell_id, models in self._models_of.items() if cell_id in present}
        return self.models.union(*self._models_of.values())

    def take(self, decision: WeightDecision, view: GridView, *, complete: bool, now_s: float) -> Told:
        """Project a decision. `complete`: the view may be the first one to go by, since all of it is there."""
        known = self.known_models(view)
        wanted, held = self._hold(self._routes(known).build(decision, view), view)
        changed = self.routing is None or membership(wanted) != membership(self.routing)
        publish = None
        if self._worth_publishing(view, complete=complete) and (decision.push or changed) and wanted != self.routing:
            publish = self.routing = wanted
        return Told(
            known=known,
            publish=publish,
            membership_changed=changed and publish is not None,
            events=self._news(held, now_s),
        )

    def _routes(self, known: frozenset[str]) -> Router:
        key = (self.reach, known, self.picks)
        if self._router_key != key:
            self._router_key = key
            self._router = Router(self.reach, sorted(known), picks=self.picks)
        return self._router

    def _worth_publishing(self, view: GridView, *, complete: bool) -> bool:
        if self.routing is not None:
            return True
        ready = any(item.state is CellState.READY for item in view.cells)
        return complete and (ready or bool(self.models))

    def _hold(self, wanted: Routing, view: GridView) -> tuple[Routing, dict[str, str]]:
        """Give back its endpoints to a pool that would be emptied though nobody asked for it, and say so by model."""
        if self.routing is None:
            return wanted, {}
        cells = {item.cell.cell_id: item for item in view.cells}
        pools = {pool.model: pool for pool in wanted.pools}
        held: dict[str, str] = {}
        for old in self.routing.pools:
            new = pools.get(old.model)
            if new is not None and new.endpoints:
                continue
            kept = tuple(endpoint for endpoint in old.endpoints if _doubtful(cells.get(endpoint.cell_id), old.model))
            if kept:
                pools[old.model] = PoolRouting(model=old.model, endpoints=kept)
                held[old.model] = f"no cell of {old.model} looks usable; the last {len(kept)} stay"
        return Routing(pools=tuple(pools[model] for model in sorted(pools))), held

    def _news(self, held: dict[str, str], now_s: float) -> tuple[Event, ...]:
        """An event per pool that is held and was not at the last tick."""
        fresh = sorted(held.keys() - self.held)
        self.held = frozenset(held)
        return tuple(Event(at_s=now_s, name="pool.held", cell_id=None, detail=held[model]) for model in fresh)


def _doubtful(item: CellView | None, model: str) -> bool:
    """True when the cell's absence from its pool is no explicit wish: not drained, loading, removed or unloaded."""
    if item is None or item.draining or item.state not in _DOUBTFUL:
        return False
    return item.state is CellState.FAULTED or model in item.cell.capabilities.models


def membership(target: Routing) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Who is in which pool at which address, without weights."""
    return tuple((pool.model, tuple((e.cell_id, e.address) for e in pool.endpoints)) for pool in target.pools)


def differs(old: CellView, new: CellView) -> bool:
    """True when somebody should know at once: anything but readings and sequence."""
    return (
        old.state is not new.state
        or old.silent != new.silent
        or old.incarnation != new.incarnation
        or old.telemetry.flags != new.telemetry.flags
        or (old.cell is not new.cell and _described_otherwise(old.cell, new.cell))
    )


def _described_otherwise(old: Cell, new: Cell) -> bool:
    return old.address != new.address or old.capabilities != new.capabilities
