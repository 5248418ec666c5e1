"""What was known before the choice is taken out of the difference between two arms."""

import random
from statistics import fmean, pstdev

import pytest

from tradewind.core.tuner.adjust import Difference, Measured, adjusted_difference


def arm(
    rng: random.Random, count: int, *, effect: float = 0.0, slope: float = 0.0, noise: float = 0.3
) -> list[Measured]:
    """Requests whose value depends on both covariates."""
    found = []
    for _ in range(count):
        first, second = rng.gauss(5.0, 1.0), rng.gauss(7.0, 1.0)
        found.append(Measured(effect + slope * (first - second) + noise * rng.gauss(0.0, 1.0), first, second))
    return found


def plain(arms: tuple[list[Measured], list[Measured]]) -> float:
    return fmean(each.value for each in arms[1]) - fmean(each.value for each in arms[0])


def test_it_finds_the_effect_with_less_noise_than_the_means() -> None:
    rng = random.Random(1)
    pairs = [(arm(rng, 100, slope=1.0), arm(rng, 100, slope=1.0, effect=0.2)) for _ in range(100)]
    found = [adjusted_difference(*pair) for pair in pairs]
    assert fmean(each.change for each in found) == pytest.approx(0.2, abs=0.01)
    assert pstdev([each.change for each in found]) < 0.25 * pstdev([plain(pair) for pair in pairs])


def test_its_error_is_the_spread_of_what_it_says() -> None:
    rng = random.Random(2)
    found = [adjusted_difference(arm(rng, 80, slope=2.0), arm(rng, 120, slope=2.0)) for _ in range(200)]
    assert fmean(each.error for each in found) == pytest.approx(pstdev([each.change for each in found]), rel=0.15)
    assert fmean(abs(each.z) > 1.96 for each in found) == pytest.approx(0.05, abs=0.05)


def test_an_effect_of_the_arm_is_not_taken_for_one_of_a_covariate() -> None:
    rng = random.Random(3)
    parent = [Measured(rng.gauss(0.0, 0.1), rng.gauss(0.0, 1.0), 0.0) for _ in range(500)]
    child = [Measured(1.0 + rng.gauss(0.0, 0.1), rng.gauss(0.3, 1.0), 0.0) for _ in range(500)]
    assert adjusted_difference(parent, child).change == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("covariates", [(1.0, 2.0), (0.0, 0.0)])
def test_covariates_that_say_nothing_leave_the_difference_of_the_means(covariates: tuple[float, float]) -> None:
    parent = [Measured(value, *covariates) for value in (1.0, 2.0, 3.0)]
    child = [Measured(value, *covariates) for value in (2.0, 3.0, 5.0)]
    found = adjusted_difference(parent, child)
    assert found.change == pytest.approx(4.0 / 3.0)
    assert found.error == pytest.approx((1.0 / 3.0 + 7.0 / 9.0) ** 0.5)


def test_covariates_that_say_the_same_count_once() -> None:
    rng = random.Random(4)
    firsts = [rng.gauss(0.0, 1.0) for _ in range(400)]
    arms = [[Measured(3.0 * x + rng.gauss(0.0, 0.01), x, x) for x in half] for half in (firsts[:200], firsts[200:])]
    assert adjusted_difference(*arms).change == pytest.approx(0.0, abs=0.01)


def test_no_spread_is_no_evidence() -> None:
    same = [Measured(1.0, 0.0, 0.0)] * 3
    assert adjusted_difference(same, same) == Difference(0.0, 0.0)
    assert Difference(1.0, 0.0).z == 0.0
