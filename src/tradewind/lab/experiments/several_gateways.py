"""`several-gateways`: what it costs that each sees only its own requests, and what telling the others is worth."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row, measured, signed_interval
from tradewind.lab.simulated.nine import number, text
from tradewind.lab.simulated.paired import COMPARED, Runs, against_each, as_row_of, figures_of
from tradewind.lab.simulated.trials import run_policy, runs_by, shortened
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named

NAME = "several-gateways"
OURS, ALONE = "cost", "cost;index=own"
OTHERS = ("session_affinity", "cache_aware;index=unbounded", "gorgo:.276/.5;index=unbounded")
COUNTS = (1, 2, 4)
EXCHANGE_S = 0.1  # as live, on a grid of some cells
DELAYS_S = (0.020, 0.5, 3.0)  # of the exchange between two gateways, beside it
VIEW_S = {0.020: 0.005, 3.0: 0.1}  # which control takes to pass it on; the first is nearly as if they were one
USUAL_VIEW_S = 0.05
EVENTS = "with KV events"
SEEDS, FIRST_SEED = 10, 3_700
QUICK_COUNTS, QUICK_S = (2,), 60.0


def scenario_of(gateways: int, *, exchange_s: float, kv_events: bool) -> Scenario:
    """S1, time scale 1, with so many gateways at one place; a request comes to any of them."""
    one = scenario_named("S1-ts1")
    return replace(
        one,
        name=NAME,
        rtts_s=one.rtts_s * gateways,
        delays=replace(one.delays, sync_s=exchange_s, view_s=VIEW_S.get(exchange_s, USUAL_VIEW_S)),
        kv_events=kv_events,
    )


def profile_of(gateways: int, *, exchange_s: float = EXCHANGE_S, kv_events: bool = False) -> str:
    """In words."""
    count = "1 gateway" if gateways == 1 else f"{gateways} gateways, told each {exchange_s:g} s"
    return f"{count}, {EVENTS}" if kv_events else count


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    return [
        Trial(
            experiment=NAME,
            args={
                "gateways": gateways,
                "exchange_s": exchange_s,
                "kv_events": kv_events,
                "policy": policy,
                "seed": seed,
                "for_s": QUICK_S if options.quick else None,
            },
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for gateways, exchange_s, kv_events, policy in _arms(options)
    ]


def _arms(options: Options) -> Iterator[tuple[int, float, bool, str]]:
    for gateways in QUICK_COUNTS if options.quick else COUNTS:
        default = (OURS, ALONE) if options.quick else (OURS, ALONE, *OTHERS)
        for policy in options.policies or default:
            if gateways > 1 or policy != ALONE:  # with one gateway there is nobody to tell
                yield gateways, EXCHANGE_S, False, policy
    if options.quick or options.policies:
        return
    for exchange_s in DELAYS_S:
        yield 2, exchange_s, False, OURS
    for policy in (OURS, ALONE):
        yield 2, EXCHANGE_S, True, policy


def run(trial: Trial) -> Result:
    """One policy on one seed."""
    args = trial.args
    scenario = scenario_of(
        int(number(trial, "gateways")), exchange_s=number(trial, "exchange_s"), kv_events=bool(args["kv_events"])
    )
    return run_policy(shortened(scenario, args["for_s"]), policy=text(trial, "policy"), seed=int(number(trial, "seed")))


def rows(done: Done) -> Sequence[Row]:
    """Every policy by profile, ours against each, and all of ours against one gateway."""
    found: list[Row] = []
    ours: dict[str, Runs] = {}
    for (gateways, exchange_s, kv_events), runs in runs_by(done, ("gateways", "exchange_s", "kv_events")).items():
        assert isinstance(gateways, int)
        assert isinstance(exchange_s, float)
        profile = profile_of(gateways, exchange_s=exchange_s, kv_events=bool(kv_events))
        found += figures_of(runs, experiment=NAME, profile=profile)
        if OURS in runs:
            found += against_each(runs, OURS, experiment=NAME, profile=profile)
            ours[profile] = runs
    return [*found, *_against_one(ours)]


def _against_one(ours: dict[str, Runs]) -> Iterator[Row]:
    one = ours.get(profile_of(1))
    for profile, runs in ours.items():
        for policy in (OURS, ALONE):
            if one is None or runs is one or policy not in runs:
                continue
            pair: Runs = {policy: runs[policy], "one": one[OURS]}
            for row in against_each(pair, policy, experiment=NAME, profile=profile):
                yield as_row_of(row, policy, against="one gateway")


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Telling the others never costs; how near several gateways come to one is shown."""
    every = list(found)
    checks: list[Check] = []
    for profile in dict.fromkeys(row.profile for row in found):
        for metric, _ in COMPARED:
            told = measured(every, profile=profile, policy=ALONE, metric=f"{metric}: {OURS} against it")
            if told is not None:
                name = f"{profile}: {metric} of gateways that tell each other, against those that do not"
                checks.append(at_most(name, told.value, 0.0, unit="%", note=signed_interval(told)))
            for policy in (OURS, ALONE):
                row = measured(every, profile=profile, policy=policy, metric=f"{metric} against one gateway")
                if row is not None:
                    name = f"{profile}: {metric} of {policy} against one gateway"
                    checks.append(reported(name, row.value, unit="%", note=signed_interval(row)))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """By the number of gateways."""
    every = list(found)
    profiles = [profile_of(count) for count in COUNTS]
    policies = [p for p in dict.fromkeys(row.policy for row in found) if p in (OURS, ALONE, *OTHERS)]
    return [
        Figure(
            name=field.removesuffix("_s").replace("_", "-"),
            title=f"{metric} by the number of gateways, three far cells, ART-like trace",
            kind="bars",
            x_label="gateways",
            y_label=unit,
            series=[
                series_of(
                    policy,
                    [str(count) for count in COUNTS],
                    [measured(every, profile=profile, policy=policy, metric=metric) for profile in profiles],
                )
                for policy in policies
            ],
            caption="Means over seeds, 95 %; cost;index=own: each gateway knows only what it has sent itself.",
        )
        for metric, field, unit in (("TTFT p95", "ttft_p95_s", "ms"), ("E2E p95", "e2e_p95_s", "s"))
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Several gateways: each knows its own requests, or what all have sent where",
    question="What does it cost that requests come to any of several gateways, and what is telling the others worth?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "S1 at time scale 1 with the same paths from every gateway. Each request comes to a gateway by chance, so that "
        "a session's requests do, too. Policies with ;index=unbounded are as published: an index that never forgets, "
        "of own requests alone. session_affinity needs no index: all gateways hash a session to the same cell."
    ),
)
