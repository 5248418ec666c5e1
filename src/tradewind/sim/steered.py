"""The gateway process in virtual time: the live scorer's weights, pushed to a simulated Envoy or shown to a picker."""

import random
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from tradewind.core.inforce import RoutingInForce, differs
from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.picker import Picker
from tradewind.core.scoring import Scorer
from tradewind.model.decision import Decision, Refusal, RefusalKind
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import Endpoint, Event, ProbeOrder, Routing, WeightRow
from tradewind.model.tuning import Sample, TuningOrder
from tradewind.model.view import CellView, GridView, PathReading, Placed, ViewVersion
from tradewind.sim.envoy import Balancer, MakeBalancer

PUSH_DELAY_S = 0.005  # from a decision to the first request that follows it; measured: 1 to 4 ms
NO_VIEW = GridView(version=ViewVersion(control_id="", incarnation="", counter=0))


class Steer:
    """Scorer and routing in force, as the live gateway's steering joins them; the view comes ready merged."""

    def __init__(self, scorer: Scorer, *, membership_only: bool = False, picks: bool = False) -> None:
        """`membership_only`: a baseline, whose Envoy hears of who is READY and of nothing else."""
        self.scorer = scorer
        self.view = NO_VIEW
        self.rows: tuple[WeightRow, ...] = ()  # as of the newest tick
        self.events: list[Event] = []  # of the whole run
        self.urgent = False  # the next tick should not wait for its second
        self._membership_only = membership_only
        self._told = RoutingInForce(reach={}, models=frozenset())
        self._told.picks = picks
        self._cells: dict[str, CellView] = {}

    def observe_view(self, view: GridView, now_s: float) -> None:
        """A view arrived; what says more than readings makes the next tick urgent."""
        cells = {item.cell.cell_id: item for item in view.cells}
        before, self._cells, self.view = self._cells, cells, view
        changed = cells.keys() != before.keys() or any(differs(before[key], item) for key, item in cells.items())
        self.urgent |= self.scorer.observe_view(view, now_s) or changed

    def observe_path(self, path: PathReading, now_s: float) -> None:
        """A path's probe was judged."""
        self.urgent |= self.scorer.observe_path(path, now_s)

    def observe_outcome(self, outcome: Outcome, now_s: float) -> None:
        """A request ended."""
        self.urgent |= self.scorer.observe_outcome(outcome, now_s)

    def observe_probe(self, order: ProbeOrder, status: int, now_s: float) -> None:
        """A probe that was ordered is answered, or is not (status 0)."""
        self.urgent |= self.scorer.observe_probe(order.cell_id, order, status, now_s)

    def tick(self, now_s: float, rng: random.Random) -> tuple[Routing | None, tuple[ProbeOrder, ...]]:
        """What Envoy should be told, if anything, and what to probe."""
        self.urgent = False
        self.scorer.observe_view(self.view, now_s)
        decision = self.scorer.tick(now_s, rng)
        told = self._told.take(decision, self.view, complete=True, now_s=now_s)
        self.rows = decision.rows
        self.events += (*decision.events, *told.events)
        publish = told.publish if told.membership_changed or not self._membership_only else None
        return publish, decision.probes


