"""Random search: any point of the box, kept if it looked better. What every search has to beat."""

import random
from math import exp, log

from tradewind.core.tuner.adjust import Difference
from tradewind.core.tuner.box import Box
from tradewind.model.tuning import Weights

NAME = "random"
REQUESTS = 400  # per child


class RandomSearch:
    """Uniform in the logarithm of each weight."""

    def __init__(self, rng: random.Random, box: Box) -> None:
        self._rng = rng
        self._box = box

    def ask(self, parent: Weights) -> Weights:
        """Anywhere, wherever the parent is."""
        rtt, queue = (exp(self._rng.uniform(log(low), log(high))) for low, high in (self._box.rtt, self._box.queue))
        return self._box.clipped(Weights(rtt, queue))

    def tell(self, parent: Weights, child: Weights, seen: Difference) -> Weights | None:
        """No test: a mean that is lower will do."""
        return child if seen.change < 0.0 else None
