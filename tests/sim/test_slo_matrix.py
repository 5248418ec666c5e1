"""The search for sustainable rates, the matrix as published, and what is made of its results."""

from collections.abc import Mapping

import pytest

from tradewind.lab.experiments.slo_matrix import experiment
from tradewind.lab.experiments.slo_matrix.plan import LEVELS, MATRIX_POLICIES, phases_of, plan, run, scenario_of
from tradewind.lab.experiments.slo_matrix.search import Step, decided, highest, ladder, simulate
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.harness.row import measured
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sustained import Phases
from tradewind.workload.classes import CLASSES


def step(rate: float, *, tail_s: float | None, served: float = 1.0) -> Step:
    return Step(rate=rate, samples=600, served=served, tail_s=tail_s, gap_s=0.5, requests=1_000)


@pytest.mark.parametrize("limit", [0.5, 3.0, 17.3, 99.0])
def test_a_search_ends_on_the_highest_rung_that_holds_after_eight_steps(limit: float) -> None:
    rates = ladder(3.0, 48.0)
    found = highest(rates, lambda rate: step(rate, tail_s=1.0 if rate <= limit else 9.0), slo_s=1.5)
    able = [rate for rate in rates if rate <= limit]
    assert (found.best.rate if found.best else None) == (able[-1] if able else None)
    assert found.at_top == (len(able) == len(rates))
    assert len(found.steps) == 8
    assert rates[1] / rates[0] == pytest.approx(1.011, abs=0.001)


def test_what_one_level_has_shown_is_not_simulated_again_for_the_next() -> None:
    rates = ladder(3.0, 48.0)
    simulated: list[Step] = []

    def simulate_at(rate: float) -> Step:
        simulated.append(step(rate, tail_s=0.1 * rate))
        return simulated[-1]

    levels_s = (1.5, 2.0, 3.0)
    found = [highest(rates, simulate_at, slo_s=slo_s, known=simulated) for slo_s in levels_s]
    shared = len(simulated)
    alone = [highest(rates, simulate_at, slo_s=slo_s) for slo_s in levels_s]
    assert [one.best for one in found] == [one.best for one in alone]
    assert shared < 20 < len(simulated) - shared == 24
    # 12 fails a level that 20 holds: neither tells how 15 ends.
    crossed = [step(12.0, tail_s=9.0), step(20.0, tail_s=1.0)]
    assert decided(crossed, 15.0, slo_s=1.5) is None
    assert decided(crossed, 11.0, slo_s=1.5) == crossed[1]


@pytest.mark.parametrize(
    ("tail_s", "served", "holds"), [(1.5, 0.95, True), (1.51, 1.0, False), (1.0, 0.94, False), (None, 1.0, False)]
)
def test_a_step_holds_with_its_tail_and_nearly_all_served(tail_s: float | None, served: float, holds: bool) -> None:
    assert step(10.0, tail_s=tail_s, served=served).holds(1.5) is holds


def test_a_step_that_is_lost_ends_early_and_says_what_a_whole_one_would() -> None:
    phases = Phases(warm_up_s=4.0, counted_s=8.0, cool_down_s=2.0)
    scenario = scenario_of("baseline_mixed", profile="clean", rate=70.0, phases=phases)
    early, whole = (
        simulate(scenario, maker("envoy_round_robin"), rate=70.0, seed=1, slo_s=slo_s, phases=phases)
        for slo_s in (0.8, 99.0)
    )
    assert early.tail_s is None
    assert early.requests < whole.requests == 70 * 14
    assert whole.tail_s is not None
    assert not early.holds(0.8)
    assert not whole.holds(0.8)
    assert early.samples == whole.samples == 70 * 8


def test_the_matrix_has_216_cells_and_each_step_samples_enough() -> None:
    assert LEVELS.keys() == CLASSES.keys()
    whole = [trial for trial in plan(Options()) if trial.args["tiers"] == "all"]
    assert 3 * len(whole) == experiment.CELLS == 216
    assert plan(Options())[: len(whole)] == whole
    assert {trial.args["policy"] for trial in whole} == set(MATRIX_POLICIES)
    lowest = min(level.ladder[0] for level in LEVELS.values())
    for rate in (lowest, 4.0, 11.0, 48.0):
        phases = phases_of(rate, quick=False)
        assert rate * phases.counted_s >= 500
        assert (phases.warm_up_s, phases.cool_down_s) == (30.0, 15.0)


def results(rates: Mapping[str, float | None], *, name: str, profile: str = "D") -> list[tuple[Trial, Result]]:
    told = {"tail_s": 1.0, "served": 1.0, "at_top": False, "steps": 8, "samples": 520, "gap_s": 0.8}
    return [
        (
            Trial(
                experiment="slo-matrix",
                args={"class": name, "policy": policy, "profile": profile, "seed": seed, "tiers": "all"},
            ),
            {
                "tiers": {
                    tier: told | {"rate": None if rate is None else rate + 0.1 * seed}
                    for tier in ("strict", "middle", "loose")
                },
                "simulated": 17,
                "requests": 9_000,
                "cpu_s": 2.0,
            },
        )
        for policy, rate in rates.items()
        for seed in (1, 2, 3)
    ]  # fmt: skip


def test_rows_pair_seeds_and_claims_judge_order_ratio_and_cost() -> None:
    rates = {"envoy_round_robin": 10.0, "envoy_least_request:2": 12.0, "weights": 20.0}
    done = [one for name in LEVELS for one in results(rates, name=name)]
    rows = list(experiment.rows(done))
    profile = experiment.profile_of("D", "very_long", "middle")
    rate = measured(rows, profile=profile, policy="weights", metric=experiment.RATE)
    ratio = measured(rows, profile="D, all classes", policy="weights", metric=experiment.RATIO)
    assert rate is not None
    assert ratio is not None
    assert rate.value == pytest.approx(20.2)
    assert rate.n == 3
    assert ratio.value == pytest.approx(sum((20 + s / 10) / (10 + s / 10) for s in (1, 2, 3)) / 3)
    verdicts = {claim.name.partition(": ")[2]: claim.holds for claim in experiment.claims(rows)}
    assert verdicts["cells of the matrix"] is True
    assert verdicts["CPU of the matrix, two cores for five minutes"] is True
    assert [holds for name, holds in verdicts.items() if "published order" in name] == [True]
    assert [claim.holds for claim in experiment.claims(rows) if "geometric mean" in claim.name] == [True, False]
    worse = [one for name in LEVELS for one in results(rates | {"weights": 11.0}, name=name)]
    claims = experiment.claims(list(experiment.rows(worse)))
    assert not any(claim.holds for claim in claims if "order" in claim.name or "geometric mean" in claim.name)


def test_what_not_even_the_lowest_rate_holds_is_no_ratio() -> None:
    rows = list(experiment.rows(results({"envoy_round_robin": None, "weights": 5.0}, name="very_long")))
    profile = experiment.profile_of("D", "very_long", "middle")
    below = measured(rows, profile=profile, policy="envoy_round_robin", metric=experiment.RATE)
    assert below is not None
    assert below.value == 0.0
    assert measured(rows, profile=profile, policy="weights", metric=experiment.RATIO) is None


def test_the_quick_form_runs() -> None:
    trials = plan(Options(quick=True))
    done = [(trial, run(trial)) for trial in trials]
    rows = experiment.rows(done)
    assert {row.policy for row in rows if row.metric == experiment.RATE} == {"envoy_round_robin", "weights"}
    assert experiment.figures(rows)
