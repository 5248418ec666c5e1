"""Regimes: load in steps of two, with hysteresis; a reference needs enough of physics."""

from random import Random

from tradewind.core.tuner.regimes import NUMBERS, LoadSteps, Regime
from tradewind.core.tuner.settings import RegimeSettings

SETTINGS = RegimeSettings()


def sent(load: LoadSteps, rate: float, count: int, *, from_s: float = 0.0, rng: Random | None = None) -> list[int]:
    """Requests at a rate; the regimes that were entered."""
    entered = []
    at_s = from_s
    for _ in range(count):
        at_s += rng.expovariate(rate) if rng is not None else 1.0 / rate
        if load.add(at_s):
            assert load.number is not None
            entered.append(load.number)
    return entered


def test_the_first_reading_says_where_it_is() -> None:
    load = LoadSteps(SETTINGS)
    assert sent(load, 4.0, 299) == []
    assert load.number is None
    assert sent(load, 4.0, 100, from_s=299 / 4.0) == [2]
    assert load.rate is not None
    assert 3.9 < load.rate < 4.1


def test_a_load_on_the_border_stays_where_it_was() -> None:
    for seed in range(10):
        for number in (2, 3):
            load = LoadSteps(SETTINGS, number)
            assert sent(load, 4.0 * 2**0.5, 10_000, rng=Random(seed)) == []


def test_a_doubled_load_is_another_regime_within_a_thousand_requests() -> None:
    for seed in range(10):
        rng, load = Random(seed), LoadSteps(SETTINGS)
        assert sent(load, 4.0, 3_000, rng=rng) == [2]
        assert sent(load, 8.0, 1_000, from_s=max(load._sent_s), rng=rng) == [3]


def test_times_that_cannot_be_read_leave_it_where_it_is() -> None:
    load = LoadSteps(SETTINGS, 2)
    assert not any(load.add(5.0) for _ in range(1_000))
    assert load.rate is None
    assert load.number == 2
    for _ in range(2_000):
        load.add(Random(1).choice((-1e300, 1e300)))
    assert load.number in range(NUMBERS[0], NUMBERS[1] + 1)


def test_a_reference_is_the_p95_of_the_latest_and_needs_enough_of_them() -> None:
    regime = Regime()
    for value in range(499):
        regime.under_physics(float(value), SETTINGS)
    regime.refer(SETTINGS)
    assert regime.physics_p95_s is None
    for value in range(499, 3_000):
        regime.under_physics(float(value), SETTINGS)
    regime.refer(SETTINGS)
    assert regime.physics_p95_s == 2_950.0
