"""Holding values over missed readings, and telling frozen from idle."""

import pytest

from tradewind.core.frozen import MIN_FROZEN_S, UNKNOWN_INTERVAL_FROZEN_S, FrozenWatch
from tradewind.core.hold import Hold


def test_fc_05_every_third_poll_failing_never_makes_a_value_unknown() -> None:
    hold: Hold[int] = Hold(stale_after_s=3.5)
    changes = 0
    known = False
    for second in range(60):
        if second % 3 == 2:
            hold.miss("connection lost")
        else:
            hold.hit(second, float(second))
        is_known = hold.read(float(second)).value is not None
        changes += is_known != known
        known = is_known
    assert changes == 1, "known from the first reading to the last"


def test_the_first_reading_counts_at_once() -> None:
    hold: Hold[int] = Hold(stale_after_s=3.5)
    assert hold.read(0.0).value is None
    assert hold.read(0.0).reason == "not read yet"
    hold.hit(5, 1.0)
    assert (hold.read(1.25).value, hold.read(1.25).age_s) == (5, 0.25)


def test_three_misses_make_it_unknown_and_two_hits_bring_it_back() -> None:
    hold: Hold[int] = Hold(stale_after_s=10.0)
    hold.hit(1, 0.0)
    for _ in range(2):
        hold.miss("refused")
        assert hold.read(1.0).value == 1
        assert hold.missed
    hold.miss("refused")
    assert hold.read(1.0).value is None
    assert hold.read(1.0).reason == "refused"
    hold.hit(2, 2.0)
    assert hold.read(2.0).value is None
    assert hold.missed
    hold.hit(3, 3.0)
    assert hold.read(3.0).value == 3
    assert not hold.missed


def test_a_hit_between_misses_does_not_count_as_two() -> None:
    hold: Hold[int] = Hold(stale_after_s=10.0)
    hold.hit(1, 0.0)
    for _ in range(3):
        hold.miss("refused")
    hold.hit(2, 1.0)
    hold.miss("refused")
    hold.hit(3, 2.0)
    assert hold.read(2.0).value is None


def test_silence_makes_it_unknown_without_any_miss() -> None:
    hold: Hold[int] = Hold(stale_after_s=3.5)
    hold.hit(1, 0.0)
    assert hold.read(3.5).value == 1
    assert hold.read(3.6).value is None
    assert "3.5 s" in hold.read(3.6).reason
    hold.hit(2, 4.0)
    assert hold.read(4.0).value is None, "one reading after a hole is not enough"
    hold.hit(3, 5.0)
    assert hold.read(5.0).value == 3


def test_a_replaced_target_starts_afresh() -> None:
    hold: Hold[int] = Hold(stale_after_s=3.5)
    hold.hit(1, 0.0)
    hold.forget("restarted")
    assert hold.read(0.0).value is None
    assert hold.read(0.0).reason == "restarted"
    hold.hit(2, 1.0)
    assert hold.read(1.0).value == 2


class Gpu:
    """Feeds a watch once a second."""

    def __init__(self) -> None:
        self.watch = FrozenWatch()
        self.now_s = 0.0
        self.value = 0

    def is_frozen(self) -> bool:
        return self.watch.is_frozen

    def run(self, seconds: int, *, every_s: int | None, worked: bool) -> None:
        """Look once a second; the value changes every every_s seconds, or never."""
        for _ in range(seconds):
            self.now_s += 1.0
            if every_s is not None and int(self.now_s) % every_s == 0:
                self.value += 1
            self.watch.look(self.value, engine_worked=worked, now_s=self.now_s)


def test_fc_36_values_that_stand_still_under_work_are_frozen() -> None:
    gpu = Gpu()
    gpu.run(20, every_s=1, worked=True)
    assert gpu.watch.interval_s == pytest.approx(1.0)
    gpu.run(int(MIN_FROZEN_S), every_s=None, worked=True)
    assert not gpu.is_frozen()
    gpu.run(1, every_s=None, worked=True)
    assert gpu.is_frozen()
    gpu.run(1, every_s=1, worked=True)
    assert gpu.is_frozen(), "one change may be chance"
    gpu.run(1, every_s=1, worked=True)
    assert not gpu.is_frozen()


def test_fc_36_an_idle_gpu_is_not_frozen() -> None:
    gpu = Gpu()
    gpu.run(20, every_s=1, worked=True)
    gpu.run(600, every_s=None, worked=False)
    assert not gpu.is_frozen()
    assert gpu.watch.interval_s == 1.0, "idle time says nothing of the interval"
    gpu.run(3, every_s=1, worked=True)
    assert not gpu.is_frozen()
    assert gpu.watch.interval_s == pytest.approx(1.0)


def test_fc_36_a_slow_exporter_is_not_frozen() -> None:
    gpu = Gpu()
    gpu.run(200, every_s=30, worked=True)
    assert not gpu.is_frozen()
    assert gpu.watch.interval_s == 30.0
    gpu.run(91, every_s=None, worked=True)
    assert gpu.is_frozen()
    gpu.run(70, every_s=30, worked=True)
    assert not gpu.is_frozen()


def test_fc_36_frozen_from_the_start() -> None:
    gpu = Gpu()
    gpu.run(int(UNKNOWN_INTERVAL_FROZEN_S) + 1, every_s=None, worked=True)
    assert not gpu.is_frozen()
    gpu.run(1, every_s=None, worked=True)
    assert gpu.is_frozen()
    assert gpu.watch.interval_s is None
