"""Detectors: silent while nothing changes, quick when it does, and aware of which cell."""

from math import log
from random import Random

import pytest

from tradewind.core.tuner.cusum import Cusum, Watch
from tradewind.core.tuner.settings import CusumSettings

SETTINGS = CusumSettings()


def test_no_false_alarm_in_ten_thousand_requests_of_any_seed() -> None:
    alarms = 0
    for seed in range(10):
        rng, detector = Random(seed), Cusum(SETTINGS, 20)
        alarms += sum(detector.add(rng.gauss(0.0, 0.8)) is not None for _ in range(10_000))
    assert alarms == 0


@pytest.mark.parametrize(("factor", "most"), [(2.0, 120), (0.5, 120), (1.5, 300)])
def test_a_change_is_seen_soon_and_its_size_told(factor: float, most: int) -> None:
    for seed in range(10):
        rng, detector = Random(seed), Cusum(SETTINGS, 20)
        assert not any(detector.add(rng.gauss(-0.3, 0.8)) for _ in range(3_000))
        shifts = (detector.add(rng.gauss(-0.3 + log(factor), 0.8)) for _ in range(most))
        after, shift = next((after, shift) for after, shift in enumerate(shifts, 1) if shift is not None)
        assert shift.ratio == pytest.approx(factor, rel=0.5)
        assert shift.after <= after + 100


def test_nothing_is_said_before_there_is_a_reference() -> None:
    detector = Cusum(SETTINGS, 20)
    assert not any(detector.add(float(number % 7) * 100.0) for number in range(1_499))
    assert not detector.ready
    detector.add(0.0)
    assert detector.ready


def test_one_slow_cell_of_three_is_named() -> None:
    rng, watch = Random(5), Watch(SETTINGS)
    cells = ("a", "b", "c")
    for number in range(3_000):
        assert watch.add(cells[number % 3], rng.gauss(0.0, 0.5)) is None
    shifts = (watch.add(cells[number % 3], rng.gauss(log(3) * (number % 3 == 1), 0.5)) for number in range(3_000))
    found = next(shift for shift in shifts if shift is not None)
    assert found.cell_id == "b"
    assert found.ratio == pytest.approx(3.0, rel=0.4)


def test_cells_come_and_go_and_no_more_are_held_than_the_bound() -> None:
    watch = Watch(CusumSettings(cells=5))
    for number in range(1_000):
        watch.add(f"c{number}", 0.0)
    assert len(watch._cells) == 5


def test_a_constant_stream_has_no_spread_and_does_no_harm() -> None:
    detector = Cusum(SETTINGS, 20)
    assert not any(detector.add(0.5) for _ in range(5_000))
    assert any(detector.add(0.7) for _ in range(200))
