"""Tuners by the names that configuration and written policies have for them."""

from collections.abc import Callable, Mapping

from tradewind.core.tuner.box import Box
from tradewind.core.tuner.calibrator import Calibrator
from tradewind.core.tuner.es import Es
from tradewind.core.tuner.es_repaired import EsRepaired
from tradewind.core.tuner.tuner import Tuner
from tradewind.model.tuning import Weights

Make = Callable[[str, int, Weights, Box], Tuner]  # driver, seed, start, box

TUNERS: Mapping[str, Make] = {
    "calibrator": lambda driver, seed, start, box: Calibrator(driver=driver, start=start, box=box),
    "es": lambda driver, seed, start, box: Es(driver=driver, seed=seed, start=start, box=box),
    "es-repaired": lambda driver, seed, start, box: EsRepaired(driver=driver, seed=seed, start=start, box=box),
}


def tuner_named(name: str, *, driver: str, seed: int, start: Weights, box: Box) -> Tuner:
    """A fresh one. Raises ValueError with the known names for any other, and for a start outside the box."""
    if name not in TUNERS:
        raise ValueError(f"unknown tuner {name!r}; known: {', '.join(sorted(TUNERS)) or 'none'}")
    if problem := box.problem(start):
        raise ValueError(f"tuner {name}: {problem}")
    return TUNERS[name](driver, seed, start, box)
