"""The evolution strategy with its faults repaired."""

import json
import random
from collections import Counter
from collections.abc import Callable
from math import log

import pytest

from tests.unit.tuner.samples import fed, noisy, under
from tradewind.core.tuner.box import AS_TESTED
from tradewind.core.tuner.es_repaired import EsRepaired
from tradewind.core.tuner.looks import Looks, LookSettings
from tradewind.core.tuner.named import tuner_named
from tradewind.core.tuner.tuner import Happened, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

START = Weights(1.0, 1.0)
LOOKS = LookSettings()
VERDICTS = (Happened.ACCEPTED, Happened.REJECTED, Happened.ROLLED_BACK)


def repaired(seed: int = 1) -> EsRepaired:
    return EsRepaired(driver="d", seed=seed, start=START, box=AS_TESTED)


def until_verdict(
    tuner: EsRepaired, change: Callable[[Sample], Sample], *, seed: int = 1, sd: float = 0.8
) -> tuple[TunerEvent, int]:
    """The first verdict, and after how many requests."""
    rng = random.Random(seed)
    for request in range(2_000):
        sample = noisy(rng, tuner.order, request, sd=sd)
        for event in tuner.learn([change(sample)], float(request)):
            if event.what in VERDICTS:
                return event, request
    raise AssertionError("no verdict")


def test_half_of_the_requests_go_by_a_child() -> None:
    tuner = repaired()
    (event,) = tuner.learn([under(tuner.order, 0)], 1.0)
    order = tuner.order
    assert (event.what, event.child) == (Happened.PROPOSED, order.child)
    assert order.child not in (None, START)
    assert (order.weights, order.child_share) == (START, 0.5)


@pytest.mark.parametrize(("effect", "what"), [(-0.5, Happened.ACCEPTED), (0.5, Happened.REJECTED)])
def test_a_clear_difference_is_seen_at_the_first_look(effect: float, what: Happened) -> None:
    tuner = repaired()
    event = next(event for event in fed(tuner, random.Random(1), requests=300, effect=effect) if event.what in VERDICTS)
    assert event.what is what
    assert dict(event.figures)["requests"] == LOOKS.looks[0]
    assert dict(event.figures)["log_ttft_change"] == pytest.approx(effect, abs=0.3)
    assert event.weights == (event.child if what is Happened.ACCEPTED else START)


def test_the_parent_is_measured_again_each_time() -> None:
    """All requests get slower: the child is no worse for it, and a lucky past is no mark."""
    tuner = repaired()
    verdicts = []
    for request in range(4_000):
        level = 1.0 if request < 300 else 3.0
        sample = noisy(random.Random(request), tuner.order, request, effect=-0.5)
        slower = sample._replace(ttft_s=level * (sample.ttft_s or 0.0))
        verdicts += [event.what for event in tuner.learn([slower], float(request)) if event.what in VERDICTS]
    assert len(verdicts) > 10
    assert set(verdicts) == {Happened.ACCEPTED}


def test_a_request_counts_by_its_decision() -> None:
    tuner = repaired()
    tuner.learn([under(tuner.order, 0)], 0.0)
    generation = tuner.order.generation
    for request in range(3_000):  # decided before, or under another driver
        early = under(tuner.order, request, ttft_s=0.01)._replace(child=True, generation=generation - 1)
        assert not tuner.learn([early, early._replace(generation=generation, driver="e")], 1.0)
    assert tuner.order.generation == generation


def test_the_first_requests_by_decision_are_judged_and_not_the_first_to_end() -> None:
    """The child's slow ones were decided first and end last."""
    order = TuningOrder("d", 7, START, Weights(2.0, 2.0), 0.5)
    looks = Looks(driver="d", generation=7, settings=LOOKS)
    fast = [under(order, n, ttft_s=0.5)._replace(child=n % 2 == 0) for n in range(60, 260)]
    slow = [under(order, n, ttft_s=50.0)._replace(child=True) for n in range(60)]
    verdicts = [verdict for sample in (*fast, *slow) if (verdict := looks.add(sample)) is not None]
    assert [verdict.accepted for verdict in verdicts] == [False]
    assert dict(verdicts[0].figures)["log_ttft_change"] == pytest.approx(60 / 130 * log(100.0))


