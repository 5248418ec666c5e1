"""The analytic bed, the blind searches, and the experiment on them."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from math import log
from statistics import fmean, pstdev

import pytest

from tradewind.core.tuner.adjust import Difference
from tradewind.core.tuner.box import AS_TESTED
from tradewind.core.tuner.tuner import Happened, Kept, Tuner, TunerEvent
from tradewind.lab.experiments import tuner_aa
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.constants import UnknownPolicyError
from tradewind.lab.simulated.tuners import tuner_maker
from tradewind.lab.tuning.bed import CURVATURE, GAP_S, LATE, Bed, Course, course_of
from tradewind.lab.tuning.cma import Cma
from tradewind.lab.tuning.named import lab_tuner_named
from tradewind.lab.tuning.random_search import RandomSearch
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

FAR = Weights(10.0, 1.0)


class Listener:
    """A tuner that only listens, or says a given order."""

    name = "listener"
    frozen = False

    def __init__(self, order: TuningOrder) -> None:
        self.order = order
        self.heard: list[Sample] = []

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        self.heard += samples
        return ()

    def _nothing(self, *_: object) -> Sequence[TunerEvent]:
        raise NotImplementedError

    freeze = thaw = put = reset = restore = _nothing

    def keep(self) -> Kept:
        raise NotImplementedError


def heard(bed: Bed, order: TuningOrder, requests: int = 1_500) -> list[Sample]:
    """What a tuner hears of a bed."""
    listener = Listener(order)
    course_of(bed, listener, generations=1, requests=requests)
    return listener.heard


def alone(weights: Weights) -> TuningOrder:
    return TuningOrder("bed", 1, weights)


def logs(samples: Sequence[Sample]) -> list[float]:
    return [log(1e3 * (sample.ttft_s or 0.0)) for sample in samples]


def test_the_bed_is_lognormal_around_a_slow_load_and_ends_late() -> None:
    found = heard(Bed(seed=1), alone(PHYSICS), 10_000)
    values = logs(found)
    assert fmean(values) == pytest.approx(6.0, abs=0.15)
    assert pstdev(values) == pytest.approx((0.8**2 + 0.25**2) ** 0.5, rel=0.03)
    blocks = [fmean(values[at : at + 100]) for at in range(0, 10_000, 100)]
    centre = fmean(blocks)
    together = fmean((a - centre) * (b - centre) for a, b in pairwise(blocks)) / pstdev(blocks) ** 2
    assert 0.3 < together < 0.8, "neighbouring blocks are alike"
    assert all(sample.finished_s - sample.dispatched_s == LATE * GAP_S for sample in found)
    assert found[:500] == heard(Bed(seed=1), alone(PHYSICS), 500)


def test_without_curvature_weights_have_no_effect_and_with_it_ten_times_off_costs_28_percent() -> None:
    assert logs(heard(Bed(seed=2), alone(PHYSICS))) == logs(heard(Bed(seed=2), alone(FAR)))
    bowl = Bed(seed=2, curvature=CURVATURE)
    gaps = [b - a for a, b in zip(logs(heard(bowl, alone(PHYSICS))), logs(heard(bowl, alone(FAR))), strict=True)]
    assert gaps == [pytest.approx(log(1.28))] * len(gaps)


@pytest.mark.parametrize(("shared", "seen"), [(0.0, 1.0), (0.5, 0.5)])
def test_what_is_shared_is_not_seen_between_the_arms(shared: float, seen: float) -> None:
    order = TuningOrder("bed", 2, PHYSICS, FAR, 0.5)
    flat, bowl = (heard(Bed(seed=3, curvature=c, shared=shared), order) for c in (0.0, CURVATURE))
    gaps = [(after.child, b - a) for after, a, b in zip(bowl, logs(flat), logs(bowl), strict=True)]
    arms = [fmean(gap for child, gap in gaps if child is arm) for arm in (False, True)]
    assert arms[1] - arms[0] == pytest.approx(seen * log(1.28))
    assert 0.4 < fmean(child for child, _ in gaps) < 0.6


def test_the_drift_of_a_course_is_the_farthest_that_a_weight_ever_was() -> None:
    parents = ((10, Weights(1.5, 1.0)), (20, Weights(1.0, 0.25)), (30, PHYSICS))
    course = Course(requests=30, events=(), parents=parents)
    assert course.drift(PHYSICS) == pytest.approx(4.0)
    assert Course(requests=0, events=(), parents=()).drift(PHYSICS) == 1.0


def found_by(name: str, seed: int, *, requests: int, start: Weights = FAR) -> tuple[float, Tuner]:
    """How far from the bottom a tuner ends, and the tuner."""
    bed = Bed(seed=seed, curvature=10.0 * CURVATURE)
    tuner = lab_tuner_named(name, driver="bed", seed=seed, start=start, box=tuner_aa.WIDE)
    course = course_of(bed, tuner, generations=10_000, requests=requests)
    return bed.effect(course.parents[-1][1]), tuner


@pytest.mark.parametrize(("name", "requests"), [("cma", 15_000), ("es-repaired", 12_000)])
def test_searches_go_down_a_steep_bowl(name: str, requests: int) -> None:
    gap, _ = found_by(name, 1, requests=requests)
    assert gap < 0.25 * Bed(seed=0, curvature=10.0 * CURVATURE).effect(FAR)


@pytest.mark.parametrize("condition", [1.0, 100.0])
def test_cma_finds_the_bottom_without_noise_whatever_its_shape(condition: float) -> None:
    search, at = Cma(random.Random(1), AS_TESTED), Weights(8.0, 0.2)

    def height(weights: Weights) -> float:
        x, y = log(weights.rtt), log(weights.queue)
        return (x + y) ** 2 + condition * (x - y) ** 2

    for _ in range(6 * 60):
        child = search.ask(at)
        assert not AS_TESTED.problem(child)
        moved = search.tell(at, child, Difference(height(child) - height(at), 0.0))
        at = at if moved is None else moved
    assert height(at) < 1e-6


def test_cma_moves_only_when_all_six_were_seen() -> None:
    search, moves = Cma(random.Random(1), AS_TESTED), []
    for _ in range(12):
        child = search.ask(PHYSICS)
        moves.append(search.tell(PHYSICS, child, Difference(child.rtt, 0.0)) is not None)
    assert moves == [*[False] * 5, True, *[False] * 5, True]


def test_random_search_looks_everywhere_and_keeps_what_looked_better() -> None:
    search = RandomSearch(random.Random(1), AS_TESTED)
    children = [search.ask(PHYSICS) for _ in range(2_000)]
    assert fmean(child.rtt < 1.0 for child in children) == pytest.approx(0.5, abs=0.05)
    assert min(child.queue for child in children) < 0.11
    assert search.tell(PHYSICS, FAR, Difference(-0.001, 1.0)) == FAR
    assert search.tell(PHYSICS, FAR, Difference(0.001, 1.0)) is None


def test_a_blind_tuner_does_as_every_tuner_does() -> None:
    _, tuner = found_by("random", 1, requests=3_000)
    weights = tuner.order.weights
    assert [event.what for event in tuner.freeze(1.0)] == [Happened.FROZEN]
    frozen = tuner.order
    assert (frozen.weights, frozen.child_share, tuner.frozen) == (weights, 0.0, True)
    kept = json.loads(json.dumps(tuner.keep()))
    again = lab_tuner_named("random", driver="bed", seed=1, start=PHYSICS, box=tuner_aa.WIDE)
    again.restore(kept, 2.0)
    assert (again.order.weights, again.frozen) == (weights, True)
    assert again.order.generation > tuner.order.generation
    with pytest.raises(ValueError, match=r"kept.tuner must be 'cma'"):
        lab_tuner_named("cma", driver="bed", seed=1, start=PHYSICS, box=tuner_aa.WIDE).restore(kept, 2.0)
    assert [event.what for event in again.thaw(3.0)] == [Happened.THAWED]
    with pytest.raises(ValueError, match="queue weight"):
        again.put(Weights(1.0, 100.0), 4.0, "no")
    again.put(Weights(2.0, 2.0), 4.0, "asked for")
    assert again.order.weights == Weights(2.0, 2.0)
    again.reset(5.0)
    assert again.order.weights == PHYSICS


def test_unknown_tuners_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown tuner 'spsa'; known: calibrator, cma, es, es-repaired, random"):
        lab_tuner_named("spsa", driver="bed", seed=1, start=PHYSICS, box=AS_TESTED)
    with pytest.raises(ValueError, match="tuner cma: the rtt weight"):
        lab_tuner_named("cma", driver="bed", seed=1, start=Weights(99.0, 1.0), box=AS_TESTED)


def test_the_simulated_grid_runs_blind_searches_too() -> None:
    make = tuner_maker(["tuner=cma", "start=10/1", "box=tested"], own=PHYSICS)
    assert make is not None
    assert (make(1).name, make(1).order.weights) == ("cma", FAR)
    with pytest.raises(UnknownPolicyError, match="known: calibrator, cma, es"):
        tuner_maker(["tuner=spsa"], own=PHYSICS)


def test_the_experiment_counts_seeds_and_judges_those_that_are_promised() -> None:
    def trial(tuner: str, seed: int) -> Trial:
        return Trial(experiment="tuner-aa", args={"bed": "A/A", "tuner": tuner, "seed": seed, "quick": False})

    def result(drift: float, accepted: int) -> Result:
        return {"drift": drift, "generations": 100, "accepted": accepted, "requests": 50_000}

    done = [
        (trial("es-repaired", 1), result(1.9, 6)),
        (trial("es-repaired", 2), result(1.9, 7)),
        (trial("es-repaired", 3), result(2.1, 0)),
        (trial("es", 1), result(9.0, 15)),
        (trial("calibrator", 1), {"drift": 1.0, "generations": 0, "accepted": 0, "requests": 50_000}),
    ]
    found = list(tuner_aa.rows(done))
    counted = measured(found, profile="A/A", policy="es-repaired", metric="seeds within 2x that accept 6 % at most")
    assert counted is not None
    assert (counted.value, counted.n) == (1, 3)
    length = measured(found, profile="A/A", policy="calibrator", metric="requests per generation")
    assert length is not None
    assert length.value is None, "it had no generation"
    assert {check.name.split()[4]: check.holds for check in tuner_aa.claims(found)} == {
        "es-repaired": False,
        "es": None,
        "calibrator": True,
    }


def test_the_quick_form_runs() -> None:
    trials = tuner_aa.plan(Options(seeds=1, quick=True, policies=("es",)))
    assert len(trials) == 5
    done = [(trial, tuner_aa.run(trial)) for trial in trials]
    found = tuner_aa.rows(done)
    assert {figure.name for figure in tuner_aa.figures(found)} == {"drift", "bowl"}
    assert len({row.profile for row in found}) == 5


def test_a_full_run_has_twenty_seeds_of_every_tuner() -> None:
    trials = tuner_aa.plan(Options())
    flat = [trial for trial in trials if trial.args["bed"] == "A/A"]
    assert len(flat) == 20 * 5
    assert len(trials) == 20 * (5 + 4 * 4)