class _Others:
    """The pool's cells beside one, by weight."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._cell_ids = [endpoint.cell_id for endpoint in endpoints]
        self._bounds = list(accumulate(endpoint.weight for endpoint in endpoints))

    def drawn(self, rng: random.Random) -> tuple[str, ...]:
        """One of them; () if there is none."""
        return tuple(rng.choices(self._cell_ids, cum_weights=self._bounds)) if self._cell_ids else ()


class WeightsPolicy:
    """`routing: weights`, or a baseline of Envoy's own: pushes to Envoy, which decides."""

    def __init__(self, steer: Steer, make_balancer: MakeBalancer, *, name: str) -> None:
        self.steer = steer
        self.name = name
        self.pushes: list[tuple[float, dict[str, int]]] = []  # when which weights took effect, of the whole run
        self._make_balancer = make_balancer
        self._coming: deque[tuple[float, Routing]] = deque()
        self._pools: dict[str, dict[str, Endpoint]] = {}
        self._balancers: dict[str, Balancer] = {}
        self._others_of: dict[tuple[str, str], _Others] = {}  # by model and cell, of the pools in force
        self._active: dict[str, int] = {}
        self._cell_of: dict[str, str] = {}  # of the requests in flight
        self._number = 0

    @property
    def urgent(self) -> bool:
        """The next tick should not wait for its second."""
        return self.steer.urgent

    def observe_view(self, view: GridView, now_s: float) -> None:
        self.steer.observe_view(view, now_s)

    def observe_path(self, path: PathReading, now_s: float) -> None:
        self.steer.observe_path(path, now_s)

    def tick(self, now_s: float, rng: random.Random) -> Sequence[ProbeOrder]:
        publish, probes = self.steer.tick(now_s, rng)
        if publish is not None:
            self._coming.append((now_s + PUSH_DELAY_S if self._pools else now_s, publish))
        return probes

    def probed(self, order: ProbeOrder, status: int, now_s: float) -> None:
        self.steer.observe_probe(order, status, now_s)

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        """Envoy's choice. `alternatives`: whom a retry would meet, one more drawn by weight."""
        while self._coming and self._coming[0][0] <= now_s:
            self._take(*self._coming.popleft(), rng)
        pool = self._pools.get(request.model)
        if not pool:
            kind = RefusalKind.UNKNOWN_MODEL if pool is None and self._pools else RefusalKind.NO_CELL
            return Refusal(request_id=request.request_id, kind=kind, message="no cell serves this model")
        cell_id = self._balancers[request.model].pick(self._active, rng)
        self._number += 1
        decision_id = f"w{self._number}"
        self._active[cell_id] = self._active.get(cell_id, 0) + 1
        self._cell_of[decision_id] = cell_id
        return Decision(
            decision_id=decision_id,
            request_id=request.request_id,
            policy=self.name,
            cell_id=cell_id,
            address=pool[cell_id].address,
            alternatives=self._others(request.model, cell_id).drawn(rng),
            prompt_tokens=request.prompt_tokens,
        )

    def first_token(self, decision_id: str, now_s: float) -> None:
        """Envoy's choice looks at no token."""

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        cell_id = self._cell_of.pop(decision_id)
        self._active[cell_id] -= 1
        self.steer.observe_outcome(outcome, now_s)

    def outstanding(self) -> Mapping[str, OthersLoad]:
        """Nothing is booked without a picker."""
        return {}

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        """Weights follow what engines report, whoever caused it."""

    def _others(self, model: str, cell_id: str) -> _Others:
        found = self._others_of.get((model, cell_id))
        if found is None:
            rest = [endpoint for endpoint in self._pools[model].values() if endpoint.cell_id != cell_id]
            found = self._others_of[model, cell_id] = _Others(rest)
        return found

    def _take(self, at_s: float, routing: Routing, rng: random.Random) -> None:
        before = self._pools
        self._others_of.clear()
        self._pools = {
            pool.model: {endpoint.cell_id: endpoint for endpoint in pool.endpoints} for pool in routing.pools
        }
        for model, pool in self._pools.items():
            if pool and pool != before.get(model):
                weights = {cell_id: endpoint.weight for cell_id, endpoint in pool.items()}
                balancer = self._balancers.setdefault(model, self._make_balancer())
                balancer.update(weights, rng)
                self.pushes.append((at_s, weights))


class PicksPolicy:
    """`routing: pick` as the live gateway runs it: weights and drains are shown to the picker each tick."""

    def __init__(self, steer: Steer, picker: Picker) -> None:
        self.steer = steer
        self.picker = picker

    @property
    def urgent(self) -> bool:
        """The next tick should not wait for its second."""
        return self.steer.urgent

    def observe_view(self, view: GridView, now_s: float) -> None:
        self.picker.observe_view(view, now_s)
        self.steer.observe_view(view, now_s)

    def observe_path(self, path: PathReading, now_s: float) -> None:
        self.picker.observe_path(path, now_s)
        self.steer.observe_path(path, now_s)

    def tick(self, now_s: float, rng: random.Random) -> Sequence[ProbeOrder]:
        _, probes = self.steer.tick(now_s, rng)
        self.picker.observe_pressure(self.steer.rows, now_s)
        self.picker.expire(now_s)
        return probes

    def probed(self, order: ProbeOrder, status: int, now_s: float) -> None:
        if 200 <= status < 300:
            self.picker.probe_served(order.cell_id, order.prompt_bytes, None, now_s)
        self.steer.observe_probe(order, status, now_s)

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        return self.picker.pick(request, now_s=now_s, rng=rng)

    def first_token(self, decision_id: str, now_s: float) -> None:
        self.picker.first_token(decision_id, now_s)

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        self.steer.observe_outcome(outcome, now_s)
        self.picker.finished(decision_id, outcome, now_s)

    def outstanding(self) -> Mapping[str, OthersLoad]:
        return self.picker.outstanding()

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        self.picker.observe_others(loads, now_s)

    def take_placed(self) -> Sequence[Placed]:
        return self.picker.take_placed()

    def observe_placed(self, placed: Sequence[Placed], now_s: float) -> None:
        self.picker.observe_placed(placed, now_s)

    def set_order(self, order: TuningOrder | None) -> None:
        self.picker.set_order(order)

    def take_samples(self) -> Sequence[Sample]:
        return self.picker.take_samples()
