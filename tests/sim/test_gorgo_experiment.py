"""GORGO's windows have the published statistics, its failure is judged, and stale metrics are stale."""

import random

import msgspec
import pytest

from tests.sim.test_compare import row
from tests.sim.test_pick_experiment import done
from tradewind.lab.experiments import registry
from tradewind.lab.experiments.gorgo import experiment
from tradewind.lab.experiments.gorgo.grid import APR_5, REPEATED, STALE, WINDOWS, grid, window_trace
from tradewind.lab.experiments.gorgo.published import published
from tradewind.lab.harness.experiment import Options, Trial
from tradewind.lab.simulated.compare import RunRow


def test_the_window_of_april_5_is_as_published() -> None:
    trace = window_trace(random.Random(1), APR_5, for_s=1_800.0, time_scale=1.0)
    stats = experiment._statistics("Apr 5", 1)
    assert stats["requests"] == pytest.approx(7_195, rel=0.05)
    assert stats["input mean"] == pytest.approx(6_877, rel=0.1)
    assert stats["input p50"] == pytest.approx(5_638, rel=0.1)
    assert stats["input p95"] == pytest.approx(19_886, rel=0.05)
    assert stats["block reuse"] == pytest.approx(78.8, abs=5.0)
    repeated = [request for request in trace.requests if request.session == REPEATED]
    assert len(repeated) / len(trace.requests) == pytest.approx(0.32, abs=0.03)
    assert {request.prompt_tokens for request in repeated} == {17}


def test_a_time_scale_multiplies_the_gaps_and_nothing_else() -> None:
    one, two = (window_trace(random.Random(1), APR_5, for_s=60.0, time_scale=scale) for scale in (1.0, 2.0))
    assert [request.at_s * 2 for request in one.requests] == pytest.approx([request.at_s for request in two.requests])
    assert [request.block_ids for request in one.requests] == [request.block_ids for request in two.requests]


def test_old_metrics_are_scraped_rarely_and_published_indexes_grow() -> None:
    assert grid(APR_5, for_s=60.0, time_scale=1.0, old_metrics=True).delays.scrape_s == 30.0
    assert grid(APR_5, for_s=60.0, time_scale=1.0, old_metrics=False).delays.scrape_s == 1.0
    assert experiment.written(f"least_load{STALE}") == "least_load"
    assert experiment.written("gorgo:.276/.5") == "gorgo:.276/.5;index=unbounded"
    assert experiment.written("cost") == "cost"


def runs(policy: str, *, ttft_s: float, e2e_s: float, share: float = 0.4) -> list[tuple[Trial, dict[str, object]]]:
    return [
        (
            Trial(experiment="gorgo", args={"window": "Apr 7", "scale": 3, "policy": policy, "seed": seed}),
            result,
        )
        for seed in (1, 2)
        for _, result in done(shared(row(policy, seed, ttft_s=ttft_s, e2e_s=e2e_s), share))
    ]


def shared(run: RunRow, share: float) -> RunRow:
    return msgspec.structs.replace(run, max_share=share)


@pytest.mark.parametrize(("e2e_s", "holds"), [(6.0, True), (3.1, False)])
def test_the_failure_without_a_queue_weight_must_show(e2e_s: float, *, holds: bool) -> None:
    found = experiment.rows(
        [
            *runs("cost", ttft_s=1.0, e2e_s=2.7),
            *runs(experiment.LEARNED, ttft_s=1.2, e2e_s=3.0),
            *runs(experiment.NO_QUEUE, ttft_s=0.9, e2e_s=e2e_s, share=0.99),
        ]
    )
    checks = {check.name: check for check in experiment.claims(found)}
    assert checks["no queue weight: share of the nearest cell"].holds
    assert checks["no queue weight: policies with a longer E2E p95"].holds
    assert checks["no queue weight: TTFT p95 against the learned weights"].value == pytest.approx(-25.0)
    assert checks["no queue weight: E2E p95 against the learned weights"].holds is holds
    # the failure is nobody's baseline: cost is measured against the learned weights
    assert checks["Apr 7, scale 3: TTFT p95 against the best other"].value == pytest.approx(-100 / 6)


def test_published_figures_stand_beside_policies_and_profiles_of_the_plan() -> None:
    plan = experiment.plan(Options())
    planned = {(f"{trial.args['window']}, scale {trial.args['scale']}", trial.args["policy"]) for trial in plan}
    beside = {(item.profile, item.policy) for item in published() if item.policy}
    assert beside <= planned
    assert {item.profile for item in published() if not item.policy} <= set(WINDOWS)
    assert registry.experiment_named("gorgo").published


def test_the_quick_form_runs() -> None:
    plan = [trial for trial in experiment.plan(Options(quick=True)) if trial.args["window"] == "Apr 7"]
    short = [shortened(trial) for trial in plan]
    found = experiment.rows([(trial, experiment.run(trial)) for trial in short])
    assert {one.policy for one in found} == {"", *experiment.QUICK_POLICIES}
    assert all(figure.series for figure in experiment.figures(found)[:2])


def shortened(trial: Trial) -> Trial:
    return Trial(experiment=trial.experiment, args={**trial.args, "for_s": 10.0})
