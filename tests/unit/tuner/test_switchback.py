"""The blocked check of two settings: its blocks, its answer, and what it costs."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import exp
from statistics import NormalDist, fmean

import pytest

from tests.unit.tuner.samples import PLAIN, under
from tradewind.core.tuner.answer import Answer, Block, Estimate, Seen, answer_of
from tradewind.core.tuner.box import SHIPPED
from tradewind.core.tuner.power import (
    BLOCK,
    DISCARD,
    LEAST,
    PAIR,
    STUDY,
    Spread,
    requests_needed,
    smallest_change,
    spread_of,
    whole_pairs,
)
from tradewind.core.tuner.student import student_quantile
from tradewind.core.tuner.switchback import Check, Switchback
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import Sample, Weights

A, B = Weights(1.0, 1.0), Weights(1.0, 0.5)
LATE = 40  # requests
TTFTS_S = [exp(0.6 * NormalDist().inv_cdf((n + 0.5) / 2_000)) for n in range(2_000)]


def check(*, requests: int = LEAST, seed: int = 1) -> Switchback:
    return Switchback(driver="d", check=Check(present=A, other=B, requests=requests, seed=seed), box=SHIPPED)


def driven(
    tuner: Tuner, *, seed: int = 1, ttft: float = 1.0, e2e: float = 1.0, carried: float = 0.0, requests: int = 20_000
) -> tuple[list[TunerEvent], list[Weights]]:
    """Requests until a check ends; TTFT and E2E of the other setting are so many times the present one's.

    `carried`: what the setting before does to log TTFT in the first requests after a switch.
    """
    rng = random.Random(seed)
    pending: list[Sample] = []
    events: list[TunerEvent] = []
    used: list[Weights] = []
    since, last = 0, tuner.order.weights
    for request in range(requests):
        order = tuner.order
        since, last = (since + 1, last) if order.weights == last else (0, order.weights)
        used.append(order.weights)
        slow = exp(carried * (since < DISCARD - LATE) * (1 if order.weights == A else -1))
        other = order.weights == B
        ttft_s = slow * (ttft if other else 1.0) * exp(-1.0 + 0.6 * rng.gauss(0.0, 1.0))
        e2e_s = (e2e if other else 1.0) * rng.gauss(3.0, 0.3)
        pending.append(under(order, request, ttft_s=ttft_s, e2e_s=e2e_s))
        if len(pending) > LATE:
            events += tuner.learn([pending.pop(0)], float(request))
        if any(event.what is Happened.CHECKED for event in events):
            break
    return events, used


def answered(tuner: Switchback) -> Answer:
    assert tuner.answer is not None
    return tuner.answer


def estimate(answer: Answer, figure: str) -> Estimate:
    return next(each for each in answer.estimates if each.figure == figure)


def runs(used: Sequence[Weights]) -> list[tuple[Weights, int]]:
    """Weights that were in force, and for how many requests."""
    starts = [0, *(at for at, (a, b) in enumerate(pairwise(used), 1) if a != b), len(used)]
    return [(used[a], b - a) for a, b in pairwise(starts)]


def test_all_requests_go_by_one_setting_and_then_all_by_the_other_in_drawn_pairs() -> None:
    tuner = check()
    events, used = driven(tuner)
    assert [event.what for event in events] == [Happened.CHECKED]
    halves = used[LATE : 14 * (BLOCK + LATE) : BLOCK + LATE]  # a block ends when 600 of it have ended
    assert len(halves) == tuner.requests // BLOCK == 14
    assert all({first, second} == {A, B} for first, second in zip(halves[::2], halves[1::2], strict=True))
    assert set(halves[::2]) == {A, B}, "AB and BA"
    assert all(count % (BLOCK + LATE) == 0 for _, count in runs(used)[:-2])
    assert tuner.order.weights == A
    assert tuner.order.child is None


def test_the_order_of_the_pairs_is_the_seeds() -> None:
    assert check(seed=3).order == check(seed=3).order
    assert Counter(check(seed=seed).order.weights for seed in range(40))[B] in range(10, 31)


@pytest.mark.parametrize(("ttft", "winner"), [(0.8, "other"), (1.25, "present")])
def test_a_clear_difference_is_found_with_its_size(ttft: float, winner: str) -> None:
    tuner = check()
    (event,), _ = driven(tuner, ttft=ttft)
    answer = answered(tuner)
    assert answer.winner == winner
    for figure in ("p95 TTFT", "typical TTFT"):
        found = estimate(answer, figure)
        assert found.low < ttft - 1.0 < found.high
        assert found.other / found.present == pytest.approx(1.0 + found.change)
    assert estimate(answer, "mean E2E").sign == 0
    assert f"the {winner} setting is better" in event.reason
    assert event.weights == A, "nothing is changed"


def blocks(rng: random.Random, pairs: int, *, ttft: float = 1.0) -> list[Block]:
    """What a check has heard when it ends; the load of each pair is its own."""
    found = []
    for _ in range(pairs):
        level = exp(0.3 * rng.gauss(0.0, 1.0))
        for other in (False, True):
            scale = level * (ttft if other else 1.0)
            drawn = enumerate(rng.choices(TTFTS_S, k=BLOCK))
            seen = [Seen(float(n), scale * ttft_s, 3.0 * level, False) for n, ttft_s in drawn]
            found.append(Block(other, seen))
    return found


def test_what_cannot_be_told_is_said() -> None:
    answers = [answer_of(blocks(random.Random(seed), 7), discard=DISCARD) for seed in range(12)]
    told = [answer.told for answer in answers if not answer.winner]
    assert len(told) >= 10
    assert all("it cannot be told which is better" in each for each in told)


def test_the_load_of_a_pair_is_no_difference_between_its_blocks() -> None:
    answer = answer_of(blocks(random.Random(1), 7, ttft=0.9), discard=DISCARD)
    found = estimate(answer, "typical TTFT")
    assert found.high < -0.05, "the levels of the pairs differ by far more"
    assert estimate(answer, "mean E2E").change == pytest.approx(0.0)


def test_figures_that_contradict_each_other_have_no_winner() -> None:
    tuner = check()
    (event,), _ = driven(tuner, ttft=0.7, e2e=1.3)
    assert answered(tuner).winner == ""
    assert "contradict" in event.reason


def test_the_first_requests_after_a_switch_do_not_count() -> None:
    tuner = check()
    driven(tuner, carried=3.0)
    assert answered(tuner).winner == ""
    assert abs(estimate(answered(tuner), "typical TTFT").change) < 0.05


def test_requests_belong_to_the_block_of_their_decision_however_late_they_end() -> None:
    """Slow ones of one setting end in the other's block: without half of them its p95 would look as good."""
    tuner = check()
    pending: list[tuple[int, Sample]] = []
    for request in range(20_000):
        order = tuner.order
        slow = order.weights == B and request % 14 == 0
        pending.append((request + (300 if slow else 5), under(order, request, ttft_s=9.0 if slow else 0.5)))
        ready = [sample for at, sample in pending if at <= request]
        pending = [(at, sample) for at, sample in pending if at > request]
        tuner.learn(ready, float(request))
        if tuner.answer is not None:
            break
    found = estimate(answered(tuner), "p95 TTFT")
    assert found.present == pytest.approx(0.5)
    assert found.other > 4.0


