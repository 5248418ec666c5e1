"""GORGO's tuner as published, with its faults."""

import json
import random

import pytest

from tests.unit.tuner.samples import PLAIN, fed, under
from tradewind.core.tuner.box import AS_TESTED, PUBLISHED
from tradewind.core.tuner.es import HOP, JUDGED, SIGMA, SIGMA_DECAY, TOLERANCE, WINDOW, Es, score_of, stepped
from tradewind.core.tuner.named import tuner_named
from tradewind.core.tuner.tuner import Happened, TunerEvent
from tradewind.model.tuning import Weights

START = Weights(0.5, 0.1)


def es(start: Weights = START) -> Es:
    return Es(driver="d", seed=1, start=start, box=PUBLISHED)


def heard(tuner: Es, count: int, ttft_s: float) -> list[TunerEvent]:
    """So many completions, all with the same TTFT."""
    return [event for n in range(count) for event in tuner.learn([under(tuner.order, n, ttft_s=ttft_s)], 1.0)]


def test_the_first_window_is_the_parents_and_each_hop_a_verdict() -> None:
    tuner = es()
    assert not heard(tuner, WINDOW - 1, 1.0)
    assert tuner.order.weights == START
    (proposed,) = heard(tuner, 1, 1.0)
    assert proposed.what is Happened.PROPOSED
    assert tuner.order.weights == proposed.child != START
    assert tuner.order.child is None, "the whole traffic goes by the child"
    assert not heard(tuner, HOP - 1, 1.0)
    assert [event.what for event in heard(tuner, 1, 1.0)] == [Happened.ACCEPTED, Happened.PROPOSED], "by the tolerance"


@pytest.mark.parametrize(("ttft_s", "verdict"), [(1.004, Happened.ACCEPTED), (1.006, Happened.REJECTED)])
def test_a_child_that_is_a_little_worse_is_accepted(ttft_s: float, verdict: Happened) -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    assert heard(tuner, HOP, ttft_s)[0].what is verdict
    assert TOLERANCE == 0.005


def test_a_child_is_judged_by_the_requests_of_those_before() -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    heard(tuner, HOP, 3.0)
    for _ in range(3):
        assert heard(tuner, HOP, 0.1)[0].what is Happened.REJECTED, "its own 32 are good, the window's 128 are not"
    assert heard(tuner, HOP, 0.1)[0].what is Happened.ACCEPTED


def test_the_luckiest_window_wins_for_ever() -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    assert heard(tuner, WINDOW, 0.1)[-2].what is Happened.ACCEPTED
    lucky = tuner.parent
    assert lucky != START
    assert all(heard(tuner, HOP, 0.2)[0].what is Happened.REJECTED for _ in range(9))
    assert tuner.parent == lucky


def test_it_credits_whatever_completes_of_its_own_and_skips_what_has_no_first_token() -> None:
    tuner = es()
    late = PLAIN._replace(generation=77, ttft_s=0.3)
    assert not tuner.learn([late._replace(ttft_s=None, failed=True)] * WINDOW, 1.0)
    assert not tuner.learn([late._replace(driver="d.check1")] * WINDOW, 1.0)
    assert [event.what for event in tuner.learn([late] * WINDOW, 1.0)] == [Happened.PROPOSED]


def test_sigma_goes_by_the_fifth_rule_without_upper_bound() -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    ttft_s = 1.0
    for _ in range(30):  # each window as good as the one before within the tolerance
        ttft_s *= 1.004
        heard(tuner, HOP, ttft_s)
    assert tuner.sigma == pytest.approx(SIGMA / SIGMA_DECAY ** (30 - JUDGED + 1))
    assert tuner.sigma > 12.7
    assert PUBLISHED.problem(tuner.order.weights) == ""


def test_failures_shrink_sigma_until_the_search_ends_by_itself() -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    events = [event for _ in range(40) for event in heard(tuner, HOP, 2.0)]
    rejected = [event for event in events if event.what is Happened.REJECTED]
    assert len(rejected) == JUDGED - 1 + 12  # 0.5 * 0.817 ** 12 < 0.05
    assert events[-1].what is Happened.FROZEN
    assert tuner.frozen
    assert tuner.order.weights == START
    assert [event.what for event in tuner.reset(2.0)] == [Happened.RESET]
    assert not tuner.frozen


