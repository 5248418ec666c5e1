"""The regression: it finds the slopes through noise and outliers, and says what cannot be known."""

from random import Random

import pytest

from tradewind.core.tuner.fit import Fit, Point, Ratio, fit
from tradewind.core.tuner.settings import FitSettings

SETTINGS = FitSettings()


def points(
    count: int = 1_500,
    *,
    rtt: float = 1.0,
    queue: float = 1.0,
    prefill: float = 1.0,
    noise: float = 0.3,
    outliers: float = 0.0,
    rtts_s: tuple[float, ...] = (0.03, 0.115, 0.215),
    seed: int = 1,
) -> list[Point]:
    rng = Random(seed)
    made = []
    for _ in range(count):
        rtt_s, queue_s, prefill_s = rng.choice(rtts_s), rng.expovariate(4.0), rng.choice((0.05, 0.2, 0.9))
        ttft_s = (0.02 + rtt * rtt_s + queue * queue_s + prefill * prefill_s) * rng.lognormvariate(0.0, noise)
        if rng.random() < outliers:
            ttft_s += rng.choice((10.0, 60.0))
        made.append(Point(ttft_s, rtt_s, queue_s, prefill_s))
    return made


def fitted(made: list[Point]) -> Fit:
    found = fit(made, SETTINGS)
    assert found is not None
    return found


def close(ratio: Ratio | None, true: float) -> bool:
    assert ratio is not None
    return abs(ratio.value - true) < 3.5 * ratio.error and ratio.error < 0.35 * max(1.0, true)


@pytest.mark.parametrize(("rtt", "queue"), [(1.0, 1.0), (3.0, 0.4), (0.5, 2.0)])
@pytest.mark.parametrize("seed", range(4))
def test_slopes_are_found_through_noise(rtt: float, queue: float, seed: int) -> None:
    found = fitted(points(rtt=rtt, queue=queue, prefill=2.0, seed=seed))
    assert close(found.rtt, rtt / 2.0)
    assert close(found.queue, queue / 2.0)
    assert found.prefill_t > 20


def test_a_few_stalls_of_a_minute_do_not_move_it() -> None:
    clean, stalled = fitted(points()), fitted(points(outliers=0.02))
    assert clean.queue is not None
    assert stalled.queue is not None
    assert stalled.queue.value == pytest.approx(clean.queue.value, abs=0.15)
    assert stalled.prefill == pytest.approx(clean.prefill, rel=0.15)


def test_exact_times_give_exact_slopes() -> None:
    found = fitted(points(400, rtt=0.5, queue=2.0, noise=0.0))
    assert found.rtt is not None
    assert found.rtt.value == pytest.approx(0.5)
    assert found.queue is not None
    assert found.queue.value == pytest.approx(2.0)
    assert found.prefill == pytest.approx(1.0)


def test_neighbours_are_alike_so_errors_are_wider_than_the_residuals_say() -> None:
    one, wide = fit(points(), FitSettings(covariance=1.0)), fitted(points())
    assert one is not None
    assert one.queue is not None
    assert wide.queue is not None
    assert wide.queue.error == pytest.approx(1.5**0.5 * one.queue.error)
    assert wide.prefill_t == pytest.approx(one.prefill_t / 1.5**0.5)


def test_what_does_not_vary_is_not_known() -> None:
    for rtt_s in (0.03, 0.1, 0.115, 0.215, 0.37, 0.6):
        assert fitted(points(rtts_s=(rtt_s,))).rtt is None
    assert close(fitted(points(rtts_s=(0.1,))).queue, 1.0)
    assert fitted([point._replace(queue_s=0.0) for point in points()]).queue is None
    equal = [point._replace(queue_s=2.0 * point.rtt_s) for point in points()]  # nobody can tell the two apart
    assert (fitted(equal).rtt is None) != (fitted(equal).queue is None)


def test_without_a_prefill_slope_there_is_no_fit() -> None:
    rng = Random(2)
    assert fit([point._replace(prefill_s=0.2) for point in points()], SETTINGS) is None
    assert fit([point._replace(ttft_s=rng.lognormvariate(-1.0, 0.8)) for point in points()], SETTINGS) is None
    assert fit([point._replace(ttft_s=1.5 - point.prefill_s) for point in points()], SETTINGS) is None


def test_few_or_senseless_points_are_no_fit() -> None:
    assert fit([], SETTINGS) is None
    assert fit(points(299), SETTINGS) is None
    assert fit([Point(1.0, 0.0, 0.0, 0.0)] * 400, SETTINGS) is None
    assert fit([Point(1e-300, 3600.0, 3600.0, 3600.0)] * 400, SETTINGS) is None
