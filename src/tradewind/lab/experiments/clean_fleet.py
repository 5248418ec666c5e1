"""`clean-fleet`: equal cells, nothing impaired, nothing shared: what there is to gain where nobody should win."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.paired import COMPARED, Runs, against_each, as_row_of, figures_of
from tradewind.lab.simulated.trials import run_policy, runs_by
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.sim.wan import PRIVATE, WanProfile
from tradewind.workload.arrivals import Arrivals, parse_arrivals
from tradewind.workload.classes import baseline_mixed

NAME = "clean-fleet"
ROUND_ROBIN = "envoy_round_robin"
BY_WEIGHTS = ("weights", "published:8", "published:10", "pressure")
BY_COUNT = ("envoy_least_request:2", "envoy_least_request:N", "envoy_random", "least_load")
BY_REQUEST = ("cost", "smg_least_load", "gorgo:.276/.5", "skywalker")
POLICIES = (ROUND_ROBIN, *BY_WEIGHTS, *BY_COUNT, *BY_REQUEST)
DISTANCES = {"RTT 0": 0.0, "RTT 8/22/38 ms": 1.0}  # factor on the paths
ARRIVALS = ("constant", "poisson")
RATE_RPS, FOR_S = 22.0, 75.0  # four fifths of what the fleet can do
SEEDS, FIRST_SEED = 3, 400
QUICK_POLICIES, QUICK_S = (ROUND_ROBIN, "weights", "envoy_least_request:2"), 15.0
AS_GOOD = 5.0  # % of p95 TTFT


def scenario_of(distance: str, arrivals: Arrivals, *, for_s: float) -> Scenario:
    """Nine equal cells."""
    fleet, factor = scenario_named("S2"), DISTANCES[distance]
    return replace(
        fleet,
        name=NAME,
        rtts_s=tuple(tuple(factor * rtt_s for rtt_s in rtts_s) for rtts_s in fleet.rtts_s),
        wan=PRIVATE if factor else WanProfile(),
        load=lambda rng: baseline_mixed(rng, rate_per_s=RATE_RPS, for_s=for_s, arrivals=arrivals),
        for_s=for_s,
        warm_up_ratio=1 / 3,
    )


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    policies = options.policies or (QUICK_POLICIES if options.quick else POLICIES)
    return [
        Trial(
            experiment=NAME,
            args={
                "distance": distance,
                "arrivals": arrivals,
                "policy": policy,
                "seed": seed,
                "for_s": QUICK_S if options.quick else FOR_S,
            },
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for distance in DISTANCES
        for arrivals in ARRIVALS
        for policy in dict.fromkeys((ROUND_ROBIN, *policies))
    ]


def run(trial: Trial) -> Result:
    """One policy on one seed."""
    args = trial.args
    arrivals = parse_arrivals(str(args["arrivals"]))
    scenario = scenario_of(str(args["distance"]), arrivals, for_s=float(args["for_s"] or 0))
    return run_policy(scenario, policy=str(args["policy"]), seed=int(args["seed"] or 0))


def rows(done: Done) -> Sequence[Row]:
    """By profile: what everybody did, and each policy against round robin."""
    return [
        row for (distance, arrivals), runs in runs_by(done, ("distance", "arrivals")).items()
        for row in _of_profile(f"{distance}, {arrivals} arrivals", runs)
    ]  # fmt: skip


def _of_profile(profile: str, runs: Runs) -> Iterator[Row]:
    yield from figures_of(runs, experiment=NAME, profile=profile)
    for policy in runs:
        if policy != ROUND_ROBIN and ROUND_ROBIN in runs:
            pair = {policy: runs[policy], ROUND_ROBIN: runs[ROUND_ROBIN]}
            for row in against_each(pair, policy, experiment=NAME, profile=profile):
                yield as_row_of(row, policy, against="round robin")


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Weights lose nothing; what a picker by cost gains is shown without a bound."""
    checks: list[Check] = []
    for profile in dict.fromkeys(row.profile for row in found):
        for policy in ("weights", "cost"):
            row = measured(list(found), profile=profile, policy=policy, metric="TTFT p95 against round robin")
            if row is not None:
                name = f"{NAME}, {profile}: p95 TTFT of {policy} against round robin"
                note = f"{row.lo:+.1f} .. {row.hi:+.1f}" if row.lo is not None else ""
                bounded = policy == "weights"
                checks.append(
                    at_most(name, row.value, AS_GOOD, unit="%", note=note)
                    if bounded
                    else reported(name, row.value, unit="%", note=note)
                )
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Everybody beside round robin."""
    profiles = list(dict.fromkeys(row.profile for row in found))
    policies = [policy for policy in dict.fromkeys(row.policy for row in found) if policy != ROUND_ROBIN]
    return [
        Figure(
            name=field.removesuffix("_s").replace("_", "-"),
            title=f"{metric} against Envoy's round robin on a clean fleet of equal cells (below 0 is better)",
            kind="bars",
            x_label="policy",
            y_label="%",
            series=[_series(found, profile, policies, f"{metric} against round robin") for profile in profiles],
            caption=f"{RATE_RPS:g} requests/s of 512 +- 200 prompt tokens on nine cells; 95 % over paired seeds.",
        )
        for metric, field in COMPARED
    ]


def _series(found: Sequence[Row], profile: str, policies: Sequence[str], metric: str) -> Series:
    picked = [measured(list(found), profile=profile, policy=policy, metric=metric) for policy in policies]
    return series_of(profile, policies, picked)


EXPERIMENT = Experiment(
    name=NAME,
    title="Where nobody wins: a clean fleet of equal cells",
    question=(
        "On a fleet that is homogeneous, fault-free and near its capacity, does any policy beat round robin, and which "
        "ones lose?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Nothing impaired and nothing shared between prompts, so neither pressure nor caches tell anything. A policy "
        "that looks at each request still knows its length."
    ),
)
