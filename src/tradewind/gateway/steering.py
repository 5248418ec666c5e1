"""From view and evidence to what Envoy is told: passive, synchronous, no clock of its own.

What is never published: anything before there is knowledge worth it (a saved view, or a full view with a READY cell or
a configured model), and a pool emptied because knowledge is missing.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.core.memory import LimitMemory, Memory
from tradewind.core.scoring import Router, Scorer, WeightScorer
from tradewind.gateway.merge import ViewMerger
from tradewind.gateway.saved import SavedState, without_telemetry
from tradewind.model.cell import CellState
from tradewind.model.routing import Event, PoolRouting, Routing, WeightDecision
from tradewind.model.view import CellView, GridView, ViewDelta

# A pool emptied by these is emptied by missing knowledge or by all cells dying at once: keep its endpoints.
_DOUBTFUL = frozenset({CellState.FAULTED, CellState.READY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one tick concluded. `publish` None: Envoy keeps what it has."""

    decision: WeightDecision
    view: GridView
    known: frozenset[str]  # every model that has a pool
    publish: Routing | None
    membership_changed: bool
    events: tuple[Event, ...] = ()


class Steering:
    """Owns the merged view, the scorer and the routing in force of one gateway."""

    def __init__(
        self,
        *,
        merger: ViewMerger,
        scorer: Scorer,
        rng: random.Random,
        reach: Mapping[str, str],
        models: frozenset[str],
    ) -> None:
        self.merger = merger
        self.scorer = scorer
        self.reach = reach
        self.picks = False  # a picker looks at each request
        self.models = models  # from the grid file: pools that exist even while nobody serves them
        self.in_force: Routing | None = None
        self._rng = rng
        self._router = Router(reach, models)
        self._router_key: object = None
        self._models_of: dict[str, tuple[str, ...]] = {}  # as last listed while READY
        self._saved_weights: dict[str, int] = {}  # of cells whose telemetry this process has not seen yet
        self.held: frozenset[str] = frozenset()  # models whose pool keeps its last endpoints for want of better

    def restore(self, state: SavedState, *, now_s: float) -> Routing:
        """Start from disk; the routing to publish at once."""
        self.merger.restore(state.cells, now_s=now_s)
        self.in_force = state.routing
        if isinstance(self.scorer, WeightScorer):
            self.scorer.recall(state.memory, frozenset(view.cell.cell_id for view in state.cells), now_s)
        for view in state.cells:
            self._models_of[view.cell.cell_id] = view.cell.capabilities.models
        for pool in state.routing.pools:
            self._saved_weights.update({endpoint.cell_id: endpoint.weight for endpoint in pool.endpoints})
        return state.routing

    def saved_state(self, gateway_id: str, *, limits: tuple[LimitMemory, ...] = (), now_s: float) -> SavedState | None:
        """What to keep on disk, with a picker's `limits`; None while there is nothing worth it."""
        if self.in_force is None:
            return None
        cells = without_telemetry(self.merger.view(now_s=now_s).cells)
        # The other scorers forget within seconds.
        memory = self.scorer.remembered(now_s) if isinstance(self.scorer, WeightScorer) else Memory()
        memory = replace(memory, limits=limits)
        return SavedState(gateway_id=gateway_id, cells=cells, routing=self.in_force, memory=memory)

    def known_models(self, view: GridView) -> frozenset[str]:
        """Every model that must have a pool: configured, listed now, or last listed by a cell that is still there."""
        for item in view.cells:
            if item.state is CellState.READY and item.cell.capabilities.models:
                self._models_of[item.cell.cell_id] = item.cell.capabilities.models
        present = {item.cell.cell_id for item in view.cells}
        self._models_of = {cell_id: models for cell_id, models in self._models_of.items() if cell_id in present}
        return self.models.union(*self._models_of.values())

    def observe(self, control_id: str, delta: ViewDelta, *, now_s: float) -> bool:
        """Take one message of a view stream; True when the next tick should not wait for its second."""
        changed = self.merger.apply(control_id, delta, now_s=now_s)
        urgent = self.scorer.observe_view(self.merger.view(now_s=now_s), now_s)
        return changed or urgent

    def tick(self, *, now_s: float) -> Step:
        """One scoring tick: observe the merged view, decide, project, and say whether to publish."""
        view = self.merger.view(now_s=now_s)
        self.scorer.observe_view(view, now_s)
        decision = self._as_before(self.scorer.tick(now_s, self._rng))
        known = self.known_models(view)
        wanted, held = self._hold(self._routes(known).build(decision, view), view)
        changed = self.in_force is None or membership(wanted) != membership(self.in_force)
        publish = None
        if self._worth_publishing(view) and (decision.push or changed) and wanted != self.in_force:
            publish = self.in_force = wanted
        return Step(
            decision=decision,
            view=view,
            known=known,
            publish=publish,
            membership_changed=changed and publish is not None,
            events=(*decision.events, *self._news(held, now_s)),
        )

    def _routes(self, known: frozenset[str]) -> Router:
        key = (self.reach, known, self.picks)
        if self._router_key != key:
            self._router_key = key
            self._router = Router(self.reach, sorted(known), picks=self.picks)
        return self._router

    def _as_before(self, decision: WeightDecision) -> WeightDecision:
        """After a restart, a cell that is still blind keeps the weight on disk unless evidence lowers it."""
        for row in decision.rows if self._saved_weights else ():
            if not row.blind:
                self._saved_weights.pop(row.cell_id, None)
        if not self._saved_weights:
            return decision
        saved = self._saved_weights
        rows = (
            replace(row, weight=min(row.weight, saved[row.cell_id])) if row.cell_id in saved else row
            for row in decision.rows
        )
        return replace(decision, rows=tuple(rows))

    def _worth_publishing(self, view: GridView) -> bool:
        if self.in_force is not None:
            return True
        ready = any(item.state is CellState.READY for item in view.cells)
        return self.merger.ready and (ready or bool(self.models))

    def _hold(self, wanted: Routing, view: GridView) -> tuple[Routing, dict[str, str]]:
        """Give back its endpoints to a pool that would be emptied though nobody asked for it, and say so by model."""
        if self.in_force is None:
            return wanted, {}
        cells = {item.cell.cell_id: item for item in view.cells}
        pools = {pool.model: pool for pool in wanted.pools}
        held: dict[str, str] = {}
        for old in self.in_force.pools:
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
