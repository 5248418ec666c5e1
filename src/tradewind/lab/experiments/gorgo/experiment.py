"""`gorgo`: the published windows, load sweep and failure, with cost beside the published policies."""

from collections.abc import Iterator, Mapping, Sequence

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.experiments.gorgo.grid import APR_7, STALE, WINDOWS, grid, window_trace
from tradewind.lab.experiments.gorgo.published import published
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.paired import BEST, COMPARED, Runs, against_best, against_each, figures_of
from tradewind.lab.simulated.trials import run_policy, runs_by
from tradewind.sim.scenarios import permuted
from tradewind.workload.stats import trace_stats
from tradewind.workload.streams import stream

NAME = "gorgo"
OURS, LEARNED, NO_QUEUE = "cost", "gorgo:.276/.5", "gorgo:.276/0"
PUBLISHED_POLICIES = (LEARNED, "session_affinity", f"least_load{STALE}", "least_request:N", "prefix_cache")
POLICIES = (OURS, *PUBLISHED_POLICIES, "gorgo:.5/.1", "least_load", "random")
SWEEP_POLICIES = (OURS, LEARNED, "session_affinity", "least_request:N", "gorgo:.5/.1")
UNBOUNDED = ("gorgo:", "prefix_cache")  # their index grows, as published: it cannot see what engines evict
AS_RUN = (("Apr 5", 1), ("Apr 6", 2), ("Apr 7", 3))  # window and time scale
SWEPT = (("Apr 7", 1), ("Apr 7", 2))
FAILURE = "Apr 7, scale 3"
SEEDS, FIRST_SEED, FOR_S = 6, 700, 900.0
QUICK_S, QUICK_POLICIES = 20.0, (OURS, LEARNED, NO_QUEUE)
DEMANDED: Mapping[int, tuple[float, float]] = {1: (-10.0, -8.0), 2: (-5.0, -6.0), 3: (-5.0, -6.0)}
ORDERS = 6
STATISTICS = "statistics"


def plan(options: Options) -> Sequence[Trial]:
    """Every policy on every window, then the sweep; the order of the cells goes on with the seed."""
    seeds = options.seed_range(seeds=SEEDS, first=FIRST_SEED)
    for_s = QUICK_S if options.quick else FOR_S
    trials = [_trial(window, 1, STATISTICS, seeds[0], 0, for_s) for window in WINDOWS]
    for place, seed in enumerate(seeds):
        for window, scale in (*AS_RUN, *(() if options.quick else SWEPT)):
            policies = options.policies or _policies(window, scale, quick=options.quick)
            trials += [_trial(window, scale, policy, seed, place % ORDERS, for_s) for policy in policies]
    return trials


def _policies(window: str, scale: int, *, quick: bool) -> Sequence[str]:
    if quick:
        return QUICK_POLICIES
    if (window, scale) in SWEPT:
        return SWEEP_POLICIES
    return (*POLICIES, NO_QUEUE) if _profile(window, scale) == FAILURE else POLICIES


def _profile(window: str, scale: int) -> str:
    return f"{window}, scale {scale}"


def _trial(window: str, scale: int, policy: str, seed: int, order: int, for_s: float) -> Trial:
    return Trial(
        experiment=NAME,
        args={"window": window, "scale": scale, "policy": policy, "seed": seed, "order": order, "for_s": for_s},
    )


def run(trial: Trial) -> Result:
    """One policy on one window, or what the window itself is."""
    args = trial.args
    window, policy, seed = WINDOWS[str(args["window"])], str(args["policy"]), int(args["seed"] or 0)
    if policy == STATISTICS:
        return _statistics(str(args["window"]), seed)
    scenario = grid(
        window,
        for_s=float(args["for_s"] or FOR_S),
        time_scale=float(args["scale"] or 1),
        old_metrics=policy.endswith(STALE),
    )
    return run_policy(permuted(scenario, int(args["order"] or 0)), policy=written(policy), seed=seed)


def written(policy: str) -> str:
    """The written form of a policy of this experiment: published ones have the index that they had."""
    plain = policy.removesuffix(STALE)
    return f"{plain};index=unbounded" if plain.startswith(UNBOUNDED) and ";" not in plain else plain


def _statistics(name: str, seed: int) -> Result:
    """Of the whole half hour, whatever part of it is simulated."""
    trace = window_trace(stream(seed, f"gorgo-{name}"), WINDOWS[name], for_s=1_800.0, time_scale=1.0)
    stats = trace_stats(trace)
    return {
        "requests": stats.requests,
        "input mean": stats.prompt_tokens.mean,
        "input p50": stats.prompt_tokens.p50,
        "input p95": stats.prompt_tokens.p95,
        "block reuse": 1e2 * (stats.reuse or 0.0),
    }


def rows(done: Done) -> Sequence[Row]:
    """Ours against the others, everybody's figures, and what the windows are."""
    windows = [(trial, result) for trial, result in done if trial.args["policy"] == STATISTICS]
    runs = [(trial, result) for trial, result in done if trial.args["policy"] != STATISTICS]
    grouped = {_profile(str(window), int(scale or 1)): group for (window, scale), group in _grouped(runs)}
    return [
        *(row for profile, group in grouped.items() for row in _compared(profile, group)),
        *(row for profile, group in grouped.items() for row in figures_of(group, experiment=NAME, profile=profile)),
        *(row for trial, result in windows for row in _window_rows(trial, result)),
    ]


def _grouped(runs: Done) -> Iterator[tuple[tuple[str, int], Runs]]:
    """By window and scale, under the names of this experiment."""
    for (window, scale), group in runs_by(runs, ("window", "scale")).items():
        yield (str(window), int(scale or 1)), group


