"""What a trace is, in figures: against traces whose figures are known; and coarse times spread over their steps."""

import pytest

from tradewind.workload import azure
from tradewind.workload.arrivals import CONSTANT
from tradewind.workload.mooncake import Trace, TracedRequest
from tradewind.workload.named import UnknownWorkloadError, make_trace
from tradewind.workload.stats import trace_stats
from tradewind.workload.streams import stream
from tradewind.workload.ties import spread, step_s


def trace(*times: float, blocks: tuple[tuple[int, ...], ...] = (), sessions: str = "") -> Trace:
    requests = (
        TracedRequest(
            at_s=at_s,
            prompt_tokens=1_024,
            output_tokens=10 * (index + 1),
            block_ids=blocks[index] if blocks else (),
            session=sessions[index : index + 1],
        )
        for index, at_s in enumerate(times)
    )
    return Trace(requests=tuple(requests))


def test_counts_rates_and_lengths() -> None:
    found = trace_stats(trace(0.0, 1.0, 2.0, 3.0))
    assert (found.requests, found.span_s, found.rate_per_s, found.gap_cv) == (4, 3.0, 1.0, 0.0)
    assert found.output_tokens.mean == 25.0
    assert (found.output_tokens.p50, found.output_tokens.most) == (25.0, 40)


def test_what_a_trace_does_not_say_is_unknown() -> None:
    found = trace_stats(trace(0.0, 1.0))
    assert (found.reuse, found.block_tokens, found.sessions, found.reuse_within_session) == (None, None, None, None)
    at_once = trace_stats(trace(2.0, 2.0))
    assert (at_once.rate_per_s, at_once.gap_cv, at_once.dispersion) == (None, None, {})
    assert trace_stats(trace(0.0)).span_s == 0.0


def test_reuse_is_counted_within_and_across_sessions() -> None:
    blocks = ((1, 2), (1, 2), (1, 3), (9, 2))  # 2 by the same user, 1 by another; block 2 without its prefix is no hit
    found = trace_stats(trace(0, 1, 2, 3, blocks=blocks, sessions="aabb"))
    assert found.reuse == 3 / 8
    assert found.reuse_within_session == 2 / 8
    assert found.reuse_across_sessions == 1 / 8
    assert (found.sessions, found.requests_per_session) == (2, 2.0)
    assert trace_stats(trace(0, 1, 2, 3, blocks=blocks)).reuse_within_session is None


def test_dispersion_tells_bursts_from_poisson_and_from_a_constant_rate() -> None:
    even = trace_stats(make_trace("baseline_mixed", seed=1, rate_per_s=10, for_s=400, arrivals=CONSTANT))
    assert even.dispersion == {"1s": 0.0, "10s": 0.0, "60s": 0.0}
    poisson = trace_stats(make_trace("baseline_mixed", seed=1, rate_per_s=10, for_s=400))
    assert poisson.dispersion["1s"] == pytest.approx(1.0, abs=0.25)
    spikes = trace_stats(make_trace("adversarial_spike", seed=1, rate_per_s=10, for_s=400))
    assert spikes.dispersion["1s"] > 5


def test_the_shipped_slice_of_azure() -> None:
    found = trace_stats(azure.as_trace(azure.shipped_slice()))
    assert found.requests == 2_000
    assert found.reuse is None
    assert found.prompt_tokens.mean == pytest.approx(sum(row.prompt_tokens for row in azure.shipped_slice()) / 2_000)


def test_times_in_steps_are_found_and_spread_within_their_steps() -> None:
    coarse = trace(*(3.0 * (index // 10) for index in range(200)))
    assert step_s(coarse) == 3.0
    even = spread(coarse, stream(1, "ties"))
    times = [request.at_s for request in even.requests]
    assert times == sorted(times)
    assert len(set(times)) == 200
    assert [int(at_s // 3.0) for at_s in times] == [index // 10 for index in range(200)]
    assert trace_stats(even).gap_cv == pytest.approx(1.0, abs=0.3)


def test_fine_times_stay_as_they_are() -> None:
    fine = make_trace("art", seed=1, rate_per_s=4, for_s=60)
    assert step_s(fine) is None
    assert spread(fine, stream(1, "ties")) is fine
    assert step_s(trace(1.0, 1.0)) is None


def test_art_keeps_its_mix_at_another_rate_and_length() -> None:
    found = trace_stats(make_trace("art", seed=2, rate_per_s=8.0, for_s=450.0))
    assert found.rate_per_s == pytest.approx(8.0, rel=0.06)
    assert found.requests_per_session == pytest.approx(12.2, rel=0.1)
    assert found.prompt_tokens.mean == pytest.approx(6_900, rel=0.12)
    assert found.reuse == pytest.approx(0.788, abs=0.03)


def test_unknown_names_and_arrivals_say_what_to_write() -> None:
    with pytest.raises(UnknownWorkloadError, match="rag_multidoc"):
        make_trace("rag", seed=1, rate_per_s=1, for_s=1)
    with pytest.raises(UnknownWorkloadError, match="Poisson"):
        make_trace("art", seed=1, rate_per_s=1, for_s=1, arrivals=CONSTANT)
