"""Timestamps in coarse steps: the public Mooncake conversation trace has one for each three seconds."""

import itertools
import random
from dataclasses import replace
from statistics import median

from tradewind.workload.mooncake import Trace

TIED = 2.0  # requests per distinct time, from which on the times are taken for steps of a coarse clock


def step_s(trace: Trace) -> float | None:
    """The step of the clock that wrote the trace; None where times are not in steps."""
    times = sorted({request.at_s for request in trace.requests})
    if len(times) < 2 or len(trace.requests) < TIED * len(times):
        return None
    return median(later - earlier for earlier, later in itertools.pairwise(times))


def spread(trace: Trace, rng: random.Random) -> Trace:
    """Requests of one step spread evenly at random over it; a trace without steps stays as it is.

    As they stand, all requests of a step would arrive at one moment, which nobody sent.
    """
    step = step_s(trace)
    if step is None:
        return trace
    moved = (replace(request, at_s=request.at_s + rng.uniform(0.0, step)) for request in trace.requests)
    return replace(trace, requests=tuple(sorted(moved, key=lambda request: request.at_s)))
