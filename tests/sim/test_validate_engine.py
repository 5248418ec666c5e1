"""The engine model against measured runs of real engines: within 5 %, also where nothing was fitted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tradewind.lab.checks import Check
from tradewind.lab.experiments.validate_engine import experiment
from tradewind.lab.experiments.validate_engine.cases import CASES, case_named
from tradewind.lab.experiments.validate_engine.compare import HELD_OUT, UNQUEUED, nine, part_of
from tradewind.lab.experiments.validate_engine.fit import START, fitted
from tradewind.lab.experiments.validate_engine.model import simulated
from tradewind.lab.harness.experiment import Options, Result
from tradewind.workload.measured import MeasuredRequest, measured_runs


def test_three_measured_runs_ship_with_the_project() -> None:
    runs = measured_runs()
    assert [len(requests) for requests in runs.values()] == [300, 300, 300]
    assert {case.run for case in CASES} == runs.keys()
    for requests in runs.values():
        for one in requests:
            assert one.arrival_s <= one.queued_s <= one.scheduled_s < one.first_token_s < one.last_token_s
            assert one.output_tokens > 1


def claimed(run: str) -> list[Check]:
    trials = [
        trial for trial in experiment.plan(Options()) if trial.args == {"task": "compare", "run": run, "ahead": True}
    ]
    assert len(trials) == 1
    result: Result = experiment.run(trials[0])
    return list(experiment.claims(experiment.rows([(trials[0], result)])))


@pytest.mark.parametrize("run", ["llama-3.1-8b", "qwen3-32b-tp2"])
def test_nine_figures_are_within_5_percent_of_the_real_run(run: str) -> None:
    claims = claimed(run)
    assert [claim.holds for claim in claims] == [True, True], claims


def test_so_are_those_of_two_ranks_and_the_half_that_was_fitted_too_claims_nothing() -> None:
    claims = claimed("qwen3-30b-a3b-dp2")
    assert [claim.holds for claim in claims] == [True, None], claims


def test_without_the_dearer_context_of_mixed_steps_first_tokens_of_two_ranks_come_too_soon() -> None:
    case = case_named("qwen3-30b-a3b-dp2")
    measured = measured_runs()[case.run]
    found = nine(simulated(case, measured, profile=replace(case.profile, mixed=1.0)))
    assert found["TTFT p50"] / nine(measured)["TTFT p50"] - 1 < -0.05


def test_a_wrong_coefficient_is_found() -> None:
    case = case_named("llama-3.1-8b")
    measured = measured_runs()[case.run]
    found = simulated(case, measured, profile=replace(case.profile, b_s=1.2 * case.profile.b_s))
    half = part_of(measured, HELD_OUT)
    real, ours = nine([measured[number] for number in half]), nine([found[number] for number in half])
    assert max(abs(ours[name] / real[name] - 1) for name in real) > 0.05


def test_an_engine_that_makes_batches_at_once_has_first_tokens_too_soon() -> None:
    case = case_named("llama-3.1-8b")
    measured = measured_runs()[case.run]
    chosen = part_of(measured, UNQUEUED)
    real = nine([measured[number] for number in chosen])["TTFT p50"]
    errors = {}
    for ahead in (False, True):
        found = simulated(case, measured, profile=case.profile, ahead=ahead)
        errors[ahead] = nine([found[number] for number in chosen])["TTFT p50"] / real - 1
    assert abs(errors[True]) < 0.05
    assert errors[False] < -0.15


def test_a_fit_on_the_first_half_reads_no_time_of_the_second() -> None:
    """On a short run, so that it takes no time: other times in the second half give the same coefficients."""
    case = case_named("llama-3.1-8b")
    short = [replace(one, output_tokens=40) for one in measured_runs()[case.run][:40]]
    made = simulated(case, short, profile=case.profile)
    spoilt = [
        replace(one, last_token_s=one.last_token_s * 3) if number >= 20 else one for number, one in enumerate(made)
    ]
    found, again = fitted(case, made), fitted(case, spoilt)
    assert (found.a0_s, found.b_s) == (again.a0_s, again.b_s)
    a0, b = START
    begun = replace(case.profile, a0_s=a0 * case.profile.a0_s, b_s=b * case.profile.b_s)
    assert worst(simulated(case, made, profile=found), made) < worst(simulated(case, made, profile=begun), made) / 2


def worst(ours: Sequence[MeasuredRequest], real: Sequence[MeasuredRequest]) -> float:
    wanted = nine(real[:20])
    return max(abs(value / wanted[name] - 1) for name, value in nine(ours[:20]).items())
