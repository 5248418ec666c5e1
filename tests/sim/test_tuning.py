"""A tuner in the simulated grid: all gateways follow its one order, and a run replays bit by bit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.sim.policies import in_turn
from tests.sim.test_grid import short
from tradewind.core.tuner.tuner import Happened, TunerEvent
from tradewind.lab.simulated.policies import UnknownPolicyError, maker
from tradewind.lab.simulated.tuners import tuner_maker
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights
from tradewind.sim.grid import SimGrid
from tradewind.sim.invariants import run_checked
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario
from tradewind.sim.steered import PicksPolicy
from tradewind.sim.tuning import WithTuner

EVERY = 25  # samples


class Halves:
    """After each EVERY samples the queue weight is half of what it was, tried on half of the requests before."""

    name = "halves"
    frozen = False

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.heard: list[tuple[float, Sample]] = []
        self.order = TuningOrder("test", 1, PHYSICS)

    def learn(self, samples: Sequence[Sample], now_s: float) -> Sequence[TunerEvent]:
        self.heard += [(now_s, sample) for sample in samples]
        if len(self.heard) < EVERY * self.order.generation:
            return ()
        old, generation = self.order, self.order.generation + 1
        if old.child is None:
            self.order = TuningOrder("test", generation, old.weights, Weights(1.0, old.weights.queue / 2), 0.5)
            return (TunerEvent(now_s, Happened.PROPOSED, generation, old.weights, self.order.child, "it is time"),)
        self.order = TuningOrder("test", generation, old.child)
        return (TunerEvent(now_s, Happened.ACCEPTED, generation, old.child, None, "why not"),)

    def freeze(self, now_s: float) -> Sequence[TunerEvent]:
        return ()

    thaw = reset = freeze

    def put(self, weights: Weights, now_s: float, reason: str) -> Sequence[TunerEvent]:
        return ()

    def keep(self) -> Mapping[str, object]:
        return {}

    def restore(self, kept: Mapping[str, object], now_s: float) -> Sequence[TunerEvent]:
        return ()


class Noting(PicksPolicy):
    """Notes the orders that it gets; with what the tests need of the clock."""

    def __init__(self, inner: Policy) -> None:
        assert isinstance(inner, PicksPolicy)
        super().__init__(inner.steer, inner.picker)
        self.orders: list[TuningOrder | None] = []

    def set_order(self, order: TuningOrder | None) -> None:
        self.orders.append(order)
        super().set_order(order)


def tuned(scenario: Scenario, *, seed: int = 3) -> tuple[SimGrid, Halves, list[Noting]]:
    tuners: list[Halves] = []
    policies: list[Noting] = []

    def make_tuner(of: int) -> Halves:
        tuners.append(Halves(of))
        return tuners[-1]

    def make_policy(of: Scenario) -> Policy:
        policies.append(Noting(maker("cost")(of)))
        return policies[-1]

    grid = SimGrid(scenario, WithTuner(make_policy=make_policy, make_tuner=make_tuner), seed=seed)
    (tuner,) = tuners
    return grid, tuner, policies


def test_two_gateways_follow_one_order() -> None:
    grid, tuner, policies = tuned(short("S5b-1s"))
    result = run_checked(grid, replay="-")
    assert result.tuning is not None
    assert tuner.order.generation > 4
    assert [order.generation for _, order in result.tuning.orders] == list(range(1, tuner.order.generation + 1))
    assert [event.what for event in result.tuning.events[:2]] == [Happened.PROPOSED, Happened.ACCEPTED]
    assert result.tuning.last == tuner.order.weights
    assert len(policies) == 2
    assert all(policy.orders == [order for _, order in result.tuning.orders] for policy in policies)
    assert {sample.generation for _, sample in tuner.heard} >= {1, 2}
    assert {sample.child for _, sample in tuner.heard} == {True, False}
    assert result.tuning.samples == len(tuner.heard)


def test_an_order_is_in_force_a_view_later_and_a_sample_known_a_report_later() -> None:
    scenario = short("S5b-1s")
    grid, tuner, policies = tuned(replace(scenario, delays=replace(scenario.delays, view_s=0.2)))
    assert [len(policy.orders) for policy in policies] == [1, 1]  # before the first request
    times: list[list[float]] = [[0.0], [0.0]]
    while grid.step():
        for policy, known in zip(policies, times, strict=True):
            if len(policy.orders) > len(known):
                known.append(grid.loop.now_s)
    history = grid.result().tuning
    assert history is not None
    assert len(history.orders) > 4
    assert times[0] == times[1] == pytest.approx([0.0, *(given_s + 0.2 for given_s, _ in history.orders[1:])])
    assert all(0.2 <= at_s - sample.finished_s <= 0.5 + 0.2 + 1e-9 for at_s, sample in tuner.heard)
    assert all(at_s == pytest.approx(0.5 * round((at_s - 0.2) / 0.5) + 0.2) for at_s, _ in tuner.heard)


def test_same_seed_same_trace_with_a_tuner_too() -> None:
    first, again, other = (tuned(short("S5b-1s", for_s=10.0), seed=seed)[0].run() for seed in (5, 5, 6))
    assert first.trace_hash == again.trace_hash != other.trace_hash
    assert first.tuning == again.tuning
    assert first.tuning != other.tuning


def test_physics_by_order_decides_as_physics_does_and_is_in_the_hash() -> None:
    plain = SimGrid(short("S5b-1s", for_s=1.0), maker("cost"), seed=3)
    grid, _, _ = tuned(short("S5b-1s", for_s=1.0))
    assert plain.run().tuning is None
    assert grid.run().trace_hash != plain.result().trace_hash
    assert [entry.cell for entry in grid.journal.entries] == [entry.cell for entry in plain.journal.entries]


def test_policies_that_follow_no_orders_have_no_tuner() -> None:
    with pytest.raises(AssertionError, match="goes by its orders"):
        SimGrid(short("S2-D"), WithTuner(make_policy=in_turn([]), make_tuner=Halves), seed=1)


def test_the_tuner_of_a_run_has_the_seed_of_the_run() -> None:
    assert tuned(short("S5b-1s", for_s=1.0), seed=17)[1].seed == 17


def test_no_tuner_without_its_name() -> None:
    assert tuner_maker(["tie_s=0"], own=PHYSICS) is None


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("cost;tuner=nobody", "unknown tuner 'nobody'"),
        ("cost;start=1/1", "start= goes with a tuner"),
        ("cost;tuner=calibrator;start=1", "start= takes RTT weight/queue weight"),
        ("cost;tuner=calibrator;box=large", "unknown box 'large'; known: shipped, tested, published"),
        ("cost;tuner=calibrator;start=10/1", "the rtt weight must be between 0.05 and 2, not 10"),
        ("round_robin;tuner=calibrator", "no tuner moves round_robin; known: cost, gorgo, or a file.py:Name"),
    ],
)
def test_a_wrong_tuner_is_refused_at_once(written: str, told: str) -> None:
    with pytest.raises(UnknownPolicyError, match=told):
        maker(written)


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("cost;tuner=calibrator", PHYSICS),
        ("cost;tuner=calibrator;start=10/1;box=tested", Weights(10.0, 1.0)),
        ("cost;rtt_weight=2;queue_weight=0.5;tuner=es-repaired", Weights(2.0, 0.5)),
        ("cost;tuner=es", Weights(1.0, 0.5)),  # its box ends there
        ("gorgo:.5/.1;tuner=es", Weights(0.5, 0.1)),
    ],
)
def test_a_written_tuner_starts_where_it_says(written: str, start: Weights) -> None:
    history = SimGrid(short("S5b-1s", for_s=0.5), maker(written), seed=3).run().tuning
    assert history is not None
    assert history.last == start
