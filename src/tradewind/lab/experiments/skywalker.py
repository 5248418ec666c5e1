"""`skywalker`: three regions whose days are eight hours apart; who uses whose cells, and how many cells that saves."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.lab.simulated.compare import RunRow
from tradewind.lab.simulated.paired import SERVES_ALL, Runs, against_each, figures_of
from tradewind.lab.simulated.trials import run_policy, runs_by, shortened
from tradewind.measure.statistics import mean_interval
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.wan import PRIVATE
from tradewind.workload.classes import BLOCK_TOKENS
from tradewind.workload.mooncake import Trace, TracedRequest
from tradewind.workload.sessions import CHAT, sessions

NAME = "skywalker"
REGIONS = ("ap", "eu", "us")
_RTTS_S = ((0.004, 0.240, 0.180), (0.240, 0.004, 0.090), (0.180, 0.090, 0.004))  # from the gateway of each region
DAY_S = 300.0  # a day, compressed: three peaks, each a third of it after the last
SWING = 0.8  # of the mean rate, up at noon and down at midnight
MEAN_PER_S = 1.4  # of each region
FLEETS = (2, 3, 4)  # cells of each region
BLIND, SELECTIVE, OURS = "skywalker:blind", "skywalker", "cost"
POLICIES = (OURS, SELECTIVE, BLIND, "cache_aware", "least_request:N")
UNBOUNDED = ("skywalker", "cache_aware")
SEEDS, FIRST_SEED = 6, 700
QUICK_S, QUICK_FLEETS, QUICK_POLICIES = 30.0, (2,), (OURS, SELECTIVE, BLIND)
SLO_TTFT_S = 3.0  # p95 of the whole day
NEEDED, SAVED = "cells needed", "cells saved against blind pushing"
ALL_FLEETS = "all fleets"


def diurnal(rng: random.Random, *, mean_per_s: float, for_s: float) -> Trace:
    """Chat sessions of three regions; each request's `kind` is the number of its region.

    Each region's sessions come at its peak rate, and a turn is left out by the hour: its session goes on.
    """
    found: list[TracedRequest] = []
    for region in range(len(REGIONS)):
        peak = sessions(rng, CHAT, rate_per_s=mean_per_s * (1.0 + SWING), for_s=for_s)
        found += [
            replace(
                request,
                block_ids=tuple(block * len(REGIONS) + region for block in request.block_ids),
                session=f"{REGIONS[region]}-{request.session}",
                kind=str(region),
            )
            for request in peak.requests
            if rng.random() < by_hour(request.at_s, region)
        ]
    return Trace(requests=tuple(sorted(found, key=lambda request: request.at_s)), block_tokens=BLOCK_TOKENS)


def by_hour(at_s: float, region: int) -> float:
    """The rate of a region at this time, over its peak."""
    phase = 2.0 * math.pi * (at_s / DAY_S - region / len(REGIONS))
    return (1.0 + SWING * math.cos(phase)) / (1.0 + SWING)


def grid(cells_each: int) -> Scenario:
    """A gateway and so many cells in each region; clients come to their own region's gateway."""
    limits = EngineLimits(block_size_tokens=BLOCK_TOKENS)
    cells = tuple(
        CellSpec(cell_id=f"{region}-{number}", site=region, profile=PROFILES["rtx-pro-6000"], limits=limits)
        for region in REGIONS
        for number in range(cells_each)
    )
    return Scenario(
        name=NAME,  # of every size: the streams of chance go by it, so that the load stays the same
        title=f"3 regions x {cells_each} RTX PRO 6000, RTT 4/90/180/240 ms, chat sessions, a day of {DAY_S:g} s",
        cells=cells,
        rtts_s=tuple(tuple(rtt_s for rtt_s in rtts for _ in range(cells_each)) for rtts in _RTTS_S),
        load=lambda rng: diurnal(rng, mean_per_s=MEAN_PER_S, for_s=DAY_S),
        for_s=DAY_S,
        wan=PRIVATE,
        gateway_of=lambda request: int(request.kind),
        warm_up_ratio=0.0,  # every hour counts: the day begins at one region's peak, with its sessions under way
    )


