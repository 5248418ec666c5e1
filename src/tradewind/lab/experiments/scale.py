"""`scale`: how good routing stays, and what it costs, from nine cells to a thousand."""

from collections.abc import Iterator, Mapping, Sequence
from time import process_time

from tradewind.lab.checks import Check, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.compare import to_row
from tradewind.lab.simulated.floor import floor_row
from tradewind.lab.simulated.metered import Metered
from tradewind.lab.simulated.nine import mean_row
from tradewind.lab.simulated.policies import maker
from tradewind.sim.fleets import fleet
from tradewind.sim.grid import SimGrid
from tradewind.sim.policy import Policy
from tradewind.sim.scenario import Scenario

NAME = "scale"
SIZES = (9, 27, 81, 243, 1_000)
POLICIES = ("envoy_round_robin", "envoy_least_request:2", "weights", "cost")
RATE_PER_CELL = 0.45  # of 2,048 prompt tokens: without a cache about half of what a healthy cell can do
REQUESTS, LEAST_S = 2_000, 30.0  # a small fleet runs until so many have come, a large one for so long
SEEDS, FIRST_SEED = 3, 700
DISTURBANCE = "D"
QUICK_SIZES, QUICK_REQUESTS, QUICK_S = (9, 27), 100, 12.0
TTFT, E2E = "TTFT p95", "E2E p95"
OVER = "over the floor"
DECISION, LEARNING = "CPU of a decision", "CPU of learning from a request"
HEARING, WHOLE = "CPU of views, paths and ticks, per second", "CPU of the simulation per request"
UNITS = {  # field of a result -> metric, unit, factor
    "ttft_p95_s": (TTFT, "ms", 1e3),
    "e2e_p95_s": (E2E, "s", 1.0),
    "ttft_over": (f"{TTFT} {OVER}", "x", 1.0),
    "e2e_over": (f"{E2E} {OVER}", "x", 1.0),
    "hit_ratio": ("prompt served from cache", "%", 1e2),
    "success_ratio": ("served", "%", 1e2),
    "decision_s": (DECISION, "us", 1e6),
    "learning_s": (LEARNING, "us", 1e6),
    "hearing_s": (HEARING, "ms", 1e3),
    "whole_s": (WHOLE, "us", 1e6),
}


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    return [
        Trial(
            experiment=NAME,
            args={"cells": cells, "policy": policy, "seed": seed, "for_s": _for_s(cells, quick=options.quick)},
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for cells in (QUICK_SIZES if options.quick else SIZES)
        for policy in options.policies or POLICIES
    ]


def _for_s(cells: int, *, quick: bool) -> float:
    requests, least_s = (QUICK_REQUESTS, QUICK_S) if quick else (REQUESTS, LEAST_S)
    return max(least_s, requests / (RATE_PER_CELL * cells))


def run(trial: Trial) -> Result:
    """One policy on one fleet and seed."""
    args = trial.args
    policy, seed = str(args["policy"]), int(args["seed"] or 0)
    scenario = fleet(
        int(args["cells"] or 0), rate_per_cell=RATE_PER_CELL, for_s=float(args["for_s"] or 0), disturbance=DISTURBANCE
    )
    metered: list[Metered] = []

    def make(of: Scenario) -> Policy:
        metered.append(Metered(maker(policy)(of)))
        return metered[-1]

    begin_s = process_time()
    ran = SimGrid(scenario, make, seed=seed).run()
    whole_s = process_time() - begin_s
    row, floor = to_row(scenario, ran, policy=policy, seed=seed), floor_row(scenario, seed=seed)
    (meter,) = metered
    return {
        "requests": len(ran.records),
        "ttft_p95_s": row.ttft_p95_s,
        "e2e_p95_s": row.e2e_p95_s,
        "ttft_over": row.ttft_p95_s / floor.ttft_p95_s,
        "e2e_over": row.e2e_p95_s / floor.e2e_p95_s,
        "hit_ratio": row.hit_served_ratio,
        "success_ratio": row.success_ratio,
        "decision_s": meter.deciding_s / meter.decisions,
        "learning_s": meter.learning_s / meter.decisions,
        "hearing_s": meter.hearing_s / scenario.for_s,
        "whole_s": whole_s / len(ran.records),
    }


def profile_of(cells: int) -> str:
    """As rows name it."""
    return f"{DISTURBANCE}, {cells:,} cells"


def rows(done: Done) -> Sequence[Row]:
    """Every metric of every policy at every size: the mean over seeds and its 95 % interval."""
    groups: dict[tuple[int, str], dict[int, Mapping[str, float]]] = {}
    for trial, result in done:
        key = int(trial.args["cells"] or 0), str(trial.args["policy"])
        groups.setdefault(key, {})[int(trial.args["seed"] or 0)] = result
    return [row for (cells, policy), by_seed in groups.items() for row in _of(profile_of(cells), policy, by_seed)]


def _of(profile: str, policy: str, by_seed: Mapping[int, Mapping[str, float]]) -> Iterator[Row]:
    for field, (metric, unit, factor) in UNITS.items():
        values = {seed: factor * result[field] for seed, result in by_seed.items()}
        yield mean_row(NAME, profile=profile, policy=policy, metric=metric, values=values, unit=unit)


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Reported: the issue asks how it grows, and sets no bound."""
    return [
        reported(f"{NAME}, {row.profile}: {row.metric} of {row.policy}", row.value, unit=row.unit)
        for row in found
        if row.policy in ("weights", "cost") and row.metric in (f"{TTFT} {OVER}", DECISION)
    ]


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Quality and cost over the number of cells."""
    shown = (
        ("ttft", f"{TTFT} {OVER}", "TTFT p95 over what no routing can beat", "x"),
        ("e2e", f"{E2E} {OVER}", "E2E p95 over what no routing can beat", "x"),
        ("decision", DECISION, "CPU of one decision in the simulator", "us"),
        ("hearing", HEARING, "CPU of hearing views and paths and of scoring, per second", "ms"),
    )
    return [
        Figure(
            name=name,
            title=title,
            kind="lines",
            x_label="cells",
            y_label=unit,
            series=[_series(found, policy, metric) for policy in dict.fromkeys(row.policy for row in found)],
            log_x=True,
            log_y=name in ("decision", "hearing"),
            caption=f"{RATE_PER_CELL:g} requests/s per cell, profile {DISTURBANCE}; 95 % over seeds by bootstrap.",
        )
        for name, metric, title, unit in shown
    ]


def _series(found: Sequence[Row], policy: str, metric: str) -> Series:
    sizes = [
        cells for cells in sorted({*SIZES, *QUICK_SIZES}) if any(row.profile == profile_of(cells) for row in found)
    ]
    picked = [measured(list(found), profile=profile_of(cells), policy=policy, metric=metric) for cells in sizes]
    return series_of(policy, sizes, picked)


EXPERIMENT = Experiment(
    name=NAME,
    title="From nine cells to a thousand",
    question="How do the quality of routing and its cost grow with the number of cells behind one gateway?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Load, documents and disturbance grow with the fleet, so that a policy which needed nothing but its own cell's "
        "state would stay where it is. The floor is each request alone on the nearest site with all caches in one. CPU "
        "is of this machine and of Python: an Envoy that picks by shares or counts decides in C++ or Lua."
    ),
)
