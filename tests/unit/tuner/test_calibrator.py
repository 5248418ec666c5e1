"""The calibrator as an operator meets it: orders, verdicts, regimes, and what outlives a restart."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.tuner.bed import Indifferent, Queues, drive, ended, sample, wrong
from tradewind.core.tuner.box import AS_TESTED, SHIPPED, Box
from tradewind.core.tuner.calibrator import Calibrator
from tradewind.core.tuner.named import tuner_named
from tradewind.core.tuner.settings import CalibratorSettings, CompareSettings, FitSettings
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

WRONG = ("rtt high", "rtt low", "queue high", "queue low")


def calibrator(start: Weights = PHYSICS, *, box: Box = AS_TESTED, settings: CalibratorSettings | None = None) -> Tuner:
    return Calibrator(driver="d", start=start, box=box, settings=settings)


def comparing(seed: int = 1) -> tuple[Calibrator, Queues]:
    """One with a comparison under way."""
    made, bed = Calibrator(driver="d", start=wrong("rtt high"), box=AS_TESTED), Queues(seed)
    drive(bed, made, 600, until=lambda tuner: tuner.order.child is not None)
    assert made.order.child == PHYSICS
    return made, bed


PLAIN_REGIME = {"weights": None, "physics_p95_e2e_s": None, "barred": False}


class Contrary(Queues):
    """Whatever a child is, its first tokens take three times as long."""

    def request(self, order: TuningOrder) -> Sample:
        made = super().request(order)
        return made._replace(ttft_s=3.0 * (made.ttft_s or 0.0)) if made.child else made


def kinds(events: list[TunerEvent]) -> list[Happened]:
    return [event.what for event in events]


@pytest.mark.parametrize("which", WRONG)
@pytest.mark.parametrize("seed", range(3))
def test_a_prior_ten_times_wrong_is_back_at_physics_within_a_thousand_requests(which: str, seed: int) -> None:
    made = calibrator(wrong(which))
    events = drive(Queues(seed), made, 1_000)
    assert made.order.weights == PHYSICS
    assert {Happened.PROPOSED, Happened.ACCEPTED} <= set(kinds(events))


def test_a_weight_that_is_right_far_from_one_is_kept() -> None:
    """First tokens that grow with four times the believed queue."""
    made = calibrator()
    drive(Queues(2, queue_matters=4.0, rate=6.0), made, 2_500)
    assert 2.6 < made.order.weights.queue < 5.5
    assert made.order.weights.rtt == 1.0


def test_it_stays_where_beliefs_are_true() -> None:
    made = calibrator()
    events = drive(Queues(4, noise=0.8), made, 4_000)
    assert made.order.weights == PHYSICS
    assert Happened.ACCEPTED not in kinds(events)


@pytest.mark.parametrize("physical", [True, False])
def test_weights_without_an_effect_do_not_move(physical: bool) -> None:
    made = calibrator()
    events = drive(Indifferent(11, physical=physical), made, 3_000)
    assert made.order.weights == PHYSICS
    assert Happened.ACCEPTED not in kinds(events)


@pytest.mark.parametrize("seed", range(4))
def test_a_child_that_wins_first_tokens_and_loses_answers_is_rolled_back(seed: int) -> None:
    """What waits decodes slowly: queues cost nothing before the first token and everything after it."""
    made = calibrator()
    events = drive(Queues(seed, rate=6.0, queue_matters=0.0, crowd_s=8.0), made, 1_500)
    proposed = [event for event in events if event.what is Happened.PROPOSED]
    assert proposed
    assert all(event.child is not None and event.child.queue < 1.0 for event in proposed)
    assert Happened.ROLLED_BACK in kinds(events)
    assert Happened.ACCEPTED not in kinds(events)
    assert made.order.weights == PHYSICS
    assert Happened.PROPOSED not in kinds(events[kinds(events).index(Happened.ROLLED_BACK) :])
    reasons = [event.reason for event in events if event.what is Happened.ROLLED_BACK]
    assert all(
        "mean E2E" in reason or "mean ITL" in reason or "of the child's requests" in reason for reason in reasons
    )


def test_what_is_refused_again_and_again_is_asked_less_often() -> None:
    made = calibrator(wrong("rtt high"))
    events = drive(Contrary(1), made, 4_500)
    asked = [event.at_s for event in events if event.what is Happened.PROPOSED]
    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert len(asked) >= 3
    assert gaps[-1] > 1.3 * gaps[0]
    assert made.order.weights == wrong("rtt high")


def test_every_order_has_its_own_generation_and_every_event_names_it() -> None:
    made, bed = calibrator(wrong("queue low")), Queues(3)
    generation, orders = 0, {made.order.generation: made.order}
    for one in ended(bed, made, 1_500):
        for event in made.learn([one], bed.now_s):
            assert event.generation >= generation
            generation = event.generation
            assert event.reason
        assert orders.setdefault(made.order.generation, made.order) == made.order
    assert len(orders) >= 3


def test_batches_change_nothing() -> None:
    """Samples are taken one by one: reports that come late together lead to the same."""
    one, other = calibrator(wrong("rtt low")), calibrator(wrong("rtt low"))
    made = list(ended(Queues(5), calibrator(wrong("rtt low")), 2_500))
    first = one.learn(made, 9_999.0)
    second = [event for each in made for event in other.learn([each], 9_999.0)]
    assert list(first) == second
    assert first
    assert one.order == other.order


# Operators


def test_freeze_ends_a_comparison_within_one_call() -> None:
    made, bed = comparing()
    events = made.freeze(bed.now_s)
    assert kinds(list(events)) == [Happened.VOIDED, Happened.FROZEN]
    assert (made.frozen, made.order.child, made.order.weights) == (True, None, wrong("rtt high"))
    assert drive(bed, made, 1_500) == [] or made.order.weights == wrong("rtt high")
    assert made.freeze(bed.now_s) == []
    assert kinds(list(made.thaw(bed.now_s))) == [Happened.THAWED]
    assert made.thaw(bed.now_s) == []
    drive(bed, made, 1_000)
    assert made.order.weights == PHYSICS


def test_an_operators_weights_hold_at_once_and_must_be_in_the_box() -> None:
    made, bed = comparing()
    with pytest.raises(ValueError, match=r"the rtt weight must be between 0\.1 and 10, not 11"):
        made.put(Weights(11.0, 1.0), bed.now_s, "by hand")
    assert made.order.child == PHYSICS
    events = made.put(Weights(2.0, 0.5), bed.now_s, "found by pretrain")
    assert kinds(list(events)) == [Happened.VOIDED, Happened.SET]
    assert "found by pretrain: rtt 2, queue 0.5" in events[-1].reason
    assert made.order.weights == Weights(2.0, 0.5)
    assert made.order.child is None


def test_reset_goes_back_to_the_start_and_forgets() -> None:
    made, bed = calibrator(wrong("queue high")), Queues(8)
    drive(bed, made, 1_200)
    generation = made.order.generation
    events = made.reset(bed.now_s)
    assert kinds(list(events))[-1] is Happened.RESET
    assert made.order.weights == wrong("queue high")
    assert made.order.generation > generation
    assert drive(bed, made, 250) == []  # what was learned is void
    drive(bed, made, 1_000)
    assert made.order.weights == PHYSICS


# The world changes


def test_each_load_has_its_own_weights() -> None:
    made, bed = calibrator(wrong("rtt high")), Queues(6, rate=2.0)
    drive(bed, made, 1_000)
    assert made.order.weights == PHYSICS
    bed.rate, bed.queue_matters = 6.0, 4.0
    drive(bed, made, 3_500)
    loaded = made.order.weights
    assert loaded.queue > 2.5
    bed.rate, bed.queue_matters = 2.0, 1.0
    events = drive(bed, made, 1_000)
    regimes = [event for event in events if event.what is Happened.REGIME and "requests/s" in event.reason]
    assert "as accepted at this load before" in regimes[-1].reason
    assert made.order.weights == PHYSICS


def test_a_cell_that_gets_slow_voids_the_comparison_and_learning_starts_anew() -> None:
    made, bed = calibrator(settings=CalibratorSettings(fit=FitSettings(least=4_000))), Queues(7, rate=2.0)
    drive(bed, made, 3_000)
    bed.slow = {"c0": 3.0}
    events = drive(bed, made, 400)
    alarm = next(event for event in events if event.what is Happened.REGIME)
    assert "first tokens of" in alarm.reason
    assert "learning starts anew" in alarm.reason
    assert dict(alarm.figures)["ratio"] > 1.3


def test_creep_away_from_physics_is_rolled_back_to_it() -> None:
    made, bed = calibrator(), Queues(9, rate=3.0)
    drive(bed, made, 2_000)
    made.put(Weights(1.0, 5.0), bed.now_s, "by hand")
    events: list[TunerEvent] = []
    for number in range(400):  # answers take twice as long under these
        slow = sample(made.order, dispatched_s=bed.now_s + 0.3 * number, ttft_s=None, e2e_s=4.0 + number % 7)
        events += made.learn([slow], bed.now_s + 200.0)
    assert kinds(events) == [Happened.ROLLED_BACK]
    assert "under physics at this load" in events[0].reason
    assert made.order.weights == PHYSICS


def test_a_parent_that_is_slower_than_physics_was_is_no_place_to_go_back_to() -> None:
    kept = comparing()[0].keep()
    kept = {**kept, "child": None, "regime": 2, "regimes": {"2": {**PLAIN_REGIME, "physics_p95_e2e_s": 0.5}}}
    made, bed = calibrator(settings=CalibratorSettings(fit=FitSettings(least=100))), Queues(2)
    made.restore(kept, 0.0)
    assert made.order.weights == wrong("rtt high")
    events = drive(bed, made, 500, until=lambda tuner: tuner.order.weights == PHYSICS)
    assert kinds(events) == [Happened.PROPOSED, Happened.ROLLED_BACK]
    assert "rtt 1, queue 1 hold for all" in events[-1].reason


def test_weights_that_send_requests_elsewhere_are_no_alarm() -> None:
    """The far cell is slower than believed, and gets requests only after the proposal is accepted."""
    made = calibrator(wrong("rtt high"), settings=CalibratorSettings(fit=FitSettings(least=2_500, window=2_500)))
    events = drive(Queues(4, rate=2.0, slow={"c1": 2.5, "c2": 2.5}), made, 5_000)
    assert Happened.ACCEPTED in kinds(events)
    assert [event for event in events if "against expectation" in event.reason] == []


@pytest.mark.parametrize("value", [0.0, -1.0, 5e-324, 1e300, float("inf")])
def test_times_that_cannot_be_teach_nothing(value: float) -> None:
    made, plain = calibrator(wrong("rtt high")), calibrator(wrong("rtt high"))
    heard = list(ended(Queues(1), plain, 320))
    odd = sample(made.order, dispatched_s=5.0, ttft_s=value, e2e_s=value, itl_s=value)
    before = [*heard[:200], *(one for one in (odd, odd._replace(ttft_s=0.4, prefill_s=-1.0)) for _ in range(3))]
    made.learn([*before, *heard[200:]], 999.0)
    plain.learn(heard, 999.0)
    assert made.order == plain.order
    assert made.order.child == PHYSICS


def test_a_comparison_without_first_tokens_is_given_up() -> None:
    made, bed = comparing()
    events: list[TunerEvent] = []
    for number in range(CompareSettings().starved + 1):
        at_s = bed.now_s + number
        events += made.learn([sample(made.order, dispatched_s=at_s, ttft_s=None, e2e_s=None, itl_s=None)], at_s)
    assert made.order.child is None
    assert Happened.VOIDED in kinds(events)


# A restart


def test_it_goes_on_where_it_was() -> None:
    made, bed = calibrator(wrong("rtt low")), Queues(3)
    drive(bed, made, 2_500)
    made.freeze(bed.now_s)
    kept = json.loads(json.dumps(made.keep()))
    other = calibrator()
    assert other.restore(kept, 5.0) == []
    assert other.order.weights == made.order.weights == PHYSICS
    assert other.order.generation > made.order.generation
    assert other.frozen
    assert {**other.keep(), "generation": 0} == {**kept, "generation": 0}
    assert any(regime["physics_p95_e2e_s"] for regime in kept["regimes"].values())


def test_a_restart_ends_a_comparison_and_old_decisions_do_not_count() -> None:
    made, bed = comparing()
    before = list(ended(bed, made, 1_000))
    other = calibrator()
    events = other.restore(made.keep(), bed.now_s)
    assert kinds(list(events)) == [Happened.VOIDED]
    assert other.order.child is None
    assert len(before) > 900
    assert other.learn(before, bed.now_s) == []
    drive(bed, other, 1_000)
    assert other.order.weights == PHYSICS


def test_weights_outside_of_a_narrower_box_are_clipped_and_told() -> None:
    made = calibrator(wrong("rtt high"))
    other = calibrator(box=SHIPPED)
    (event,) = other.restore(made.keep(), 1.0)
    assert event.what is Happened.SET
    assert "outside of the bounds" in event.reason
    assert other.order.weights == Weights(2.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tuner": "es"}, "kept.tuner must be 'calibrator', not 'es'"),
        ({"generation": -1}, "kept.generation must be a whole number"),
        ({"generation": True}, "kept.generation must be a whole number"),
        ({"weights": [1.0]}, r"kept.weights must be two numbers above 0: \[rtt, queue\]"),
        ({"weights": [1.0, float("nan")]}, "kept.weights"),
        ({"weights": [10**400, 1.0]}, "kept.weights"),
        ({"child": "x"}, "kept.child"),
        ({"frozen": "no"}, "kept.frozen must be true or false, not 'no'"),
        ({"regime": 99}, "kept.regime must be a whole number from"),
        ({"regimes": []}, "kept.regimes must be a mapping"),
        ({"regimes": {"2": 1}}, "kept.regimes.2 must be a mapping"),
        ({"regimes": {"two": {}}}, "kept.regimes: a load is named by a number"),
        (
            {"regimes": {"2": {"weights": None, "physics_p95_e2e_s": -1, "barred": False}}},
            "kept.regimes.2.physics_p95_e2e_s",
        ),
        ({"regimes": {"2": {"weights": [0, 1], "physics_p95_e2e_s": 1, "barred": False}}}, "kept.regimes.2.weights"),
    ],
)
def test_what_was_kept_broken_says_where_and_changes_nothing(changes: dict[str, Any], told: str) -> None:
    made, _ = comparing()
    before, kept = made.order, dict(made.keep())
    with pytest.raises(ValueError, match=told):
        made.restore({**kept, **changes}, 1.0)
    assert made.order == before
    del kept["weights"]
    with pytest.raises(ValueError, match=r"kept\.weights is missing"):
        made.restore(kept, 1.0)


def test_it_is_known_by_its_name() -> None:
    made = tuner_named("calibrator", driver="x", seed=1, start=Weights(0.5, 1.0), box=SHIPPED)
    assert (made.name, made.order.driver, made.order.weights) == ("calibrator", "x", Weights(0.5, 1.0))


def test_settings_are_what_it_goes_by() -> None:
    eager = replace(CalibratorSettings(), compare=CompareSettings(share=0.2))
    made = calibrator(wrong("rtt high"), settings=eager)
    drive(Queues(1), made, 600, until=lambda tuner: tuner.order.child is not None)
    assert made.order.child_share == 0.2
