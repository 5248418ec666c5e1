"""Policies by what engines report, with this gateway's own dispatches since then added."""

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.policies.ranking import least_by

KV_WEIGHT_S = 0.15
KV_MAX = 0.999


class LeastLoad:
    """GORGO's least-load baseline: requests that the engine says are running or waiting, and what was sent since."""

    name = "least_load"
    in_seconds = False

    def choose(self, ask: Ask) -> Choice:
        return least_by(ask, ask.cells, lambda cell: _load(ask, cell))


class SmgLeastLoad:
    """SMG's rule: (queued + in-flight uncached tokens) / throughput + 0.15 s * k / (1 - k), k the KV fill.

    Throughput is the prefill rate of the hardware class; where the engine's KV fill is unknown, what is in flight
    stands for it.
    """

    name = "smg_least_load"
    in_seconds = False

    def choose(self, ask: Ask) -> Choice:
        return least_by(ask, ask.cells, lambda cell: _smg_s(ask, cell))


def _load(ask: Ask, cell: PickCell) -> float:
    if cell.running_requests is None:
        return ask.load(cell)
    reported = cell.running_requests + (cell.queue_requests or 0.0)
    return reported + cell.work.dispatches - cell.sent_before_reading


def _smg_s(ask: Ask, cell: PickCell) -> float:
    tokens = cell.work.waiting_tokens + ask.others_weight * cell.others.prefill_tokens
    fill = cell.kv_fill if cell.kv_fill is not None else cell.work.need_tokens / cell.kv_capacity_tokens
    k = min(KV_MAX, fill)
    return tokens * cell.rates.b_s + KV_WEIGHT_S * k / (1.0 - k)
