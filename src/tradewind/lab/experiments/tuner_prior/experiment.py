"""`tuner-prior`: from priors 10x wrong in either weight, how near do tuners come to the best fixed weights and when."""

from collections.abc import Iterator, Sequence
from math import ceil

from tradewind.lab.checks import Check, at_least, reported
from tradewind.lab.experiments.tuner_prior.grids import PROFILES
from tradewind.lab.experiments.tuner_prior.rows import (
    AS_RUN,
    CHOSEN_GAP,
    GAP,
    P95,
    RUNS_WITHIN,
    SEEDS_WITHIN,
    TICKS,
    from_start,
    gap_at,
    rows,
    weight_at,
)
from tradewind.lab.experiments.tuner_prior.surface import AXIS
from tradewind.lab.experiments.tuner_prior.trials import (
    AFTER,
    AGAIN,
    ARMS,
    CALIBRATOR,
    GRID_SEEDS,
    NAME,
    PUBLISHED,
    QUICK_AXIS,
    STARTS,
    fixed,
    plan,
    run,
)
from tradewind.lab.harness.experiment import Experiment
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.model.tuning import PHYSICS, Weights

DEMANDED = 0.9  # of the seeds


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """The calibrator is held to it on each grid, by its worst prior; the others are shown beside it."""
    return [check for profile in PROFILES for check in _claims_of(list(found), profile)]


def _claims_of(found: list[Row], profile: str) -> Iterator[Check]:
    for arm in ARMS:
        starts = {
            start: row
            for start in (*STARTS, PHYSICS)
            if (row := measured(found, profile=from_start(profile, start), policy=arm, metric=SEEDS_WITHIN)) is not None
        }
        if not starts:
            continue
        worst = min(starts, key=lambda start: (starts[start].value or 0.0) / (starts[start].n or 1))
        row = starts[worst]
        count = row.n or 1
        name = f"{profile}: {SEEDS_WITHIN}, {arm}, of {count}"
        note = f"worst prior: {worst.rtt:g}/{worst.queue:g}"
        if arm == CALIBRATOR:
            yield at_least(name, row.value, ceil(DEMANDED * count), unit="seeds", note=note)
        else:
            yield reported(name, row.value, unit="seeds", note=note)
    for metric, note in ((GAP, "what it returns to"), (CHOSEN_GAP, "the best chosen on the other seeds")):
        own = measured(found, profile=profile, policy=fixed(PHYSICS), metric=metric)
        if own is not None:
            yield reported(f"{profile}: gap of the default itself, 1/1", own.value, unit="%", note=note)
    for policy in (CALIBRATOR, AGAIN):
        ran = measured(found, profile=profile, policy=policy, metric=RUNS_WITHIN)
        if ran is not None:
            name = "1/1 against itself" if policy == AGAIN else policy
            yield reported(f"{profile}: {RUNS_WITHIN}, {name}", ran.value, unit="%", note=f"{ran.n} runs")


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """The surface, the way down to its floor, the weights on that way, and all grids beside one another."""
    every = list(found)
    return [
        _surface(every, "scale 1", "surface"),
        _surface(every, "scale 0.7", "surface-loaded"),
        _gaps(every),
        _weights(every),
        _as_run(every),
    ]


def _surface(found: list[Row], profile: str, name: str) -> Figure:
    axis = AXIS if measured(found, profile=profile, policy=fixed(Weights(0.1, 0.1)), metric=P95) else QUICK_AXIS
    return Figure(
        name=name,
        title=f"p95 TTFT of fixed weights, {profile}",
        kind="lines",
        x_label="queue weight",
        y_label="ms",
        log_x=True,
        log_y=True,
        series=[
            series_of(
                f"rtt weight {rtt:g}",
                axis,
                [measured(found, profile=profile, policy=fixed(Weights(rtt, queue)), metric=P95) for queue in axis],
            )
            for rtt in axis
        ],
        caption=f"Means of {GRID_SEEDS} seeds, of requests after the first {AFTER:,}.",
    )


def _gaps(found: list[Row]) -> Figure:
    series = [
        series_of(arm, TICKS, [measured(found, profile="scale 1", policy=arm, metric=gap_at(tick)) for tick in TICKS])
        for arm in ARMS
        if measured(found, profile="scale 1", policy=arm, metric=gap_at(0))
    ]
    return Figure(
        name="gap",
        title="How far the weights in force are from the best fixed ones, scale 1",
        kind="lines",
        x_label="requests",
        y_label="% of p95 TTFT, by the surface",
        series=series,
        caption="Means over four priors, each 10x wrong in one weight, and seeds; 95 % by bootstrap.",
    )


def _weights(found: list[Row]) -> Figure:
    series = []
    for arm in (CALIBRATOR, PUBLISHED):
        for start in STARTS:
            which = "rtt" if start.rtt != 1.0 else "queue"
            profile = from_start("scale 1", start)
            picked = [measured(found, profile=profile, policy=arm, metric=weight_at(which, tick)) for tick in TICKS]
            if picked[0] is not None:
                series.append(series_of(f"{which} from {max(start):g}/..., {arm}", TICKS, picked))
    return Figure(
        name="weights",
        title="The weight that was wrong, scale 1",
        kind="lines",
        x_label="requests",
        y_label="weight",
        log_y=True,
        series=series,
        caption="Medians over seeds.",
    )


def _as_run(found: list[Row]) -> Figure:
    names = [profile for profile in PROFILES if measured(found, profile=profile, policy=CALIBRATOR, metric=AS_RUN)]
    shown = [
        series_of(label, names, [measured(found, profile=name, policy=policy, metric=AS_RUN) for name in names])
        for policy, label in ((AGAIN, "1/1, drawn again"), *((arm, arm) for arm in ARMS))
        if any(measured(found, profile=name, policy=policy, metric=AS_RUN) for name in names)
    ]
    return Figure(
        name="as-run",
        title=f"p95 TTFT after the first {AFTER:,} requests, against the best fixed weights",
        kind="bars",
        x_label="grid and load",
        y_label="%",
        series=shown,
        caption="All priors and seeds together; trials of other settings, and what they leave in the caches, included.",
    )


NOTES = (
    "The calibrator ends at a known default: inside its dead band a fitted weight counts as 1, the physical rate. What "
    "this shows is that it tells a gross error from chance and goes back to 1/1, and that 1/1 is near the best fixed "
    "weights here; where it were not, the calibrator would not find what is better. Gaps are of the weights in force, "
    "read from the surface of fixed weights, because a p95 over so few requests moves by chance, too: how far, the "
    "rows of 1/1 against itself say. What a tuner's trials cost shows in the runs themselves. The published weights "
    "(.276/.5 on 2 x L40S, 1.13/.242 on H100) belong to a cost of two terms and are no figures of this one."
)
EXPERIMENT = Experiment(
    name=NAME,
    title="Tuners from priors that are 10x wrong",
    question="A prior is 10x wrong in one of the two weights: does a tuner find weights as good as the best fixed "
    "ones, after how many requests, and at what load?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=NOTES,
)
