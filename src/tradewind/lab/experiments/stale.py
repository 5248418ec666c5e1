"""`stale`: what old telemetry costs weights and picks, where cells slow down and recover within seconds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Argument, Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.paired import Runs, against_each, as_row_of, figures_of
from tradewind.lab.simulated.trials import run_policy, runs_by, shortened
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named

NAME = "stale"
FLEET = "S2-D"
ROUND_ROBIN = "envoy_round_robin"
POLICIES = ("weights", "published:10", "cost")
SCRAPES, LATE = "scraped every", "told late by"
AGES_S = (0.25, 1.0, 3.0, 10.0, 30.0)
SEEDS, FIRST_SEED = 3, 500
FOR_S = 120.0
QUICK_AGES_S, QUICK_POLICIES, QUICK_S = (1.0, 30.0), ("weights",), 15.0


def scenario_of(arm: str, age_s: float) -> Scenario:
    """Disturbance D, with agents that scrape each `age_s`, or with views that arrive so late without saying so."""
    fleet = scenario_named(FLEET)
    if arm == LATE:
        return replace(fleet, delays=replace(fleet.delays, view_s=age_s))
    beat_s = min(fleet.delays.heartbeat_s, age_s)  # a rarer one would count as a silent cell
    return replace(fleet, delays=replace(fleet.delays, scrape_s=age_s, heartbeat_s=beat_s))


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost; round robin, which reads nothing, once per seed."""
    policies = options.policies or (QUICK_POLICIES if options.quick else POLICIES)
    for_s = QUICK_S if options.quick else FOR_S
    trials: list[Trial] = []
    for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED):
        trials.append(_trial("", 0.0, ROUND_ROBIN, seed, for_s))
        trials += [
            _trial(arm, age_s, policy, seed, for_s)
            for arm in (SCRAPES, LATE)
            for age_s in (QUICK_AGES_S if options.quick else AGES_S)
            for policy in policies
            if policy != ROUND_ROBIN
        ]
    return trials


def _trial(arm: str, age_s: float, policy: str, seed: int, for_s: float) -> Trial:
    return Trial(experiment=NAME, args={"arm": arm, "age_s": age_s, "policy": policy, "seed": seed, "for_s": for_s})


def run(trial: Trial) -> Result:
    """One policy on one seed."""
    args = trial.args
    arm, age_s = str(args["arm"]), float(args["age_s"] or 0)
    scenario = scenario_of(arm, age_s) if arm else scenario_named(FLEET)
    return run_policy(shortened(scenario, args["for_s"]), policy=str(args["policy"]), seed=int(args["seed"] or 0))


def rows(done: Done) -> Sequence[Row]:
    """Round robin, then by arm and age what everybody did and how it stands against round robin."""
    groups = runs_by(done, ("arm", "age_s"))
    blind = groups.pop(("", 0.0), {})
    found = list(figures_of(blind, experiment=NAME, profile="no telemetry"))
    for key, runs in groups.items():
        found += _of_group(_profile(*key), runs, blind)
    return found


def _profile(arm: Argument, age_s: Argument) -> str:
    return f"{arm} {age_s:g} s"


def _of_group(profile: str, runs: Runs, blind: Runs) -> Iterator[Row]:
    yield from figures_of(runs, experiment=NAME, profile=profile)
    for policy, of_policy in runs.items():
        seeds = {run.seed for run in of_policy}
        base = [run for run in blind.get(ROUND_ROBIN, ()) if run.seed in seeds]
        if len(base) == len(of_policy):
            pair = {policy: of_policy, ROUND_ROBIN: base}
            for row in against_each(pair, policy, experiment=NAME, profile=profile):
                yield as_row_of(row, policy, against="round robin")


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Where readings tell their age, nobody is clearly worse than without any; what nobody knows is only shown."""
    return [
        at_most(name, row.value, 5.0, unit="%")
        if row.profile.startswith(SCRAPES)
        else reported(name, row.value, unit="%")
        for row in found
        if row.metric == "TTFT p95 against round robin" and row.policy in ("weights", "cost")
        for name in (f"{NAME}, {row.profile}: p95 TTFT of {row.policy} against round robin",)
    ]


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """One line for each policy over the age, for both ways to be late."""
    ages_s = [age_s for age_s in AGES_S if any(row.profile == _profile(SCRAPES, age_s) for row in found)]
    policies = dict.fromkeys(row.policy for row in found if row.policy != ROUND_ROBIN)
    blind = measured(list(found), profile="no telemetry", policy=ROUND_ROBIN, metric="TTFT p95")
    flat = Series(name=ROUND_ROBIN, x=ages_s, y=[None if blind is None else blind.value] * len(ages_s))
    return [
        Figure(
            name=name,
            title=f"p95 TTFT under D with telemetry {arm} ... s",
            kind="lines",
            x_label="seconds",
            y_label="p95 TTFT, ms",
            log_x=True,
            log_y=True,
            series=[*(_series(found, policy, arm, ages_s) for policy in policies), flat],
            caption="Mean over seeds, 95 % by bootstrap.",
        )
        for name, arm in (("scrape", SCRAPES), ("late", LATE))
    ]


def _series(found: Sequence[Row], policy: str, arm: str, ages_s: Sequence[float]) -> Series:
    picked = [measured(list(found), profile=_profile(arm, age_s), policy=policy, metric="TTFT p95") for age_s in ages_s]
    return series_of(policy, ages_s, picked)


EXPERIMENT = Experiment(
    name=NAME,
    title="Quality against the age of telemetry",
    question="How old may telemetry be before weights, picks and published scores lose what they gain?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Two ways to be late: agents that scrape rarely, whose readings say how old they are, and views that arrive "
        "late without anybody knowing. Load and disturbance of S2-D, where cells slow down for 15 s at a time."
    ),
)
