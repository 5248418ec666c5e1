"""Where weights may be: bounds, and a bound on their ratio (tuner study, section 1)."""

from dataclasses import dataclass
from math import isfinite

from tradewind.core.numbers import clip
from tradewind.model.tuning import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Outside of it the study found nothing good: beyond a ratio of 5 the tail runs off a cliff."""

    rtt: tuple[float, float] = (0.05, 2.0)
    queue: tuple[float, float] = (0.2, 2.0)
    most_ratio: float = 4.0  # rtt over queue

    def clipped(self, weights: Weights) -> Weights:
        """The nearest inside; a ratio too high costs the RTT weight."""
        queue = clip(weights.queue, *self.queue)
        return Weights(clip(weights.rtt, self.rtt[0], min(self.rtt[1], self.most_ratio * queue)), queue)

    def problem(self, weights: Weights) -> str:
        """Why these weights are none, "" if they are."""
        for name, value, (low, high) in (("rtt", weights.rtt, self.rtt), ("queue", weights.queue, self.queue)):
            if not isfinite(value) or not low <= value <= high:
                return f"the {name} weight must be between {low:g} and {high:g}, not {value:g}"
        if weights.rtt > self.most_ratio * weights.queue * (1 + 1e-9):
            return f"the rtt weight may be {self.most_ratio:g} times the queue weight at most"
        return ""


SHIPPED = Box()
AS_TESTED = Box(rtt=(0.1, 10.0), queue=(0.1, 10.0), most_ratio=1e9)  # of the study's beds, where priors are 10x wrong
PUBLISHED = Box(rtt=(0.05, 2.0), queue=(0.05, 0.5), most_ratio=1e9)  # GORGO's
