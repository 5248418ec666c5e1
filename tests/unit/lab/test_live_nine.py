"""Simulated policies by name, as a grid file for a live run has them."""

import pytest

from tradewind.config.check import check
from tradewind.lab.experiments import failover, mismatch
from tradewind.lab.experiments.live_nine import LIVE_POLICIES, live_grid
from tradewind.lab.harness.experiment import Experiment, Options
from tradewind.lab.simulated.nine import AS_PUBLISHED, COST, LEAST_OF_ALL, LEAST_REQUEST, ROUND_ROBIN, WEIGHTS


@pytest.mark.parametrize(
    ("policy", "baseline", "routing", "picks", "scoring"),
    [
        (ROUND_ROBIN, "round-robin", "weights", "", "recipe"),
        (LEAST_REQUEST, "least-request", "weights", "", "recipe"),
        (LEAST_OF_ALL, "least-request:9", "weights", "", "recipe"),
        (WEIGHTS, "", "weights", "", "recipe"),
        (AS_PUBLISHED, "", "weights", "", "published"),
        (COST, "", "pick", "cost", "recipe"),
        ("session_affinity", "", "pick", "session_affinity", "recipe"),
    ],
)
def test_a_simulated_policy_has_its_live_counterpart(
    policy: str, baseline: str, routing: str, picks: str, scoring: str
) -> None:
    (gateway,) = check(live_grid(policy, gate=False, seed=1, state_dir="run")).gateways
    assert (gateway.baseline, gateway.routing, gateway.scoring) == (baseline, routing, scoring)
    assert gateway.gate.mode == "none"
    if picks:
        assert gateway.pick.policy == picks


@pytest.mark.parametrize("experiment", [failover.EXPERIMENT, mismatch.EXPERIMENT], ids=lambda one: one.name)
def test_a_live_form_has_fewer_policies_and_its_results_make_the_same_rows(experiment: Experiment) -> None:
    live = experiment.work(live=True)
    simulated = experiment.work(live=False)
    assert live is not None
    assert simulated is not None
    assert {trial.args["policy"] for trial in live.plan(Options(quick=True))} == {WEIGHTS}
    assert {trial.args["policy"] for trial in live.plan(Options())} == set(LIVE_POLICIES)
    assert {str(sorted(trial.args)) for trial in live.plan(Options())} == {
        str(sorted(trial.args)) for trial in simulated.plan(Options())
    }


def test_every_live_policy_has_nine_cells() -> None:
    for policy in LIVE_POLICIES:
        assert len(check(live_grid(policy, gate=True, seed=1, state_dir="run")).cells) == 9
