"""Tuners from wrong priors: gaps read from a surface, what is demanded of seeds, and the quick form."""

import pytest

from tradewind.lab.experiments.tuner_prior import experiment, trials
from tradewind.lab.experiments.tuner_prior.grids import PROFILES, grid
from tradewind.lab.experiments.tuner_prior.rows import (
    AS_RUN,
    GAP,
    NONE,
    SEEDS_WITHIN,
    SETTLED,
    from_start,
    gap_at,
    rows,
)
from tradewind.lab.experiments.tuner_prior.surface import AXIS, Surface, in_force, settled, worst_gap
from tradewind.lab.experiments.tuner_prior.trials import AGAIN, CALIBRATOR, STARTS, fixed, tuned
from tradewind.lab.harness.experiment import Argument, Options, Result, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.policies import maker
from tradewind.model.tuning import PHYSICS, Weights
from tradewind.sim.tuning import WithTuner

SURFACE = Surface(
    {
        Weights(0.1, 0.1): (2.0, 4.0),
        Weights(0.1, 1.0): (1.0, 1.0),
        Weights(1.0, 0.1): (1.0, 3.0),
        Weights(1.0, 1.0): (1.1, 1.1),
    }
)
WRONG = STARTS[0]


def test_a_gap_is_read_between_points_by_logarithms() -> None:
    assert SURFACE.best == Weights(0.1, 1.0)
    assert SURFACE.gap(Weights(0.1, 1.0)) == 0.0
    assert SURFACE.gap(Weights(1.0, 1.0)) == pytest.approx(0.1)
    assert SURFACE.at(Weights(0.1, 0.1**0.5)) == pytest.approx(3.0**0.5)  # half way from 3 to 1
    assert SURFACE.at(Weights(50.0, 50.0)) == SURFACE.at(Weights(1.0, 1.0))  # outside as at the edge
    assert SURFACE.at(Weights(0.01, 0.01)) == pytest.approx(3.0)


def test_the_best_of_many_is_lucky_and_one_chosen_on_other_seeds_is_not() -> None:
    lucky = Surface({Weights(1.0, 1.0): (1.0, 1.0, 1.0), Weights(2.0, 1.0): (0.4, 1.1, 1.2)})
    assert lucky.best == Weights(2.0, 1.0)
    assert lucky.best_s == pytest.approx(0.9)
    # By the other two seeds 1/1 is the best for the first one, and 2/1 for the others.
    assert lucky.chosen_s == pytest.approx((1.0 + 1.1 + 1.2) / 3)
    assert Surface({PHYSICS: (1.0,)}).chosen_s is None


def test_weights_are_those_of_the_newest_step_that_has_begun() -> None:
    course = [(0, 1.0, 0.1), (700, 1.0, 1.0), (2_500, 0.1, 1.0)]
    assert in_force(course, request=699) == Weights(1.0, 0.1)
    assert in_force(course, request=700) == Weights(1.0, 1.0)
    assert worst_gap(SURFACE, course, after=500) == pytest.approx(1.0)
    assert worst_gap(SURFACE, course, after=2_000) == pytest.approx(0.1)
    assert worst_gap(SURFACE, course, after=3_000) == 0.0
    assert settled(SURFACE, course, within=0.11) == 700
    assert settled(SURFACE, course, within=0.05) == 2_500
    assert settled(SURFACE, [*course, (3_000, 1.0, 0.1)], within=0.05) is None


def result(p95_s: float, *course: tuple[int, float, float]) -> Result:
    found: Result = {"requests": 4_200, "success": 1.0, "p95_s": p95_s, "e2e_p95_s": 9.0}
    return {**found, "course": list(course), "events": {"accepted": len(course) - 1}} if course else found


def done(*, seeds: int, late: int) -> list[tuple[Trial, Result]]:
    """The calibrator leaves its prior at request 600, and on `late` of the seeds after the 2,000th."""
    found: list[tuple[str, int, Result]] = []
    for seed in range(seeds):
        if seed < 2:
            found += [(fixed(weights), seed, result(value)) for weights, value in ((WRONG, 3.0), (PHYSICS, 1.02))]
            found += [(fixed(Weights(10.0, 10.0)), seed, result(1.0)), (fixed(Weights(1.0, 10.0)), seed, result(2.0))]
        else:
            found.append((fixed(PHYSICS), seed, result(2.0)))
        found.append((AGAIN, seed, result(1.02 if seed < 2 else 2.0)))
        leaves = 2_100 if seed < late else 600
        found.append((tuned(CALIBRATOR, WRONG), seed, result(2.2, (0, *WRONG), (leaves, 1.0, 1.0))))
    return [
        (
            Trial(
                experiment="tuner-prior", args={"profile": "scale 1", "policy": policy, "seed": seed, "after": 2_000}
            ),
            of,
        )
        for policy, seed, of in found
    ]


