"""Policies by what engines report, with this gateway's own dispatches since then added."""

from collections import deque

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.policies.ranking import least_by

KV_WEIGHT_S = 0.15
KV_MAX = 0.999
PROMPT_ALPHA = 0.02
MOST_SENT = 4_096  # between two readings of one cell


class LeastLoad:
    """GORGO's least-load baseline: requests that the engine says are running or waiting, and what was sent since."""

    name = "least_load"
    in_seconds = False

    def choose(self, ask: Ask) -> Choice:
        return least_by(ask, ask.cells, lambda cell: _load(ask, cell))


class SmgLeastLoad:
    """SMG's rule: (queued + in-flight tokens) / throughput + 0.15 s * k / (1 - k), k the KV fill.

    Throughput is the prefill rate of the hardware class; where the engine's KV fill is unknown, what is in flight
    stands for it. The tokens are those that wait for a first token here, less what the cell's cache is believed to
    hold. SMG itself knows neither: the option "polled" takes, as it does, what the engine's last reading had in its
    queue, and whole prompts sent since.
    """

    in_seconds = False

    def __init__(self, option: str) -> None:
        if option not in ("", "polled"):
            raise ValueError(f"smg_least_load takes polled or nothing, not {option!r}")
        self.name = "smg_least_load:polled" if option else "smg_least_load"
        self._polled = _Polled() if option else None

    def choose(self, ask: Ask) -> Choice:
        polled = self._polled
        if polled is None:
            return least_by(ask, ask.cells, lambda cell: _smg_s(ask, cell, cell.work.waiting_tokens))
        choice = least_by(ask, ask.cells, lambda cell: _smg_s(ask, cell, polled.tokens(cell)))
        polled.sent(choice.ranked[choice.place][1], ask.prompt_tokens)
        return choice


class _Polled:
    """Tokens as a router knows them that polls: the queue of the last reading, and prompts sent since."""

    def __init__(self) -> None:
        self._sent: dict[str, deque[tuple[int, int]]] = {}  # cell -> (number of the dispatch, tokens)
        self._mean_tokens = 0.0  # of a prompt: engines say how many requests wait, not how long they are

    def tokens(self, cell: PickCell) -> float:
        """Believed to be ahead of a new request."""
        sent = self._sent.get(cell.cell_id)
        if sent and sent[-1][0] > cell.work.dispatches:  # another life of the cell: it counts from 0
            sent.clear()
        while sent and sent[0][0] <= cell.sent_before_reading:
            sent.popleft()
        since = sum(tokens for _, tokens in sent) if sent else 0
        return (cell.queue_requests or 0.0) * self._mean_tokens + since

    def sent(self, cell: PickCell, tokens: int) -> None:
        """The cell was chosen. Its dispatch is booked after this."""
        self._mean_tokens += (tokens - self._mean_tokens) * (PROMPT_ALPHA if self._mean_tokens else 1.0)
        self._sent.setdefault(cell.cell_id, deque(maxlen=MOST_SENT)).append((cell.work.dispatches + 1, tokens))


def _load(ask: Ask, cell: PickCell) -> float:
    if cell.running_requests is None:
        return ask.load(cell)
    reported = cell.running_requests + (cell.queue_requests or 0.0)
    return reported + cell.work.dispatches - cell.sent_before_reading


def _smg_s(ask: Ask, cell: PickCell, own_tokens: float) -> float:
    tokens = own_tokens + ask.others_weight * cell.others.prefill_tokens
    fill = cell.kv_fill if cell.kv_fill is not None else cell.work.need_tokens / cell.kv_capacity_tokens
    k = min(KV_MAX, fill)
    return tokens * cell.rates.b_s + KV_WEIGHT_S * k / (1.0 - k)