def test_unknown_times_are_none_and_failures_are_told() -> None:
    tuner = check()
    for request in range(20_000):
        failed = tuner.order.weights == B and request % 50 == 0
        times: dict[str, object] = dict.fromkeys(("ttft_s", "e2e_s", "itl_s")) if failed else {"ttft_s": None}
        tuner.learn([under(tuner.order, request, failed=failed, **times)], float(request))
        if tuner.answer is not None:
            break
    answer = answered(tuner)
    assert [each.figure for each in answer.estimates] == ["mean E2E"]
    assert answer.failed_present == 0
    assert 50 < answer.failed_other < 90
    assert f"failed: 0 present, {answer.failed_other} other" in answer.told


def test_times_that_no_request_can_take_are_unknown() -> None:
    block = Block(other=False)
    for ttft_s in (5e-324, 0.0, -1.0, float("nan"), float("inf"), 1e9, 0.4):
        block.add(PLAIN._replace(ttft_s=ttft_s, e2e_s=ttft_s))
    assert [seen.ttft_s for seen in block.seen] == [None] * 6 + [0.4]
    assert [seen.e2e_s for seen in block.seen] == [None] * 6 + [0.4]


def test_without_any_times_it_cannot_be_told() -> None:
    assert "cannot be told" in Answer((), 8_400, 0, 0).told


def test_a_stranger_is_no_part_of_it() -> None:
    tuner = check()
    for request in range(3_000):
        assert not tuner.learn([PLAIN._replace(driver="e", dispatched_s=float(request))], 1.0)
    assert tuner.heard == 0


def test_it_is_given_up_and_begins_anew() -> None:
    tuner = check()
    driven(tuner, requests=2_000)
    (event,) = tuner.freeze(1.0)
    assert (event.what, tuner.order.weights) == (Happened.VOIDED, A)
    assert "of 8,400 requests" in event.reason
    assert not driven(tuner, requests=1_000)[0]
    assert [each.what for each in tuner.thaw(2.0)] == [Happened.PROPOSED]
    assert [each.what for each in driven(tuner)[0]] == [Happened.CHECKED]
    assert not tuner.thaw(3.0), "it has its answer"
    assert [each.what for each in tuner.reset(4.0)] == [Happened.PROPOSED]


