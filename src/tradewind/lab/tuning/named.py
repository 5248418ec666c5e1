"""Every tuner by its name: those of control, and the blind searches that only the laboratory has."""

from collections.abc import Callable, Mapping

from tradewind.core.tuner.box import Box
from tradewind.core.tuner.named import TUNERS, tuner_named
from tradewind.core.tuner.tuner import Tuner
from tradewind.lab.tuning import cma, random_search
from tradewind.lab.tuning.blind import BlindTuner
from tradewind.lab.tuning.cma import Cma
from tradewind.lab.tuning.random_search import RandomSearch
from tradewind.model.tuning import Weights

_Make = Callable[[str, int, Weights, Box], Tuner]

BLIND: Mapping[str, _Make] = {
    cma.NAME: lambda driver, seed, start, box: BlindTuner(
        name=cma.NAME, driver=driver, seed=seed, start=start, box=box, requests=cma.REQUESTS, search=Cma
    ),
    random_search.NAME: lambda driver, seed, start, box: BlindTuner(
        name=random_search.NAME,
        driver=driver,
        seed=seed,
        start=start,
        box=box,
        requests=random_search.REQUESTS,
        search=RandomSearch,
    ),
}


def lab_tuner_named(name: str, *, driver: str, seed: int, start: Weights, box: Box) -> Tuner:
    """A fresh one. Raises ValueError with the known names for any other, and for a start outside the box."""
    if name not in BLIND:
        if name not in TUNERS:
            raise ValueError(f"unknown tuner {name!r}; known: {', '.join(sorted({*TUNERS, *BLIND}))}")
        return tuner_named(name, driver=driver, seed=seed, start=start, box=box)
    if problem := box.problem(start):
        raise ValueError(f"tuner {name}: {problem}")
    return BLIND[name](driver, seed, start, box)
