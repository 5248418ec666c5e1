"""What the tuner and the pickers tell each other: the weights in force, and what became of requests under them."""

from math import isfinite
from typing import NamedTuple


class Weights(NamedTuple):
    """Factors on the two terms of the cost in seconds that a tuner may move; 1 is the physical rate."""

    rtt: float = 1.0
    queue: float = 1.0


PHYSICS = Weights()


class TuningOrder(NamedTuple):
    """Weights for every gateway; while two settings are compared, some requests go by the other one."""

    driver: str  # who gives it; generations of different drivers have no order
    generation: int  # rises with each order of one driver
    weights: Weights
    child: Weights | None = None
    child_share: float = 0.0  # of the requests, drawn by `core.tuner.arms`

    @property
    def usable(self) -> bool:
        """False for what no picker may follow: it came over a wire."""
        weights = (*self.weights, *(self.child or ()))
        return all(isfinite(weight) and weight >= 0.0 for weight in weights) and 0.0 <= self.child_share <= 1.0


class Sample(NamedTuple):
    """One finished request whose pick followed an order. Times in seconds; None = unknown, e.g. without streaming.

    `rtt_s`, `queue_s` and `prefill_s` are what the picker believed of the chosen cell at dispatch, unweighted, the last
    two with the cell's slowness: their sum and the ingest time were the expected time to the first token.
    """

    driver: str
    generation: int
    child: bool
    cell_id: str
    dispatched_s: float  # on the receiver's clock
    finished_s: float
    rtt_s: float
    queue_s: float
    prefill_s: float
    prompt_tokens: int
    uncached_tokens: int  # predicted, on the chosen cell
    least_uncached_tokens: int  # predicted, on the best of the cells: known before the choice
    ttft_s: float | None
    e2e_s: float | None
    itl_s: float | None  # mean
    failed: bool  # the cell broke or was not reached; times are then None

    def moved(self, by_s: float) -> "Sample":
        """On another clock, on which this one's zero is `by_s`. Reports count from the moment they are made."""
        return self._replace(dispatched_s=self.dispatched_s + by_s, finished_s=self.finished_s + by_s)