def _compared(profile: str, group: Runs) -> Iterator[Row]:
    ours = next(iter(group))
    # Without a queue weight everything goes to the nearest cell: a failure to show, and nobody's baseline.
    rest = {policy: runs for policy, runs in group.items() if policy != NO_QUEUE}
    yield from against_best(rest, ours, experiment=NAME, profile=profile)
    yield from against_each(group, ours, experiment=NAME, profile=profile)
    if LEARNED in group and NO_QUEUE in group:
        both = {NO_QUEUE: group[NO_QUEUE], LEARNED: group[LEARNED]}
        yield from against_each(both, NO_QUEUE, experiment=NAME, profile=profile)


def _window_rows(trial: Trial, result: Result) -> Iterator[Row]:
    for metric, value in result.items():
        unit = "%" if metric == "block reuse" else "tokens" if metric.startswith("input") else ""
        yield Row(
            experiment=NAME,
            profile=str(trial.args["window"]),
            policy="",
            metric=metric,
            value=float(value),
            unit=unit,
            n=1,
            seed=int(trial.args["seed"] or 0),
        )


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """The gains at each scale, and that a failure known from the publication shows here."""
    every = list(found)
    gains = [
        at_most(f"{profile}: {metric} {BEST}", row.value, bound, unit="%", note=_interval(row))
        for window, scale in (*AS_RUN, *SWEPT)
        for profile in (_profile(window, scale),)
        for (metric, _), bound in zip(COMPARED, DEMANDED[scale], strict=True)
        for row in (measured(every, profile=profile, policy=OURS, metric=f"{metric} {BEST}"),)
        if row is not None
    ]
    return [*gains, *_failure(every)]


def _failure(every: list[Row]) -> Iterator[Check]:
    """W_queue = 0: all goes to the nearest cell, and E2E is the longest of all."""
    share = measured(every, profile=FAILURE, policy=NO_QUEUE, metric="largest share of a cell")
    ttft, e2e = (
        measured(every, profile=FAILURE, policy=LEARNED, metric=f"{metric}: {NO_QUEUE} against it")
        for metric, _ in COMPARED
    )
    if share is None or ttft is None or e2e is None:
        return
    name = "no queue weight"
    yield at_least(f"{name}: share of the nearest cell", share.value, 90.0, unit="%")
    yield at_least(f"{name}: E2E p95 against the learned weights", e2e.value, 50.0, unit="%", note=_interval(e2e))
    longer = [row for row in every if (row.profile, row.metric) == (FAILURE, "E2E p95") and row.policy != NO_QUEUE]
    worst = measured(every, profile=FAILURE, policy=NO_QUEUE, metric="E2E p95")
    if worst is not None and worst.value is not None:
        above = sum(1 for row in longer if (row.value or 0.0) > (worst.value or 0.0))
        yield at_most(f"{name}: policies with a longer E2E p95", above, 0)
    yield reported(f"{name}: TTFT p95 against the learned weights", ttft.value, unit="%", note=_interval(ttft))


def _interval(row: Row) -> str:
    return "" if row.lo is None else f"{row.lo:+.1f} .. {row.hi:+.1f}"


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """The windows as bars, the sweep as lines."""
    every = list(found)
    profiles = [_profile(window, scale) for window, scale in AS_RUN]
    windows = [
        Figure(
            name=f"windows-{metric.split()[0].lower()}",
            title=f"{metric} of the three windows",
            kind="bars",
            x_label="window, time scale",
            y_label=unit,
            log_y=True,
            series=[_series(every, policy, metric, profiles, profiles) for policy in _known(every, POLICIES)],
            caption="Mean and 95 % over the six orders of near, middle and far.",
        )
        for metric, unit in (("TTFT p95", "ms"), ("E2E p95", "s"))
    ]
    sweep = Figure(
        name="sweep",
        title=f"Load sweep on {APR_7.name}: E2E p95",
        kind="lines",
        x_label="time scale (2: half the load)",
        y_label="s",
        log_y=True,
        series=[
            _series(every, policy, "E2E p95", [_profile(APR_7.name, scale) for scale in (1, 2, 3)], (1.0, 2.0, 3.0))
            for policy in _known(every, SWEEP_POLICIES)
        ],
    )
    return (*windows, sweep)


def _known(every: list[Row], policies: Sequence[str]) -> list[str]:
    there = {row.policy for row in every}
    return [policy for policy in policies if policy in there]


def _series(every: list[Row], policy: str, metric: str, profiles: Sequence[str], x: Sequence[float | str]) -> Series:
    picked = [measured(every, profile=profile, policy=policy, metric=metric) for profile in profiles]
    return series_of(policy, x, picked)


NOTES = (
    "Each run has the first 15 minutes of a window. Arrivals are open loop and TTFT starts when a request is due; the "
    "authors' 64 clients wait for answers, and start the clock when they send. Their probes open a connection and read "
    "two to three times the round trip that a warm one has; here a weight meets the warm one. The step-time law of 2 x "
    "L40S is fitted to their inter-token times to within 40 %, so absolute figures carry that. Without a queue weight "
    "their TTFT was the shortest of all: at most 64 requests wait, and SGLang runs prefills before decodes. Here "
    "arrivals do not wait and decodes go first, so that the nearest cell's queue is in the TTFT, too."
)

EXPERIMENT = Experiment(
    name=NAME,
    title="GORGO's three windows and load sweep, its weights and baselines, and cost",
    question="On three far cells under the published loads: what do GORGO's weights gain over its baselines, what does "
    "cost gain over all of them, and what happens without a queue weight?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=tuple(published()),
    notes=NOTES,
)
