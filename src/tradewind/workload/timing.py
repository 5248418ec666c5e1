"""A trace at another pace, or a part of it."""

from dataclasses import replace

from tradewind.workload.errors import TraceError
from tradewind.workload.mooncake import Trace


def slower(trace: Trace, time_scale: float) -> Trace:
    """Every gap times `time_scale`: 2 is half the rate."""
    if time_scale == 1.0:
        return trace
    return replace(trace, requests=tuple(replace(item, at_s=item.at_s * time_scale) for item in trace.requests))


def first_part(trace: Trace, for_s: float) -> Trace:
    """The requests of the first `for_s` seconds. Raises TraceError where there are none."""
    kept = tuple(item for item in trace.requests if item.at_s < for_s)
    if not kept:
        raise TraceError(f"no request in the first {for_s:g} s of the trace")
    return replace(trace, requests=kept)