def test_it_hops_alike_in_batches_and_one_by_one() -> None:
    rng = random.Random(3)
    samples = [PLAIN._replace(ttft_s=rng.expovariate(2.0)) for _ in range(1_000)]
    one, many = es(), es()
    for sample in samples:
        one.learn([sample], 1.0)
    for at in range(0, 1_000, 50):
        many.learn(samples[at : at + 50], 1.0)
    assert one.order == many.order
    assert one.order.generation > 20


def test_freezing_keeps_the_parent_and_thawing_begins_anew() -> None:
    tuner = es()
    heard(tuner, WINDOW, 1.0)
    generation = tuner.order.generation
    assert [event.what for event in tuner.freeze(5.0)] == [Happened.FROZEN]
    assert tuner.order.weights == START
    assert tuner.order.generation == generation + 1
    assert not heard(tuner, 2 * WINDOW, 0.1)
    assert not tuner.freeze(6.0)
    assert [event.what for event in tuner.thaw(7.0)] == [Happened.THAWED]
    assert heard(tuner, HOP, 3.0)[0].what is Happened.PROPOSED, "the first window is a baseline again"


def test_put_and_reset() -> None:
    tuner = es()
    with pytest.raises(ValueError, match=r"queue weight must be between 0\.05 and 0.5, not 3"):
        tuner.put(Weights(1.0, 3.0), 1.0, "asked for")
    (event,) = tuner.put(Weights(1.0, 0.3), 1.0, "asked for")
    assert (event.what, event.reason, tuner.order.weights) == (Happened.SET, "asked for", Weights(1.0, 0.3))
    tuner.reset(2.0)
    assert tuner.order.weights == START


def test_what_was_kept_goes_on_after_a_restart() -> None:
    rng = random.Random(5)
    tuner = es()
    list(fed(tuner, rng, requests=600))
    kept = json.loads(json.dumps(tuner.keep()))
    again = es()
    (event,) = again.restore(kept, 9.0)
    assert event.what is Happened.PROPOSED
    assert again.parent == tuner.parent
    assert again.sigma == tuner.sigma
    assert again.order.generation > tuner.order.generation
    assert {**again.keep(), "generation": 0} == {**tuner.keep(), "generation": 0}
    assert again.order.weights != tuner.order.weights, "another draw"


@pytest.mark.parametrize(("key", "value"), [("sigma", "wide"), ("weights", [1.0]), ("recent", 3), ("frozen", None)])
def test_what_it_cannot_read_is_named(key: str, value: object) -> None:
    kept = {**es().keep(), key: value}
    with pytest.raises(ValueError, match=f"kept.{key} must be"):
        es().restore(kept, 1.0)


def test_children_are_lognormal_around_the_parent_and_inside_the_box() -> None:
    rng = random.Random(1)
    children = [stepped(Weights(1.0, 1.0), 0.35, rng, AS_TESTED) for _ in range(4_000)]
    below = sum(child.rtt < 1.0 for child in children)
    assert 1_850 < below < 2_150
    assert 0.66 < sum(0.705 < child.queue < 1.419 for child in children) / 4_000 < 0.70  # one sigma
    assert all(not AS_TESTED.problem(stepped(Weights(1.0, 1.0), 50.0, rng, AS_TESTED)) for _ in range(200))


def test_the_score_is_the_sample_at_the_rounded_rank() -> None:
    assert score_of([float(n) for n in range(WINDOW)]) == -121.0


def test_it_is_known_by_its_name() -> None:
    made = tuner_named("es", driver="d", seed=1, start=START, box=PUBLISHED)
    assert made.name == "es"
    with pytest.raises(ValueError, match="tuner es: the queue weight"):
        tuner_named("es", driver="d", seed=1, start=Weights(1.0, 1.0), box=PUBLISHED)
