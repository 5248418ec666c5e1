"""From view and evidence to what Envoy is told: passive, synchronous, no clock of its own.

What is never published: anything before there is knowledge worth it (a saved view, or a full view with a READY cell or
a configured model), and a pool emptied because knowledge is missing.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tradewind.core.inforce import RoutingInForce
from tradewind.core.memory import LimitMemory, Memory
from tradewind.core.scoring import Scorer, WeightScorer
from tradewind.gateway.merge import ViewMerger
from tradewind.gateway.saved import SavedState, without_telemetry
from tradewind.model.routing import Event, Routing, WeightDecision
from tradewind.model.tuning import TuningOrder
from tradewind.model.view import GridView, ViewDelta


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
        self.told = RoutingInForce(reach=reach, models=models)
        self._rng = rng
        self._saved_weights: dict[str, int] = {}  # of cells whose telemetry this process has not seen yet

    @property
    def in_force(self) -> Routing | None:
        """What Envoy has; None before the first publication."""
        return self.told.routing

    def restore(self, state: SavedState, *, now_s: float) -> Routing:
        """Start from disk; the routing to publish at once."""
        self.merger.restore(state.cells, now_s=now_s, order=state.order)
        self.told.restore(state.routing, state.cells)
        if isinstance(self.scorer, WeightScorer):
            self.scorer.recall(state.memory, frozenset(view.cell.cell_id for view in state.cells), now_s)
        for pool in state.routing.pools:
            self._saved_weights.update({endpoint.cell_id: endpoint.weight for endpoint in pool.endpoints})
        return state.routing

    def saved_state(
        self,
        gateway_id: str,
        *,
        limits: tuple[LimitMemory, ...] = (),
        order: TuningOrder | None = None,
        now_s: float,
    ) -> SavedState | None:
        """What to keep on disk, with a picker's `limits` and `order`; None while there is nothing worth it."""
        if self.in_force is None:
            return None
        cells = without_telemetry(self.merger.view(now_s=now_s).cells)
        # The other scorers forget within seconds.
        memory = self.scorer.remembered(now_s) if isinstance(self.scorer, WeightScorer) else Memory()
        memory = replace(memory, limits=limits)
        return SavedState(gateway_id=gateway_id, cells=cells, routing=self.in_force, memory=memory, order=order)

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
        told = self.told.take(decision, view, complete=self.merger.ready, now_s=now_s)
        return Step(
            decision=decision,
            view=view,
            known=told.known,
            publish=told.publish,
            membership_changed=told.membership_changed,
            events=(*decision.events, *told.events),
        )

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
