"""The orders of one driver, numbered: each change of weights is a new generation."""

from tradewind.model.tuning import Sample, TuningOrder, Weights


class Orders:
    """Gives the next order; the last one stays in force."""

    def __init__(self, driver: str, weights: Weights) -> None:
        self.last = TuningOrder(driver=driver, generation=1, weights=weights)

    def give(self, weights: Weights, *, child: Weights | None = None, child_share: float = 0.0) -> TuningOrder:
        """In force from now on."""
        self.last = TuningOrder(
            driver=self.last.driver,
            generation=self.last.generation + 1,
            weights=weights,
            child=child,
            child_share=child_share if child is not None else 0.0,
        )
        return self.last

    def follow(self, generation: int) -> None:
        """The next order comes after this generation, which an earlier run gave."""
        self.last = self.last._replace(generation=max(generation, self.last.generation))

    def has(self, sample: Sample) -> bool:
        """Whether a request was decided by the order in force."""
        return (sample.driver, sample.generation) == (self.last.driver, self.last.generation)
