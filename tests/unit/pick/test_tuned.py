"""An order of a tuner: its weights decide, each request has one arm, and what became of it is told once."""

from typing import Any

import pytest

from tests.unit.pick.fakes import cell_view, outcome, picked, picker, request
from tradewind.core.pick.picker import Picker
from tradewind.core.tuner.arms import is_child, weights_for
from tradewind.model.outcome import Outcome
from tradewind.model.tuning import PHYSICS, TuningOrder, Weights

NEAR_ONLY = Weights(rtt=500.0, queue=1.0)
ORDER = TuningOrder(driver="c", generation=3, weights=PHYSICS, child=NEAR_ONLY, child_share=0.5)


def two_cells(policy: str = "cost") -> Picker:
    """One near, one far, and eight long prompts that wait at the near one."""
    made = picker(cell_view("far"), cell_view("near"), rtts_s={"near": 0.001, "far": 0.1}, policy=policy)
    for _ in range(8):
        made.pick(request(6_000, allowed_addresses=(cell_view("near").cell.address,)), now_s=1.0, rng=None)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("policy", ["cost", "gorgo:1/1"])
def test_weights_of_an_order_decide_and_go_with_it(policy: str) -> None:
    made = two_cells(policy)
    assert picked(made, request(50)).cell_id == "far"
    made.set_order(ORDER._replace(weights=NEAR_ONLY, child=None))
    assert picked(made, request(50)).cell_id == "near"
    made.set_order(None)
    assert picked(made, request(50)).cell_id == "far"


def test_each_request_has_one_arm_of_about_the_share_that_was_asked_for() -> None:
    arms = [is_child(ORDER._replace(child_share=0.2), f"r{number}") for number in range(5_000)]
    assert 0.18 < sum(arms) / len(arms) < 0.22
    assert arms == [is_child(ORDER._replace(child_share=0.2), f"r{number}") for number in range(5_000)]
    other = [is_child(ORDER._replace(child_share=0.2, generation=4), f"r{number}") for number in range(5_000)]
    both = sum(a and b for a, b in zip(arms, other, strict=True)) / len(arms)
    assert 0.02 < both < 0.06  # generations are independent
    assert not any(is_child(ORDER._replace(child=None), f"r{number}") for number in range(50))


def test_a_sample_says_which_weights_chose_and_what_was_believed() -> None:
    made = two_cells()
    made.set_order(ORDER)
    for number in range(40):
        asked = request(50, request_id=f"x{number}")
        decision = picked(made, asked, now_s=2.0)
        weights, child = weights_for(ORDER, f"x{number}")
        assert decision.cell_id == ("near" if weights is NEAR_ONLY else "far")
        made.set_order(ORDER._replace(generation=9))  # newer than the pick: the sample belongs to the older
        made.finished(decision.decision_id, outcome(decision, ttft_s=0.4, completion_tokens=7), 3.0)
        made.set_order(ORDER)
        (sample,) = made.take_samples()
        assert (sample.driver, sample.generation, sample.child) == ("c", 3, child)
        assert (sample.ttft_s, sample.e2e_s, sample.failed) == (0.4, 1.0, False)
        assert sample.itl_s == pytest.approx(0.1)
        assert sample.rtt_s == pytest.approx(0.001 if child else 0.1)
        assert sample.prefill_s > 0
        assert (sample.queue_s > 1.0) is child
    assert made.take_samples() == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"status": 500}, True),
        ({"status": 400}, False),  # says nothing of the weights
        ({"attempts": 2, "attempted_cells": ("near", "far"), "attempt_failures": ("UF",)}, False),
        ({"client_cancelled": True}, False),
        ({"status": 429}, False),
    ],
)
def test_what_says_nothing_of_the_weights_is_no_sample(changes: dict[str, Any], told: bool) -> None:
    made = two_cells()
    made.set_order(ORDER)
    decision = picked(made, request(50))
    ended: Outcome = outcome(decision, **changes)
    made.finished(decision.decision_id, ended, 3.0)
    samples = made.take_samples()
    assert bool(samples) is told
    assert all(sample.failed and sample.ttft_s is None for sample in samples)


def test_without_an_order_nothing_is_told() -> None:
    made = two_cells()
    decision = picked(made, request(50))
    made.set_order(ORDER)
    made.finished(decision.decision_id, outcome(decision, ttft_s=0.4), 3.0)
    assert made.take_samples() == ()
