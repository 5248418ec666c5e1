"""Does the section on the tuner make sense?"""

from collections.abc import Iterator
from dataclasses import replace

from tradewind.config.errors import Problem
from tradewind.config.schema import GatewayConfig, GridConfig, TunerConfig
from tradewind.core.tuner.box import PUBLISHED, SHIPPED, Box
from tradewind.model.tuning import PHYSICS, Weights

LEAST, MOST = 0.01, 100.0  # of a weight: beyond, a cell is chosen by one term alone
LEAST_RATIO, MOST_RATIO = 0.1, 1e9
TUNABLE = ("cost", "gorgo")  # policies with these two weights; a file's policy may have them too


def tuner_problems(grid: GridConfig) -> Iterator[Problem]:
    """Every problem of `tuner`."""
    tuner = grid.tuner
    if tuner is None:
        return
    if not any(_tunable(gateway) for gateway in grid.gateways):
        what = "no gateway picks by a policy with weights, so there is nothing to tune"
        write = "routing: pick and pick.policy cost or gorgo:R/Q in a gateway, or no tuner section"
        yield Problem(where="$.tuner", what=what, write=write)
    bad = list(_box_problems(tuner))
    yield from bad
    if not bad and tuner.start is not None and (fault := box_of(tuner).problem(start_of(tuner))):
        yield Problem(where="$.tuner.start", what=fault, write="weights in the box, or a wider box")


def _tunable(gateway: GatewayConfig) -> bool:
    policy = gateway.pick.policy
    return gateway.routing == "pick" and (policy.partition(":")[0] in TUNABLE or ".py:" in policy)


def _box_problems(tuner: TunerConfig) -> Iterator[Problem]:
    box = tuner.box
    for name, bounds in (("rtt", box.rtt), ("queue", box.queue)):
        if bounds and not (len(bounds) == 2 and LEAST <= bounds[0] <= bounds[1] <= MOST):
            what = f"{bounds} are no bounds of a weight"
            write = f"[least, most], both from {LEAST:g} to {MOST:g}, e.g. [0.2, 2]"
            yield Problem(where=f"$.tuner.box.{name}", what=what, write=write)
    if box.most_ratio and not LEAST_RATIO <= box.most_ratio <= MOST_RATIO:
        what = f"{box.most_ratio:g} is no ratio of two weights"
        yield Problem(where="$.tuner.box.most_ratio", what=what, write=f"{LEAST_RATIO:g} to {MOST_RATIO:g}, e.g. 4")


def box_of(tuner: TunerConfig) -> Box:
    """The bounds in force: what the kind ships with, where the file says nothing else."""
    found = PUBLISHED if tuner.kind == "es" else SHIPPED
    if tuner.box.rtt:
        found = replace(found, rtt=(tuner.box.rtt[0], tuner.box.rtt[1]))
    if tuner.box.queue:
        found = replace(found, queue=(tuner.box.queue[0], tuner.box.queue[1]))
    return replace(found, most_ratio=tuner.box.most_ratio) if tuner.box.most_ratio else found


def start_of(tuner: TunerConfig) -> Weights:
    """Where it begins."""
    return Weights(tuner.start.rtt, tuner.start.queue) if tuner.start is not None else box_of(tuner).clipped(PHYSICS)
