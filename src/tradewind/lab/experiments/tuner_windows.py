"""`tuner-windows`: weights tuned on one published window, frozen, judged on the two others, beside every baseline."""

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from tradewind.core.tuner.tuner import Happened
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.experiments.gorgo.experiment import LEARNED, ORDERS, POLICIES, written
from tradewind.lab.experiments.gorgo.grid import STALE, WINDOWS, grid
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row, measured, signed_interval
from tradewind.lab.simulated.compare import RunRow
from tradewind.lab.simulated.nine import number, ran, text
from tradewind.lab.simulated.paired import BEST, COMPARED, Runs, against_best, against_each, figures_of
from tradewind.lab.simulated.trials import run_policy
from tradewind.model.tuning import Weights
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import permuted
from tradewind.sim.tuning import TuningHistory

NAME = "tuner-windows"
TUNED_ON, JUDGED_ON = ("Apr 5", 1), (("Apr 6", 2), ("Apr 7", 3))  # window and time scale
OURS = "cost;tuner=calibrator"
UNTUNED = "cost"
TUNED = {  # as written -> how the frozen weights are written
    OURS: "cost;rtt_weight={rtt:.4g};queue_weight={queue:.4g}",
    "gorgo:.5/.1;tuner=es": "gorgo:{rtt:.4g}/{queue:.4g}",
    "gorgo:.5/.1;tuner=es-repaired;box=published": "gorgo:{rtt:.4g}/{queue:.4g}",
}
SEEDS, FIRST_SEED, FOR_S = 10, 3_500, 900.0
QUICK_S, QUICK_POLICIES = 20.0, (*tuple(TUNED)[:2], UNTUNED, LEARNED)
NOT_WORSE = 5.0  # %, of the weights that it started from


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost; the order of near, middle and far goes on with the seed."""
    policies = options.policies or (QUICK_POLICIES if options.quick else (*TUNED, *POLICIES))
    return [
        Trial(
            experiment=NAME,
            args={
                "policy": policy,
                "seed": seed,
                "order": place % ORDERS,
                "for_s": QUICK_S if options.quick else FOR_S,
            },
        )
        for place, seed in enumerate(options.seed_range(seeds=SEEDS, first=FIRST_SEED))
        for policy in policies
    ]


def run(trial: Trial) -> Result:
    """Where the policy is tuned, on the first window alone; then the two others."""
    policy, seed = text(trial, "policy"), int(number(trial, "seed"))
    judged, weights = written(policy), None
    if policy in TUNED:
        tuning = policy if policy == OURS else f"{policy};index=unbounded"  # as `written` has it for the frozen ones
        history = ran(_scenario(trial, *TUNED_ON), tuning, seed=seed).result.tuning
        assert history is not None
        weights = learned(history)
        judged = written(TUNED[policy].format(rtt=weights.rtt, queue=weights.queue))
    return {
        "weights": None if weights is None else list(weights),
        "windows": {
            profile(*window): run_policy(_scenario(trial, *window), policy=judged, seed=seed) for window in JUDGED_ON
        },
    }


def learned(history: TuningHistory) -> Weights:
    """The parent's at the end. A child that all requests go by while it is tried has not been accepted."""
    settled = [event.weights for event in history.events if event.what is not Happened.PROPOSED]
    return settled[-1] if settled else history.orders[0][1].weights


def profile(window: str, scale: int) -> str:
    """As rows name it."""
    return f"{window}, scale {scale}"


def _scenario(trial: Trial, window: str, scale: int) -> Scenario:
    made = grid(
        WINDOWS[window],
        for_s=number(trial, "for_s"),
        time_scale=float(scale),
        old_metrics=text(trial, "policy").endswith(STALE),
    )
    return permuted(made, int(number(trial, "order")))