def test_a_restart_ends_it_at_the_present_setting() -> None:
    tuner = check()
    driven(tuner, requests=2_000)
    again = check()
    (event,) = again.restore(tuner.keep(), 1.0)
    assert (event.what, again.order.weights, again.frozen) == (Happened.VOIDED, A, True)
    assert again.order.generation > tuner.order.generation


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (Check(present=A, other=A), "both settings are the same"),
        (Check(present=A, other=Weights(9.0, 1.0)), "the rtt weight must be between"),
        (Check(present=A, other=B, requests=500), "takes 8,000 to 200,000 requests, not 500"),
    ],
)
def test_what_is_no_check_is_refused(asked: Check, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Switchback(driver="d", check=asked, box=SHIPPED)


def test_what_a_check_costs_is_the_studys_figure() -> None:
    """Its z is 2; here three intervals hold together, which takes 2.39."""
    more = ((2.394 + 0.842) / (2.0 + 0.842)) ** 2
    per_arm = requests_needed(0.05) * (BLOCK - DISCARD) / BLOCK / 2
    assert per_arm == pytest.approx(18_400 * more, rel=0.08)
    by_log = requests_needed(0.02, error=STUDY.log_ttft) * (BLOCK - DISCARD) / BLOCK / 2
    assert by_log == pytest.approx(4_100 * (0.05 / 0.02) ** 2 * more, rel=0.06)
    assert requests_needed(0.5) == whole_pairs(LEAST) == 8_400
    for bad in (0.0, -0.1, 1.0):
        with pytest.raises(ValueError, match="the change must be above 0"):
            requests_needed(bad)


@pytest.mark.parametrize("effect", [0.02, 0.05, 0.08])
def test_so_many_requests_show_the_change_that_they_were_asked_for(effect: float) -> None:
    requests = requests_needed(effect)
    assert smallest_change(requests) <= effect < smallest_change(requests - 2 * BLOCK)


def test_so_many_requests_do_show_it() -> None:
    effect, rng = 0.05, random.Random(1)
    pairs = requests_needed(effect, error=0.6) // PAIR
    assert 8 <= pairs <= 12
    answers = [answer_of(blocks(rng, pairs, ttft=1.0 - effect), discard=DISCARD) for _ in range(20)]
    assert 12 <= sum(estimate(answer, "typical TTFT").sign == -1 for answer in answers) <= 19


def spread(rng: random.Random, *, wave: float, count: int = 5_000) -> Spread:
    """Of requests whose load is another one every 500."""
    samples, level = [], 1.0
    for number in range(count):
        if number % 500 == 0:
            level = exp(wave * rng.gauss(0.0, 1.0))
        ttft_s = level * exp(0.8 * rng.gauss(0.0, 1.0))
        samples.append(PLAIN._replace(ttft_s=ttft_s, e2e_s=level * rng.gauss(3.0, 0.3)))
    found = spread_of(samples)
    assert found is not None
    return found


def test_the_spread_that_was_seen_takes_the_place_of_the_studys() -> None:
    calm = spread(random.Random(1), wave=0.0)
    assert calm.log_ttft == pytest.approx(STUDY.log_ttft, rel=0.25)
    assert calm.p95_ttft == pytest.approx(STUDY.p95_ttft, rel=0.35)
    assert calm.mean_e2e == pytest.approx(0.1, rel=0.35)
    assert spread_of([PLAIN] * 199) is None
    assert spread_of([PLAIN._replace(ttft_s=None)] * 500) is None


def test_waves_of_load_make_blocks_differ_by_more_than_their_requests_do() -> None:
    """Two stretches whose loads differ by 10 % each: 0.1 * sqrt(500) per request, beside the 0.8 of one."""
    waves = spread(random.Random(2), wave=0.1)
    assert waves.log_ttft == pytest.approx((0.8**2 + 0.1**2 * 500) ** 0.5, rel=0.4)
    assert waves.mean_e2e == pytest.approx(0.1 * 500**0.5, rel=0.4)
    assert requests_needed(0.05, error=waves.log_ttft) > 3 * requests_needed(0.05, error=STUDY.log_ttft)


@pytest.mark.parametrize(
    ("level", "freedom", "value"),
    [(0.95, 1, 12.706), (0.95, 6, 2.447), (0.95, 30, 2.042), (0.99, 6, 3.707), (0.98333, 6, 3.2875)],
)
def test_students_quantiles(level: float, freedom: int, value: float) -> None:
    assert student_quantile(level, freedom) == pytest.approx(value, rel=2e-3)


def test_students_quantiles_of_many_are_normal() -> None:
    assert student_quantile(0.95, 5_000) == pytest.approx(NormalDist().inv_cdf(0.975), rel=1e-3)


def test_a_mean_over_blocks_says_what_is_seen() -> None:
    answer = answer_of(blocks(random.Random(2), 40, ttft=0.9), discard=DISCARD)
    found = estimate(answer, "typical TTFT")
    assert found.present == pytest.approx(1.0, rel=0.15)
    assert found.other / found.present == pytest.approx(0.9, abs=0.02)
    assert fmean((found.low, found.high)) == pytest.approx(found.change, abs=0.01)