def test_rows_say_how_far_and_when() -> None:
    found = list(rows(done(seeds=4, late=1)))
    profile = from_start("scale 1", WRONG)

    def value(where: str, policy: str, metric: str) -> float | None:
        row = measured(found, profile=where, policy=policy, metric=metric)
        assert row is not None, (where, policy, metric)
        return row.value

    assert value(profile, NONE, GAP) == pytest.approx(200.0)
    assert value(profile, CALIBRATOR, SEEDS_WITHIN) == 3
    assert value(profile, CALIBRATOR, SETTLED) == 600
    assert value(profile, CALIBRATOR, GAP) == pytest.approx((200.0 + 3 * 2.0) / 4)
    assert value("scale 1", CALIBRATOR, gap_at(500)) == pytest.approx(200.0)
    assert value("scale 1", CALIBRATOR, gap_at(1_000)) == pytest.approx((200.0 + 3 * 2.0) / 4)
    assert value("scale 1", AGAIN, AS_RUN) == pytest.approx(2.0)
    # Against physics on the same seed, and what physics has more than the best: 2.2 / 1.02, and 2.2 / 2.0, times 1.02.
    assert value("scale 1", CALIBRATOR, AS_RUN) == pytest.approx(1e2 * ((2.2 + 2.2 / 2.0 * 1.02) / 2 - 1.0))


@pytest.mark.parametrize(("late", "holds"), [(2, True), (3, False)])
def test_nine_seeds_of_ten_are_demanded(late: int, holds: bool) -> None:
    claim = experiment.claims(rows(done(seeds=20, late=late)))[0]
    assert claim.value == 20 - late
    assert claim.bound == ">= 18"
    assert claim.holds is holds
    assert claim.note == "worst prior: 10/1"


def test_the_full_plan_is_every_grid_every_prior_and_all_its_policies_can_be_made() -> None:
    plan = trials.plan(Options())
    assert {trial.args["seed"] for trial in plan} == set(range(900, 920))
    fixed_points = {trial.args["policy"] for trial in plan if "weight=" in str(trial.args["policy"])}
    assert len(fixed_points) == len(AXIS) ** 2
    for profile in PROFILES:
        of = [trial for trial in plan if trial.args["profile"] == profile]
        for start in STARTS:
            assert sum(trial.args["policy"] == tuned(CALIBRATOR, start) for trial in of) == 20
    for policy in {str(trial.args["policy"]) for trial in plan} - {AGAIN}:
        assert isinstance(maker(policy), WithTuner) is (";start=" in policy)


def test_every_grid_has_about_the_same_load_per_cell_and_its_own_trouble() -> None:
    one, six, noisy = (grid(name, trace_s=100.0) for name in ("scale 1", "six cells", "noisy paths"))
    assert len(six.cells) == len(six.rtts_s[0]) == 2 * len(one.cells)
    assert six.for_s == one.for_s / 2  # the same requests in half of the time
    assert {change.cell for change in noisy.changes} == {0, 1, 2}
    assert not one.changes


def test_physics_against_itself_has_other_draws_and_nothing_else() -> None:
    def ran(policy: str) -> Result:
        args: dict[str, Argument] = {"profile": "scale 1", "policy": policy, "seed": 900, "trace_s": 40.0, "after": 0}
        return trials.run(Trial(experiment="tuner-prior", args=args))

    again, physics, plain = (ran(policy) for policy in (AGAIN, fixed(PHYSICS), "cost"))
    assert again != physics == plain
    assert again["requests"] == physics["requests"]


def test_the_quick_form_moves_from_plan_to_figures() -> None:
    plan = trials.plan(Options(quick=True))
    found = rows([(trial, trials.run(trial)) for trial in plan])
    surface, _, gap, weights, _ = experiment.figures(found)
    assert all(y is not None for series in surface.series for y in series.y)
    assert [series.name for series in gap.series] == [CALIBRATOR]
    assert weights.series[0].y[0] == 10.0
