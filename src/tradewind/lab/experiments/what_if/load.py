"""The load of one run: a class at a rate, or a window of a trace; the same for every what-if on one seed."""

import random
from dataclasses import replace
from pathlib import Path

from tradewind.lab.experiments.what_if.setup import Setup, SetupError
from tradewind.workload.errors import TraceError
from tradewind.workload.files import read_trace
from tradewind.workload.mooncake import Trace
from tradewind.workload.named import UnknownWorkloadError, make_trace
from tradewind.workload.streams import stream

DEFAULT_FOR_S = 180.0
LONGEST_S = 600.0  # of a trace, unless told otherwise


def load_of(setup: Setup, *, seed: int, factor: float) -> tuple[Trace, float]:
    """Requests from 0 s on, and how long they last. `factor` times as many a second. Raises SetupError, OSError."""
    if not setup.trace:
        for_s = setup.for_s or DEFAULT_FOR_S
        try:
            made = make_trace(setup.workload, seed=seed, rate_per_s=setup.rate_per_s * factor, for_s=for_s)
        except UnknownWorkloadError as error:
            raise SetupError(str(error)) from error
        if not made.requests:
            raise SetupError(f"no request within {for_s:g} s at {setup.rate_per_s:g}/s; write more of either")
        return made, for_s
    whole = traced(setup)
    begin_s, end_s = window(setup, whole, rng=stream(seed, "window"), factor=factor)
    kept = [item for item in whole.requests if begin_s <= item.at_s < end_s]
    if not kept:
        raise SetupError(f"{setup.trace}: no request from {begin_s:.0f} s to {end_s:.0f} s; write a longer --for")
    requests = tuple(replace(item, at_s=(item.at_s - begin_s) / factor) for item in kept)
    return replace(whole, requests=requests), (end_s - begin_s) / factor


def traced(setup: Setup) -> Trace:
    """The whole trace. Raises SetupError."""
    try:
        return read_trace(Path(setup.trace))
    except TraceError as error:
        raise SetupError(str(error)) from error
    except OSError as error:
        raise SetupError(f"{setup.trace} cannot be read: {error.strerror or error}") from error


def span_s(whole: Trace) -> float:
    """From the first request to shortly after the last one."""
    last_s = whole.requests[-1].at_s
    return last_s * (1.0 + 1.0 / max(1, len(whole.requests) - 1)) or 1.0


def window(setup: Setup, whole: Trace, *, rng: random.Random, factor: float) -> tuple[float, float]:
    """Begin and end in the trace's time. Each seed has a begin of its own; a trace that is too short gives less."""
    span = span_s(whole)
    for_s = min(span, setup.for_s or LONGEST_S)
    begin_s = rng.uniform(0.0, span - for_s)
    return begin_s, min(span, begin_s + for_s * factor)