def test_guards_are_stricter_in_a_verdict_than_on_the_way() -> None:
    """E2E is 4.5 % worse, at a z that grows to 2.4: too little to stop at once, too much to accept."""

    def worse(sample: Sample) -> Sample:
        spread = 0.364 if sample.dispatched_s % 2 else -0.364
        return sample._replace(ttft_s=0.2 if sample.child else 0.4, e2e_s=2.4 * (1.045 if sample.child else 1) + spread)

    event, requests = until_verdict(repaired(), worse)
    assert event.what is Happened.ROLLED_BACK
    assert "mean E2E" in event.reason
    assert requests >= LOOKS.looks[0] + LOOKS.grace


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s._replace(e2e_s=s.e2e_s * (1.2 if s.child else 1.0)), "mean E2E"),
        (lambda s: s._replace(itl_s=0.025 if s.child and s.dispatched_s % 2 else 0.02), "mean ITL"),
        (lambda s: s._replace(cell_id="a") if s.child and s.dispatched_s % 10 else s, "requests went to a"),
        (
            lambda s: (
                s._replace(failed=True, ttft_s=None, e2e_s=None, itl_s=None)
                if s.child and s.dispatched_s % 4 == 0
                else s
            ),
            "failed by the child",
        ),
    ],
)
def test_a_child_with_better_first_tokens_that_breaks_a_guard_is_rolled_back(
    change: Callable[[Sample], Sample], words: str
) -> None:
    def better(sample: Sample) -> Sample:
        sample = sample._replace(ttft_s=(sample.ttft_s or 0.0) * (0.5 if sample.child else 1.0), e2e_s=2.4)
        return change(sample)

    event, _ = until_verdict(repaired(), better, sd=0.1)
    assert event.what is Happened.ROLLED_BACK
    assert words in event.reason
    assert event.weights == START


def test_sigma_grows_on_success_shrinks_on_failure_and_is_bounded() -> None:
    tuner = repaired()
    assert tuner.sigma == 0.35
    list(fed(tuner, random.Random(1), requests=265, effect=-0.5))
    assert tuner.sigma == pytest.approx(0.35 * 1.3)
    list(fed(tuner, random.Random(1), requests=3_000, effect=-0.5))
    assert tuner.sigma == 1.0
    list(fed(tuner, random.Random(1), requests=13_500, effect=0.5))
    assert tuner.sigma == 0.05


def test_weights_without_effect_are_rarely_accepted() -> None:
    verdicts = Counter(event.what for event in fed(repaired(), random.Random(3), requests=20_000))
    judged = sum(verdicts[what] for what in VERDICTS)
    assert 25 < judged < 70
    assert verdicts[Happened.ACCEPTED] <= 0.1 * judged


def test_freezing_ends_the_comparison_and_thawing_proposes_again() -> None:
    tuner = repaired()
    list(fed(tuner, random.Random(1), requests=50))
    events = tuner.freeze(1.0)
    assert [event.what for event in events] == [Happened.VOIDED, Happened.FROZEN]
    assert (tuner.order.weights, tuner.order.child) == (START, None)
    assert not list(fed(tuner, random.Random(1), requests=1_000, effect=-1.0))
    assert [event.what for event in tuner.thaw(2.0)] == [Happened.THAWED]
    assert next(fed(tuner, random.Random(1), requests=2)).what is Happened.PROPOSED


def test_put_and_reset_void_what_runs() -> None:
    tuner = repaired()
    list(fed(tuner, random.Random(1), requests=50))
    events = tuner.put(Weights(2.0, 0.5), 1.0, "found by pretrain")
    assert [event.what for event in events] == [Happened.VOIDED, Happened.SET]
    assert events[-1].reason == "found by pretrain"
    assert tuner.order.weights == Weights(2.0, 0.5)
    with pytest.raises(ValueError, match="rtt weight must be between"):
        tuner.put(Weights(20.0, 0.5), 1.0, "no")
    tuner.reset(2.0)
    assert (tuner.order.weights, tuner.order.child, tuner.sigma) == (START, None, 0.35)


def test_it_goes_on_after_a_restart() -> None:
    tuner = repaired()
    list(fed(tuner, random.Random(1), requests=2_000, effect=-0.5))
    child = tuner.order.child
    again = repaired()
    events = again.restore(json.loads(json.dumps(tuner.keep())), 1.0)
    assert [(event.what, event.child) for event in events] == [(Happened.VOIDED, child)]
    assert again.order.weights == tuner.order.weights
    assert again.order.generation == tuner.order.generation + 1
    assert again.sigma == tuner.sigma
    again.learn([under(again.order, 0)], 2.0)
    assert again.order.child not in (None, child)


@pytest.mark.parametrize(("key", "value"), [("tuner", "es"), ("sigma", -1.0), ("weights", [1.0]), ("frozen", None)])
def test_what_it_cannot_read_is_named_and_changes_nothing(key: str, value: object) -> None:
    tuner = repaired()
    with pytest.raises(ValueError, match=f"kept.{key} must be"):
        tuner.restore({**repaired().keep(), key: value}, 1.0)
    assert tuner.keep() == repaired().keep()


def test_without_first_tokens_nothing_is_concluded() -> None:
    tuner = repaired()
    events = [
        event
        for request in range(4_000)
        for event in tuner.learn([under(tuner.order, request, ttft_s=None)], float(request))
    ]
    assert {event.what for event in events} == {Happened.PROPOSED, Happened.VOIDED}
    assert tuner.order.weights == START


def test_it_is_known_by_its_name() -> None:
    assert tuner_named("es-repaired", driver="d", seed=1, start=START, box=AS_TESTED).name == "es-repaired"
