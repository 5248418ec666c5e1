"""A policy with the CPU time of what it does counted: per request, and per second whatever the load."""

import random
from collections.abc import Mapping, Sequence
from time import thread_time

from tradewind.core.pick.cell import OthersLoad
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import ProbeOrder
from tradewind.model.view import GridView, PathReading
from tradewind.sim.policy import Policy, Ticks


class Metered:
    """Decides as the policy inside does. Times are CPU seconds of this thread."""

    def __init__(self, inner: Policy) -> None:
        self.decisions = 0
        self.deciding_s = 0.0
        self.learning_s = 0.0  # first tokens and outcomes
        self.hearing_s = 0.0  # views, paths, other gateways, ticks
        self._inner = inner
        self._ticks = inner if isinstance(inner, Ticks) else None

    @property
    def urgent(self) -> bool:
        return self._ticks is not None and self._ticks.urgent

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        begin_s = thread_time()
        found = self._inner.pick(request, now_s=now_s, rng=rng)
        self.deciding_s += thread_time() - begin_s
        self.decisions += 1
        return found

    def first_token(self, decision_id: str, now_s: float) -> None:
        begin_s = thread_time()
        self._inner.first_token(decision_id, now_s)
        self.learning_s += thread_time() - begin_s

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        begin_s = thread_time()
        self._inner.finished(decision_id, outcome, now_s)
        self.learning_s += thread_time() - begin_s

    def observe_view(self, view: GridView, now_s: float) -> None:
        begin_s = thread_time()
        self._inner.observe_view(view, now_s)
        self.hearing_s += thread_time() - begin_s

    def observe_path(self, path: PathReading, now_s: float) -> None:
        begin_s = thread_time()
        self._inner.observe_path(path, now_s)
        self.hearing_s += thread_time() - begin_s

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        begin_s = thread_time()
        self._inner.observe_others(loads, now_s)
        self.hearing_s += thread_time() - begin_s

    def outstanding(self) -> Mapping[str, OthersLoad]:
        return self._inner.outstanding()

    def tick(self, now_s: float, rng: random.Random) -> Sequence[ProbeOrder]:
        if self._ticks is None:
            return ()
        begin_s = thread_time()
        orders = self._ticks.tick(now_s, rng)
        self.hearing_s += thread_time() - begin_s
        return orders

    def probed(self, order: ProbeOrder, status: int, now_s: float) -> None:
        if self._ticks is not None:
            self._ticks.probed(order, status, now_s)