def rows(done: Done) -> Sequence[Row]:
    """Ours against the others, everybody's figures, and what the tuners had learned."""
    found: list[Row] = []
    for window in JUDGED_ON:
        name = profile(*window)
        runs = _runs(done, name)
        if not runs:
            continue
        ours = next(iter(runs))
        found += against_best(runs, ours, experiment=NAME, profile=name)
        found += against_each(runs, ours, experiment=NAME, profile=name)
        found += figures_of(runs, experiment=NAME, profile=name)
    return [*found, *_learned(done)]


def _runs(done: Done, name: str) -> Runs:
    """By policy; only seeds that all of them have."""
    found: dict[str, dict[int, RunRow]] = {}
    for trial, result in done:
        row = msgspec.convert(result["windows"][name], RunRow)
        found.setdefault(text(trial, "policy"), {})[int(number(trial, "seed"))] = row
    shared = set.intersection(*(set(by_seed) for by_seed in found.values())) if found else set()
    return {policy: [by_seed[seed] for seed in sorted(shared)] for policy, by_seed in found.items()} if shared else {}


def _learned(done: Done) -> Iterator[Row]:
    by_policy: dict[str, dict[int, Sequence[float]]] = {}
    for trial, result in done:
        if result["weights"] is not None:
            by_policy.setdefault(text(trial, "policy"), {})[int(number(trial, "seed"))] = result["weights"]
    for policy, by_seed in by_policy.items():
        for place, which in enumerate(("rtt", "queue")):
            values = [weights[place] for weights in by_seed.values()]
            for what, value in (("median", median(values)), ("least", min(values)), ("most", max(values))):
                yield Row(
                    experiment=NAME, profile=f"tuned on {profile(*TUNED_ON)}", policy=policy,
                    metric=f"{which} weight, {what}", value=value, n=len(values), seed=min(by_seed),
                )  # fmt: skip


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Tuned and frozen, the calibrator's weights must not lose to those that it started from."""
    every = list(found)
    checks: list[Check] = []
    for window in JUDGED_ON:
        for metric, _ in COMPARED:
            name = profile(*window)
            untuned = measured(every, profile=name, policy=UNTUNED, metric=f"{metric}: {OURS} against it")
            if untuned is not None:
                what = f"{name}: {metric}, {OURS} frozen, against {UNTUNED}"
                checks.append(at_most(what, untuned.value, NOT_WORSE, unit="%", note=signed_interval(untuned)))
            best = measured(every, profile=name, policy=OURS, metric=f"{metric} {BEST}")
            if best is not None:
                checks.append(reported(f"{name}: {metric} {BEST}", best.value, unit="%", note=signed_interval(best)))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Both windows, one metric each."""
    every = list(found)
    names = [profile(*window) for window in JUDGED_ON]
    policies = [policy for policy in dict.fromkeys(row.policy for row in every) if policy]
    return [
        Figure(
            name=metric.split()[0].lower(),
            title=f"{metric} of the two windows that nothing was tuned on",
            kind="bars",
            x_label="window, time scale",
            y_label=unit,
            log_y=True,
            series=[
                series_of(
                    policy, names, [measured(every, profile=name, policy=policy, metric=metric) for name in names]
                )
                for policy in policies
            ],
            caption="Mean and 95 % over seeds; the order of near, middle and far goes on with the seed.",
        )
        for metric, unit in (("TTFT p95", "ms"), ("E2E p95", "s"))
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Weights tuned on one window, frozen, judged on two others",
    question=(
        "GORGO's tuner learns its weights on one window and is judged on two others. With the published search, the "
        "repaired one and the calibrator in its place: what do weights gain that were found on other requests?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Tuned on April 5 at scale 1, judged on April 6 at scale 2 and April 7 at scale 3, 15 minutes of each; windows "
        "are synthetic with the published statistics (`gorgo`). The searches move GORGO's two weights inside the "
        "published box from the published start, the calibrator those of `cost`. Published policies have an index "
        "that grows, as they had."
    ),
)