def plan(options: Options) -> Sequence[Trial]:
    """Every policy on every fleet; the load of a seed is the same for all."""
    quick = options.quick
    policies = options.policies or (QUICK_POLICIES if quick else POLICIES)
    return [
        Trial(
            experiment=NAME,
            args={"cells": cells, "policy": policy, "seed": seed, "for_s": QUICK_S if quick else None},
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for cells in (QUICK_FLEETS if quick else FLEETS)
        for policy in policies
    ]


def run(trial: Trial) -> Result:
    """One day."""
    args = trial.args
    scenario = shortened(grid(int(args["cells"] or 1)), args["for_s"])
    return run_policy(scenario, policy=written(str(args["policy"])), seed=int(args["seed"] or 0))


def written(policy: str) -> str:
    """The written form of a policy of this experiment: published ones have the index that they had."""
    return f"{policy};index=unbounded" if policy.startswith(UNBOUNDED) and ";" not in policy else policy


def profile_of(cells: int) -> str:
    """The profile's name in rows."""
    return f"{cells} cells a region"


def rows(done: Done) -> Sequence[Row]:
    """What is needed and saved, ours and selective pushing against the rest, then everybody's figures."""
    fleets = {int(key[0] or 0): group for key, group in runs_by(done, ("cells",)).items()}
    found = list(_savings(fleets))
    for cells, group in fleets.items():
        for ours in (OURS, SELECTIVE):
            if ours in group:
                found += against_each(group, ours, experiment=NAME, profile=profile_of(cells))
    for cells, group in fleets.items():
        found += figures_of(group, experiment=NAME, profile=profile_of(cells))
    return found


def _savings(fleets: Mapping[int, Runs]) -> Iterator[Row]:
    """Per policy the smallest fleet that keeps the SLO, seed by seed, and what it saves against blind pushing."""
    group = next(iter(fleets.values()))
    for policy, runs in group.items():
        seeds = [run.seed for run in runs]
        needed = [_needed(fleets, policy, seed) for seed in seeds]
        yield _row(policy, NEEDED, "cells", needed, seeds[0])
        if BLIND in group and policy != BLIND:
            blind = [_needed(fleets, BLIND, seed) for seed in seeds]
            saved = [
                None if mine is None or theirs is None else 1e2 * (1.0 - mine / theirs)
                for mine, theirs in zip(needed, blind, strict=True)
            ]
            yield _row(policy, SAVED, "%", saved, seeds[0])


def _needed(fleets: Mapping[int, Runs], policy: str, seed: int) -> float | None:
    """Cells of the smallest fleet that serves this day with p95 TTFT in the SLO; None if no declared one does."""
    for cells in sorted(fleets):
        run = next((run for run in fleets[cells].get(policy, ()) if run.seed == seed), None)
        if run is not None and _holds(run):
            return float(cells * len(REGIONS))
    return None


def _holds(run: RunRow) -> bool:
    return run.success_ratio >= SERVES_ALL and run.ttft_p95_s <= SLO_TTFT_S


def _row(policy: str, metric: str, unit: str, values: Sequence[float | None], seed: int) -> Row:
    """Unknown as soon as one seed is: the mean of the rest would flatter."""
    known = [value for value in values if value is not None]
    whole = len(known) == len(values)
    low, high = (mean_interval(known) if whole else None) or (None, None)
    return Row(
        experiment=NAME,
        profile=ALL_FLEETS,
        policy=policy,
        metric=metric,
        value=fmean(known) if whole else None,
        unit=unit,
        lo=low,
        hi=high,
        n=len(values),
        seed=seed,
    )


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Ours loses nowhere to selective pushing; what both save is reported."""
    every = list(found)
    checks = [
        at_most(f"{profile_of(cells)}: {metric} of cost against selective pushing", row.value, 5.0, unit="%")
        for cells in FLEETS
        for metric in ("TTFT p95", "E2E p95")
        for row in (measured(every, profile=profile_of(cells), policy=SELECTIVE, metric=f"{metric}: cost against it"),)
        if row is not None
    ]
    for policy in (OURS, SELECTIVE):
        row = measured(every, profile=ALL_FLEETS, policy=policy, metric=SAVED)
        if row is not None:
            note = "" if row.lo is None else f"{row.lo:.0f} .. {row.hi:.0f}"
            checks.append(reported(f"{SAVED}, {policy}", row.value, unit="%", note=note))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """The tail against the size of the fleet."""
    every = list(found)
    fleets = [cells for cells in FLEETS if any(row.profile == profile_of(cells) for row in every)]
    policies = [policy for policy in POLICIES if any(row.policy == policy for row in every)]
    return [
        Figure(
            name=f"fleet-{metric.split()[0].lower()}",
            title=f"{metric} of a day against the size of the fleet",
            kind="lines",
            x_label="cells in all",
            y_label=unit,
            log_y=True,
            series=[_series(every, policy, metric, fleets) for policy in policies],
            caption="Three regions with their peaks eight hours apart, compressed; mean and 95 % over seeds.",
        )
        for metric, unit in (("TTFT p95", "ms"), ("E2E p95", "s"))
    ]


def _series(every: list[Row], policy: str, metric: str, fleets: Sequence[int]) -> Series:
    picked = [measured(every, profile=profile_of(cells), policy=policy, metric=metric) for cells in fleets]
    return series_of(policy, [float(cells * len(REGIONS)) for cells in fleets], picked)


PUBLISHED = (
    Published(
        profile=ALL_FLEETS,
        policy=SELECTIVE,
        metric=SAVED,
        value=25.0,
        unit="%",
        source="SkyWalker (EuroSys 2026)",
        note="theirs is the price of a fleet on their cloud and load, against balancing in each region alone; their "
        "balancer holds a request until some cell has nothing pending, ours has to place it at once",
    ),
)

NOTES = (
    "The authors report 1.12 to 2.06 times the throughput and 1.74 to 6.30 times lower latency; which load gave which "
    "end is not known here. Their prefix trees do not see what engines evict, so theirs and cache_aware have an index "
    "that grows; ours is bounded by a third of each engine's cache, for three gateways. What is pending in a cell is "
    "known to a gateway of its own requests at once, of others' by the engine's queue, a second old. A fleet is large "
    f"enough for a day if its p95 TTFT is at most {SLO_TTFT_S:g} s: cold prompts alone take more than one."
)

EXPERIMENT = Experiment(
    name=NAME,
    title="three regions by day and night: blind pushing, selective pushing, and cost",
    question="When peaks follow the sun, what does using the other regions' idle cells save, by SkyWalker's selective "
    "pushing and by cost?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=NOTES,
)
