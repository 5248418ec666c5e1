"""What a trace is: how many requests, how long, how bursty, and how much of the prompts is repeated."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from tradewind.workload.mooncake import Trace, reuse
from tradewind.workload.ties import step_s

WINDOWS_S = (1.0, 10.0, 60.0)
LEAST_WINDOWS = 5  # below, an index of dispersion says nothing

_Numbers = np.ndarray[Any, np.dtype[np.float64]]


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens."""

    mean: float
    p50: float
    p95: float
    p99: float
    most: int


class TraceStats(msgspec.Struct, frozen=True, kw_only=True):
    """One trace. None = the trace does not say."""

    requests: int
    span_s: float  # from the first to the last
    rate_per_s: float | None  # None where all come at one moment
    step_s: float | None  # of the clock that wrote the times; None = they are not in steps
    prompt_tokens: Lengths
    output_tokens: Lengths
    prompt_tokens_per_s: float | None
    gap_cv: float | None  # coefficient of variation of the gaps: 1 = Poisson, 0 = constant
    dispersion: dict[str, float]  # variance by mean of the counts in windows of "1s", "10s", "60s": 1 = Poisson
    block_tokens: int | None  # None where the trace names no blocks
    reuse: float | None  # share of the blocks that repeat an earlier prefix: what an infinite cache serves
    reuse_within_session: float | None
    reuse_across_sessions: float | None
    sessions: int | None
    requests_per_session: float | None


def trace_stats(trace: Trace) -> TraceStats:
    """The figures of a trace that has requests."""
    assert trace.requests, "a trace without requests has no figures"
    times = np.sort(np.asarray([request.at_s for request in trace.requests]))
    span_s = float(times[-1] - times[0])
    prompts = [request.prompt_tokens for request in trace.requests]
    names = {request.session for request in trace.requests if request.session}
    shared = reuse(trace) if any(request.block_ids for request in trace.requests) else None
    return TraceStats(
        requests=len(prompts),
        span_s=span_s,
        rate_per_s=(len(prompts) - 1) / span_s if span_s > 0 else None,
        step_s=step_s(trace),
        prompt_tokens=_lengths(prompts),
        output_tokens=_lengths([request.output_tokens for request in trace.requests]),
        prompt_tokens_per_s=sum(prompts) / span_s if span_s > 0 else None,
        gap_cv=_gap_cv(times),
        dispersion=_dispersion(times - times[0], span_s),
        block_tokens=trace.block_tokens if shared else None,
        reuse=shared.anywhere if shared else None,
        reuse_within_session=shared.within_session if shared and names else None,
        reuse_across_sessions=shared.anywhere - shared.within_session if shared and names else None,
        sessions=len(names) or None,
        requests_per_session=len(prompts) / len(names) if names else None,
    )


def _lengths(values: Sequence[int]) -> Lengths:
    p50, p95, p99 = (float(value) for value in np.quantile(values, (0.5, 0.95, 0.99)))
    return Lengths(mean=float(np.mean(values)), p50=p50, p95=p95, p99=p99, most=max(values))


def _gap_cv(times: _Numbers) -> float | None:
    gaps = np.diff(times)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else None


def _dispersion(times: _Numbers, span_s: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for window_s in itertools.takewhile(lambda window_s: span_s >= LEAST_WINDOWS * window_s, WINDOWS_S):
        whole = int(span_s / window_s)  # the last, partial window would look like a lull
        counts = np.bincount((times / window_s).astype(int), minlength=whole)[:whole]
        found[f"{window_s:g}s"] = float(counts.var() / counts.mean())
    return found
