"""Ranks that step together: what one does, all wait for."""

from dataclasses import replace

import pytest

from tradewind.engine.law import StepLoad, step_s
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits
from tradewind.lab.experiments.validate_engine.ranks import Times, run_together, together_s
from tradewind.workload.measured import MeasuredRequest

MOE = replace(PROFILES["2xl40s"], ingest_s=0.0, mixed=2.0)
LIMITS = EngineLimits(max_num_seqs=8, token_budget=2_048)
DECODES = StepLoad(prefill_tokens=0, decodes=4, kv_tokens=4_000, attention=0.0)
PREFILL = StepLoad(prefill_tokens=2_000, decodes=0, kv_tokens=0, attention=2e6)


def asked(arrival_s: float, prompt_tokens: int, output_tokens: int) -> MeasuredRequest:
    times = dict.fromkeys(("queued_s", "scheduled_s", "first_token_s", "last_token_s"), arrival_s)
    return MeasuredRequest(arrival_s=arrival_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **times)


def run(*requests: MeasuredRequest, ranks: int = 2) -> Times:
    return run_together(requests, ranks=ranks, profile=MOE, limits=LIMITS, experts=0.5)


@pytest.mark.parametrize("load", [DECODES, PREFILL, StepLoad(500, 6, 9_000, 1e5)])
@pytest.mark.parametrize("experts", [0.0, 0.66, 1.0])
def test_one_rank_follows_the_law(load: StepLoad, experts: float) -> None:
    assert together_s(MOE, [load], experts=experts) == pytest.approx(step_s(MOE, load), rel=1e-12)


def test_a_step_lasts_as_long_as_that_of_the_busiest_rank_and_no_order_matters() -> None:
    both = together_s(MOE, [DECODES, PREFILL], experts=0.0)
    assert both == together_s(MOE, [PREFILL, DECODES], experts=0.0) == pytest.approx(step_s(MOE, PREFILL))


def test_tokens_of_the_other_rank_touch_more_experts() -> None:
    assert together_s(MOE, [DECODES, DECODES], experts=0.0) > 1.2 * step_s(MOE, DECODES)


def test_what_is_the_experts_is_shared_by_all_ranks() -> None:
    alone = together_s(MOE, [PREFILL, DECODES], experts=0.0)
    shared = together_s(MOE, [PREFILL, DECODES], experts=1.0)
    assert shared < 0.6 * alone  # half of the tokens each


def test_a_prompt_on_one_rank_delays_the_tokens_of_the_other() -> None:
    quiet = run(asked(0.0, 100, 50))
    beside = run(asked(0.0, 100, 50), asked(0.05, 8_000, 2))
    assert quiet.last_s[0] + 0.3 < beside.last_s[0]
    assert beside.last_s.keys() == {0, 1}


def test_the_balancer_goes_by_what_it_was_told_and_what_it_has_given_since() -> None:
    """Four at once go to both ranks alike; on one rank alone the same four would take longer to begin."""
    four = [asked(0.0, 2_000, 2) for _ in range(4)]
    assert max(run(*four).first_s.values()) < 0.7 * max(run(*four, ranks=1).first_s.values())


def test_a_pause_between_arrivals_is_slept_through() -> None:
    times = run(asked(0.0, 100, 5), asked(100.0, 100, 5))
    assert times.first_s[1] - 100.0 == pytest.approx(times.first_s[0], rel=1e-6)
