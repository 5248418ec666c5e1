"""A tuner that proposes one child for ever: what the comparisons of real tuners say to it, again and again."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tradewind.core.tuner.compare import Comparison, Verdict
from tradewind.core.tuner.looks import Looks, LookSettings
from tradewind.core.tuner.orders import Orders
from tradewind.core.tuner.settings import CalibratorSettings
from tradewind.core.tuner.tuner import Happened, Kept, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights


class Compares(Protocol):
    """One comparison, of one generation."""

    def add(self, sample: Sample) -> Verdict | None:
        """A request ended; the verdict once there is one."""
        ...


def by_calibrator(driver: str, generation: int, parent: Weights) -> Compares:
    """As the calibrator compares, before it has seen physics at this load."""
    settings = CalibratorSettings()
    return Comparison(
        driver=driver,
        generation=generation,
        leaves_physics=parent == PHYSICS,
        settings=settings.compare,
        physics_p95_s=None,
    )


def by_looks(driver: str, generation: int, _parent: Weights) -> Compares:
    """As `es-repaired` compares."""
    return Looks(driver=driver, generation=generation, settings=LookSettings())


RULES: dict[str, Callable[[str, int, Weights], Compares]] = {"calibrator": by_calibrator, "es-repaired": by_looks}


class Forced:
    """The parent stays, whatever the verdicts are; each one is an event, and the next comparison begins."""

    frozen = False

    def __init__(self, rule: str, *, parent: Weights, child: Weights, driver: str = "forced") -> None:
        self.name = f"forced:{rule}"
        self._compare, self._driver = RULES[rule], driver
        self._parent, self._child = parent, child
        self._orders = Orders(driver, parent)
        self._begin()

    @property
    def order(self) -> TuningOrder:
        """Half of the requests go by the child."""
        return self._orders.last

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        """Finished requests, in the order of their end."""
        events: list[TunerEvent] = []
        for sample in samples:
            verdict = self._comparison.add(sample)
            if verdict is None:
                continue
            refused = Happened.ROLLED_BACK if verdict.breach else Happened.REJECTED
            what = Happened.ACCEPTED if verdict.accepted else refused
            order = self.order
            events.append(
                TunerEvent(now_s, what, order.generation, self._parent, self._child, verdict.reason, verdict.figures)
            )
            self._begin()
        return events

    def _begin(self) -> None:
        order = self._orders.give(self._parent, child=self._child, child_share=0.5)
        self._comparison = self._compare(self._driver, order.generation, self._parent)

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        """It has no operator."""
        return ()

    def thaw(self, now_s: float) -> Sequence[TunerEvent]:
        """Nor this."""
        return ()

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        """Raises ValueError: its weights are what is asked about."""
        raise ValueError("a forced comparison keeps its weights")

    def reset(self, now_s: float) -> Sequence[TunerEvent]:
        """It has learned nothing."""
        return ()

    def keep(self) -> Kept:
        """It does not outlive its run."""
        return {}

    def restore(self, kept: Kept, now_s: float) -> Sequence[TunerEvent]:
        """Nothing to go on from."""
        return ()
