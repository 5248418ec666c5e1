"""`pick`: the cost of a cell in seconds against every other way to choose one, in the six declared scenarios."""

from collections.abc import Iterator, Mapping, Sequence
from math import factorial

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.floor import FLOOR
from tradewind.lab.simulated.paired import (
    BEST,
    COMPARED,
    PUBLISHED_BEST,
    SERVES_ALL,
    Runs,
    against_best,
    against_each,
    figures_of,
)
from tradewind.lab.simulated.trials import run_policy, runs_by, shortened
from tradewind.sim.scenarios import permuted, scenario_named

NAME = "pick"
OURS = "cost"
FAR = ("S1-ts1", "S1-ts2", "S1-ts3")  # where which of the equal cells is near is permuted
SCENARIOS = (
    *FAR,
    "S2",
    "S2-D",
    "S2-multiturn",
    "S2-multiturn-D",
    "S3",
    "S3-D",
    "S4",
    "S4-D",
    "S5-250ms",
    "S5b-250ms",
    "S6",
)
LENT_INDEX = ("gorgo:.5/.1", "cache_aware")  # with our index, bounded by the engines' caches; as published it grows
LENT = (*LENT_INDEX, "smg_least_load")  # with our count of what waits; as published it goes by the engine's readings
OTHERS = (
    "gorgo:.5/.1;index=unbounded",
    "gorgo:.276/.5;index=unbounded",
    "cache_aware;index=unbounded",
    "prefix_cache",
    "smg_least_load:polled",
    "least_request:N",
    "least_request:2",
    "least_load",
    "session_affinity",
    "skywalker",
    "round_robin",
    "random",
)
POLICIES = (OURS, *LENT, *OTHERS)
NOTHING_SHARED = ("S2", "S2-D", "S5b-250ms")  # no prompt repeats another: an index is empty, bounded or not
SEEDS, FIRST_SEED = 10, 800
QUICK_SCENARIOS, QUICK_POLICIES, QUICK_S = ("S1-ts1", "S4-D"), (OURS, "gorgo:.5/.1", "least_request:N"), 20.0
DEMANDED: Mapping[str, tuple[float, float]] = {  # % of p95 TTFT and p95 E2E against the best other, per metric
    "S1-ts1": (-10.0, -8.0),
    "S1-ts2": (-5.0, -6.0),
    "S1-ts3": (-5.0, -6.0),
    "S2-D": (-45.0, -20.0),
    "S3": (-20.0, -25.0),
    "S4-D": (-20.0, -15.0),
}
NEVER_WORSE = 5.0
APART = "S4"  # every cell gets the prefix at once under round robin: reported without a bound


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    quick = options.quick
    seeds = options.seed_range(seeds=SEEDS, first=FIRST_SEED)
    policies = options.policies or (QUICK_POLICIES if quick else POLICIES)
    return [
        _trial(scenario, policy, seed, place, for_s=QUICK_S if quick else None)
        for place, seed in enumerate(seeds)
        for scenario in (QUICK_SCENARIOS if quick else SCENARIOS)
        for policy in (*policies, FLOOR)
        if options.policies or not _twin(scenario, policy)
    ]


def _trial(scenario: str, policy: str, seed: int, place: int, *, for_s: float | None) -> Trial:
    orders = factorial(len(scenario_named(scenario).cells)) if scenario in FAR else 1
    return Trial(
        experiment=NAME,
        args={"scenario": scenario, "policy": policy, "seed": seed, "order": place % orders, "for_s": for_s},
    )


def _twin(scenario: str, policy: str) -> bool:
    """Another policy of the plan does the same there."""
    return scenario in NOTHING_SHARED and policy.partition(";index=")[0] in LENT_INDEX and ";" in policy


def run(trial: Trial) -> Result:
    """One policy, or the floor, on one seed of one scenario."""
    args = trial.args
    scenario = shortened(permuted(scenario_named(str(args["scenario"])), int(args["order"] or 0)), args["for_s"])
    return run_policy(scenario, policy=str(args["policy"]), seed=int(args["seed"] or 0))


def rows(done: Done) -> Sequence[Row]:
    """First ours against the best others, then against each, then everybody's figures."""
    by_scenario = {str(key[0]): group for key, group in runs_by(done, ("scenario",)).items()}
    return [
        *(row for name, group in by_scenario.items() for row in _bests(name, group)),
        *(row for name, group in by_scenario.items() for row in _each(name, group)),
        *(row for name, group in by_scenario.items() for row in figures_of(group, experiment=NAME, profile=name)),
    ]


def _ours(group: Runs) -> str:
    """The first policy of the plan: `cost`, unless another one was asked for."""
    return next(iter(group))


