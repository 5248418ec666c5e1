"""The shipped capture of a live gateway, and captures of simulated ones, decide the same again."""

import pytest

from tradewind.gateway.pick.capture import parse_capture
from tradewind.lab.experiments.validate_replay import experiment
from tradewind.lab.experiments.validate_replay.tampered import tampered
from tradewind.lab.harness.experiment import Options
from tradewind.lab.replay import replay


def test_the_quick_form_finds_all_equal_and_every_forgery() -> None:
    done = [(trial, experiment.run(trial)) for trial in experiment.plan(Options(quick=True))]
    claims = experiment.claims(experiment.rows(done))
    assert [claim.holds for claim in claims] == [True] * 6, claims
    assert [result["decisions"] > 50 for _, result in done] == [True, True]


@pytest.mark.parametrize("policy", ["cache_aware", "least_request:2"])
def test_other_policies_decide_the_same_again(policy: str) -> None:
    for data in experiment.simulated_captures(policy, seed=2, for_s=10.0):
        found = replay(*parse_capture(data))
        assert found.equal
        assert found.differences == []


def test_a_log_is_forged_in_four_ways() -> None:
    (data, *_) = experiment.simulated_captures("cost", seed=2, for_s=10.0)
    forged = dict(tampered(data))
    assert len(forged) == 4
    for name, forgery in forged.items():
        assert replay(*parse_capture(forgery)).different > 0, name


def test_a_forgery_that_passes_fails_the_claim() -> None:
    trial = experiment.plan(Options(quick=True))[0]
    result = {"decisions": 9, "drawn": 1, "refusals": 0, "notes": 30, "different": 0, "forged": 4, "missed": ["a"]}
    assert [claim.holds for claim in experiment.claims(experiment.rows([(trial, result)]))] == [True, True, False]
    result = {**result, "different": 2, "missed": []}
    assert [claim.holds for claim in experiment.claims(experiment.rows([(trial, result)]))] == [True, False, True]


def test_policies_that_no_replay_can_make_are_left_out() -> None:
    plan = experiment.plan(Options(policies=("weights", "mine.py:Mine", "cost;tie_s=0", "cache_aware"), seeds=1))
    assert [trial.args.get("policy") for trial in plan] == [None, "cache_aware"]
