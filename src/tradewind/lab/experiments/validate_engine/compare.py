"""Nine figures of a run: mean, median and 95th percentile of TTFT, TPOT and E2E; and how far two runs are apart."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from tradewind.measure.statistics import percentile
from tradewind.workload.measured import MeasuredRequest

_READ: Mapping[str, Callable[[MeasuredRequest], float]] = {
    "TTFT": lambda request: request.first_token_s - request.arrival_s,
    "TPOT": lambda request: (request.last_token_s - request.first_token_s) / (request.output_tokens - 1),
    "E2E": lambda request: request.last_token_s - request.arrival_s,
}
ALL, FITTED, HELD_OUT, UNQUEUED = "all", "first half", "second half", "no queue"
PARTS = (ALL, FITTED, HELD_OUT, UNQUEUED)
_QUEUED_S = 0.010  # so long in the scheduler's queue is more than the wait for a step


def nine(requests: Sequence[MeasuredRequest]) -> dict[str, float]:
    """Name of the figure, e.g. `TTFT mean`, -> seconds. Each request has at least two tokens of output."""
    found = {}
    for name, read in _READ.items():
        values = [read(request) for request in requests]
        found[f"{name} mean"] = fmean(values)
        for label, ratio in (("p50", 0.5), ("p95", 0.95)):
            value = percentile(values, ratio)
            assert value is not None
            found[f"{name} {label}"] = value
    return found


def part_of(measured: Sequence[MeasuredRequest], part: str) -> Sequence[int]:
    """Which requests belong to a part; "no queue" are those that the real scheduler took at once."""
    half = len(measured) // 2
    if part == UNQUEUED:
        return [number for number, request in enumerate(measured) if request.waited_s <= _QUEUED_S]
    return {ALL: range(len(measured)), FITTED: range(half), HELD_OUT: range(half, len(measured))}[part]