def _bests(name: str, group: Runs) -> Iterator[Row]:
    ours, rest = _ours(group), {policy: runs for policy, runs in group.items() if policy != FLOOR}
    yield from against_best(rest, ours, experiment=NAME, profile=name)
    alone = {policy: runs for policy, runs in rest.items() if _as_published(name, policy)}
    if alone.keys() != rest.keys():
        yield from against_best(alone, ours, experiment=NAME, profile=name, name=PUBLISHED_BEST)


def _each(name: str, group: Runs) -> Iterator[Row]:
    yield from against_each(group, _ours(group), experiment=NAME, profile=name)


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """What is demanded of `cost`, by metric: against policies as published, and with what is ours lent to them."""
    every = list(found)
    return [
        _claim(every, row, metric, against, bound)
        for profile in dict.fromkeys(row.profile for row in every)
        for against in (BEST, PUBLISHED_BEST)
        for (metric, _), bound in zip(COMPARED, DEMANDED.get(profile, (NEVER_WORSE, NEVER_WORSE)), strict=True)
        for row in (measured(every, profile=profile, policy=OURS, metric=f"{metric} {against}"),)
        if row is not None
    ]


def _claim(every: list[Row], row: Row, metric: str, against: str, bound: float) -> Check:
    note = "" if row.lo is None else f"{row.lo:+.1f} .. {row.hi:+.1f}; "
    note += _best(every, row.profile, metric, without=LENT if against == PUBLISHED_BEST else ())
    name = f"{row.profile}: {metric} {against}"
    if row.profile == APART:
        return reported(name, row.value, unit="%", note=note)
    return at_most(name, row.value, bound, unit="%", note=note)


def _best(every: list[Row], profile: str, metric: str, *, without: Sequence[str]) -> str:
    """Its name."""
    left_out = {OURS, FLOOR, *(policy for policy in without if not _as_published(profile, policy))}
    here = [row for row in every if row.profile == profile and row.policy not in left_out]
    able = {row.policy for row in here if row.metric == "served" and (row.value or 0.0) >= 1e2 * SERVES_ALL}
    others = [row for row in here if row.metric == metric and row.policy in able]
    return min(others, key=lambda row: row.value or 0.0).policy if others else "?"


def _as_published(profile: str, policy: str) -> bool:
    """Whether nothing that is ours helps this policy here."""
    return policy not in LENT or (policy in LENT_INDEX and profile in NOTHING_SHARED)


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """The gains, and how far everybody is from what no routing can beat."""
    names = list(dict.fromkeys(row.profile for row in found))
    gains = Figure(
        name="gain",
        title="cost against the best other policy of each metric (below 0 is better)",
        kind="bars",
        x_label="scenario",
        y_label="%",
        series=[_series(found, names, OURS, f"{metric} {BEST}", metric) for metric, _ in COMPARED],
        caption="Mean over paired seeds, 95 % by bootstrap. D: each cell now and then at 0.4 of its speed, for 15 s.",
    )
    shown = (
        FLOOR,
        OURS,
        "gorgo:.5/.1;index=unbounded",
        "cache_aware;index=unbounded",
        "least_request:N",
        "round_robin",
    )
    floor = Figure(
        name="floor",
        title="p95 TTFT beside the zero-queue floor",
        kind="bars",
        x_label="scenario",
        y_label="ms",
        log_y=True,
        series=[_series(found, names, policy, "TTFT p95", policy) for policy in shown],
        caption="The floor: every request alone on the nearest site, all caches pooled; no routing can be below it.",
    )
    return (gains, floor)


def _series(found: Sequence[Row], names: Sequence[str], policy: str, metric: str, name: str) -> Series:
    picked = [measured(list(found), profile=profile, policy=policy, metric=metric) for profile in names]
    return series_of(name, names, picked)


NOTES = (
    "Paired over seeds: the same arrivals, lengths, paths and slow-downs for all; 10 % warm-up left out. In S1 the six "
    "orders of near, middle and far are gone through seed by seed. Every policy has fresh counts of its own requests. "
    "gorgo and cache_aware appear as published, with an index that grows, and with ours lent to them, bounded by the "
    "engines' caches; smg_least_load as published, by the engine's readings, and with our count of tokens that wait. "
    "A policy that serves fewer than 99 % is never the best."
)

EXPERIMENT = Experiment(
    name=NAME,
    title="cost in seconds against every other way to pick a cell, six scenarios, clean and disturbed",
    question="What does picking by cost gain in p95 TTFT and p95 E2E against the best other policy of each metric, and "
    "how far is it from the floor that no routing can beat?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=NOTES,
)
