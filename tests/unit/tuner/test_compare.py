"""The comparison: a worse child is refused, a harmful one at once, and only its own generation's decisions count."""

from math import exp
from random import Random

import pytest

from tests.unit.tuner.bed import sample
from tradewind.core.tuner.compare import Comparison, Verdict
from tradewind.core.tuner.settings import CompareSettings
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

SETTINGS = CompareSettings()
ORDER = TuningOrder(driver="d", generation=7, weights=PHYSICS, child=Weights(2.0, 1.0), child_share=0.5)


def comparison(*, physics_p95_s: float | None = None, leaves_physics: bool = False) -> Comparison:
    return Comparison(
        driver="d",
        generation=7,
        leaves_physics=leaves_physics,
        settings=SETTINGS,
        physics_p95_s=physics_p95_s,
    )


def request(rng: Random, number: int, *, sd: float = 0.5, **child_factors: float) -> Sample:
    """In turn by parent and child; the child's times by these factors."""
    child = number % 2 == 1
    by = {name: factor if child else 1.0 for name, factor in child_factors.items()}
    ttft_s = 0.4 * by.get("ttft", 1.0) * exp(rng.gauss(0.0, sd))
    itl_s = 0.02 * by.get("itl", 1.0) * exp(rng.gauss(0.0, 0.2))
    failed = child and rng.random() < child_factors.get("failed", 0.0)
    crowd = child_factors.get("top", 0.34) if child else 0.34
    made = sample(
        ORDER,
        child=child,
        cell_id="a" if rng.random() < crowd else rng.choice("bc"),
        dispatched_s=float(number),
        finished_s=number + 3.0,
        ttft_s=ttft_s,
        itl_s=itl_s,
        e2e_s=(ttft_s + 2.0) * by.get("e2e", 1.0) * exp(rng.gauss(0.0, 0.2)),
    )
    return made._replace(failed=True, ttft_s=None, e2e_s=None, itl_s=None) if failed else made


def judged(compare: Comparison, rng: Random, **child_factors: float) -> tuple[Verdict, int]:
    for number in range(5_000):
        verdict = compare.add(request(rng, number, **child_factors))
        if verdict is not None:
            return verdict, number + 1
    raise AssertionError("no verdict")


def test_the_same_weights_are_mostly_no_worse_and_never_early() -> None:
    verdicts = [judged(comparison(), Random(seed)) for seed in range(40)]
    accepted = [count for verdict, count in verdicts if verdict.accepted]
    assert len(accepted) >= 32
    assert set(accepted) == {SETTINGS.window + SETTINGS.grace}
    assert sum(verdict.breach for verdict, _ in verdicts) <= 6


def test_a_child_with_longer_first_tokens_is_rejected() -> None:
    for seed in range(20):
        verdict, count = judged(comparison(), Random(seed), ttft=1.6)
        assert not verdict.accepted
        if not verdict.breach:
            assert count == SETTINGS.window + SETTINGS.grace
            assert verdict.reason.startswith("worse: mean TTFT")


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ({"e2e": 1.4, "ttft": 0.7}, "mean E2E"),
        ({"itl": 1.4, "ttft": 0.7}, "mean ITL"),
        ({"top": 0.95, "ttft": 0.7}, "of the child's requests went to a"),
        ({"failed": 0.2, "ttft": 0.7}, "requests failed by the child"),
    ],
)
def test_a_breach_ends_it_at_once_however_fast_first_tokens_are(factors: dict[str, float], told: str) -> None:
    for seed in range(20):
        verdict, count = judged(comparison(), Random(seed), **factors)
        assert (verdict.accepted, verdict.breach) == (False, True)
        assert told in verdict.reason
        assert not verdict.to_physics
        assert count < SETTINGS.window
        assert verdict.figures


def test_both_arms_slower_than_physics_was_is_a_breach_back_to_physics() -> None:
    verdict, count = judged(comparison(physics_p95_s=2.0), Random(1))
    assert (verdict.accepted, verdict.breach, verdict.to_physics) == (False, True, True)
    assert "2.00 s under physics at this load" in verdict.reason
    assert count < SETTINGS.window
    assert judged(comparison(physics_p95_s=9.0), Random(1))[0].accepted


def test_what_leaves_physics_must_look_no_worse_in_anything() -> None:
    doubted = 0
    for seed in range(24):
        home, _ = judged(comparison(), Random(seed), ttft=0.9, e2e=1.02)
        away, _ = judged(comparison(leaves_physics=True), Random(seed), ttft=0.9, e2e=1.02)
        assert home.accepted or not away.accepted
        if home.accepted and not away.accepted:
            assert "must look no worse" in away.reason
            assert not away.breach
            doubted += 1
    assert doubted >= 8
    assert judged(comparison(leaves_physics=True), Random(1), ttft=0.6, e2e=0.8, itl=0.8)[0].accepted


def test_other_generations_and_drivers_do_not_count_whenever_they_end() -> None:
    compare, rng = comparison(), Random(3)
    for number in range(2_000):
        made = request(rng, number)
        assert compare.add(made._replace(generation=6)) is None
        assert compare.add(made._replace(generation=8)) is None
        assert compare.add(made._replace(driver="other")) is None
    assert compare.measured == 0


def test_what_was_decided_after_the_window_is_not_in_it_and_slow_ones_are() -> None:
    compare, rng = comparison(), Random(4)
    for number in range(SETTINGS.window):
        assert compare.add(request(rng, number)) is None
    late = request(rng, 0)._replace(dispatched_s=5.0)
    assert compare.add(late) is None
    assert compare.measured == SETTINGS.window + 1
    assert compare.add(late._replace(dispatched_s=9_999.0)) is None
    assert compare.measured == SETTINGS.window + 1


def test_requests_without_a_first_token_do_not_fill_the_window_and_are_given_up() -> None:
    compare = comparison()
    for number in range(SETTINGS.starved):
        assert not compare.starved
        unknown = sample(ORDER, child=number % 2 == 1, dispatched_s=float(number), ttft_s=None, itl_s=None)
        assert compare.add(unknown) is None
    assert compare.starved


@pytest.mark.parametrize("value", [0.0, -1.0, 5e-324, 1e300, float("inf")])
def test_times_that_cannot_be_are_not_believed(value: float) -> None:
    compare, rng = comparison(), Random(5)
    for number in range(1_000):
        assert compare.add(request(rng, number)._replace(ttft_s=value, e2e_s=value, itl_s=value)) is None
    assert compare.measured == 0


def test_unknown_is_not_zero_in_any_guard() -> None:
    """Half of the child's answers say nothing of their length: the other half decides."""
    compare, rng = comparison(), Random(6)
    for number in range(1_000):
        made = request(rng, number)
        verdict = compare.add(made._replace(e2e_s=None, itl_s=None) if number % 4 == 1 else made)
        if verdict is not None:
            break
    assert verdict is not None
    assert verdict.accepted
