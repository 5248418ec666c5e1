"""`slo-matrix`: the highest rate that each policy sustains, by class, service level and disturbance."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean, geometric_mean, median

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.experiments.slo_matrix.plan import (
    LEAST_SAMPLES,
    LEVELS,
    MATRIX_POLICIES,
    MATRIX_REPEATS,
    MIDDLE,
    NAME,
    PROFILES,
    ROUND_ROBIN,
    TIERS,
    plan,
    run,
)
from tradewind.lab.experiments.slo_matrix.search import BISECTIONS
from tradewind.lab.harness.experiment import Done, Experiment, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.measure.statistics import bootstrap_interval

RATE, RATIO = "sustainable rate", "over round robin"
ALL = "all classes"
MOST_GAP_S, MOST_CPU_S = 5.0, 600.0  # the second: five minutes on two cores
CELLS = len(LEVELS) * len(MATRIX_POLICIES) * len(TIERS) * MATRIX_REPEATS
SOURCE = "Solyx AI Grid (2026), table 2"
PUBLISHED_AS = dict(zip(MATRIX_POLICIES, (0, 1, 2), strict=True))  # policy -> its place in a level's published rates

Rates = dict[str, dict[int, float]]  # policy -> seed -> RPS


def profile_of(profile: str, name: str, tier: str) -> str:
    """As rows name it."""
    return f"{profile}, {name}, TTFT p95 <= {LEVELS[name].slo_s * TIERS[tier]:g} s"


def rows(done: Done) -> Sequence[Row]:
    """By profile, class and level: what each policy sustains and the ratio to round robin; then over all classes."""
    found: dict[tuple[str, str, str], Rates] = {}
    for trial, result in done:
        args = trial.args
        for tier, told in result["tiers"].items():
            rate = told["rate"]
            by_policy = found.setdefault((str(args["profile"]), str(args["class"]), tier), {})
            # Where not even the lowest rung of the ladder holds, what is sustained lies between 0 and that rung.
            by_policy.setdefault(str(args["policy"]), {})[int(args["seed"] or 0)] = 0.0 if rate is None else float(rate)
    made = [row for key, rates in found.items() for row in _of_level(profile_of(*key), rates)]
    for profile in PROFILES:
        made += _over_classes(
            profile, {name: rates for (p, name, tier), rates in found.items() if (p, tier) == (profile, MIDDLE)}
        )
    return [*made, *_about(done)]


def _of_level(profile: str, rates: Rates) -> Iterator[Row]:
    for policy, by_seed in rates.items():
        yield _row(profile, policy, RATE, by_seed, median, unit="RPS")
    for policy, ratios in _ratios(rates).items():
        yield _row(profile, policy, RATIO, ratios, fmean, unit="x")


def _ratios(rates: Rates) -> Rates:
    """Of each policy to round robin, paired by seed."""
    base = rates.get(ROUND_ROBIN, {})
    paired = {
        policy: {seed: rate / base[seed] for seed, rate in by_seed.items() if base.get(seed)}
        for policy, by_seed in rates.items()
        if policy != ROUND_ROBIN
    }
    return {policy: ratios for policy, ratios in paired.items() if ratios}


def _over_classes(profile: str, by_class: Mapping[str, Rates]) -> Iterator[Row]:
    """The geometric mean of a seed's ratios over the classes, of seeds that have them all."""
    ratios = [_ratios(rates) for rates in by_class.values()]
    for policy in dict.fromkeys(policy for one in ratios for policy in one):
        seeds = set.intersection(*(set(one.get(policy, {})) for one in ratios))
        means = {seed: geometric_mean([max(1e-9, one[policy][seed]) for one in ratios]) for seed in sorted(seeds)}
        if means:
            yield _row(f"{profile}, {ALL}", policy, RATIO, means, fmean, unit="x")


def _row(
    profile: str,
    policy: str,
    metric: str,
    by_seed: Mapping[int, float],
    middle: Callable[[Sequence[float]], float],
    *,
    unit: str,
) -> Row:
    values = list(by_seed.values())
    low, high = bootstrap_interval(values, middle, random.Random(0)) or (None, None)
    return Row(
        experiment=NAME,
        profile=profile,
        policy=policy,
        metric=metric,
        value=middle(values),
        unit=unit,
        lo=low,
        hi=high,
        n=len(values),
        seed=min(by_seed),
    )


def _about(done: Done) -> Iterator[Row]:
    """Of the published matrix as a whole: how many cells, how long, how well sampled."""
    matrix: list[tuple[Trial, Result]] = [(trial, result) for trial, result in done if trial.args["tiers"] == "all"]
    if not matrix:
        return
    cells = [told for _, result in matrix for told in result["tiers"].values()]
    gaps = [told["gap_s"] for told in cells if told["gap_s"] is not None]
    figures: dict[str, tuple[float | None, str]] = {
        "cells": (float(len(cells)), ""),
        "CPU": (sum(float(result["cpu_s"]) for _, result in matrix), "s"),
        "steps simulated": (float(sum(result["simulated"] for _, result in matrix)), ""),
        "requests": (float(sum(result["requests"] for _, result in matrix)), ""),
        "fewest samples of a step": (float(min(told["samples"] for told in cells)), ""),
        "longest time between two first tokens": (max(gaps, default=None), "s"),
        "cells at the top of their ladder": (float(sum(told["at_top"] for told in cells)), ""),
        "cells below their ladder": (float(sum(told["rate"] is None for told in cells)), ""),
    }
    for metric, (value, unit) in figures.items():
        yield Row(experiment=NAME, profile="the matrix", policy="", metric=metric, value=value, unit=unit, n=len(cells))


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """The matrix as published, its order, and what our weights are held to."""
    rows_ = list(found)
    about = {row.metric: row.value for row in rows_ if row.profile == "the matrix"}
    checks = [
        at_least(f"{NAME}: cells of the matrix", about.get("cells"), CELLS),
        at_most(f"{NAME}: CPU of the matrix, two cores for five minutes", about.get("CPU"), MOST_CPU_S, unit="s"),
        at_least(f"{NAME}: fewest samples of a step", about.get("fewest samples of a step"), LEAST_SAMPLES),
        at_most(
            f"{NAME}: longest time between two first tokens",
            about.get("longest time between two first tokens"),
            MOST_GAP_S,
            unit="s",
        ),
    ]
    for profile, bound in (("D", 1.5), ("clean", 0.97)):
        row = measured(rows_, profile=f"{profile}, {ALL}", policy="weights", metric=RATIO)
        note = "" if row is None or row.lo is None else f"{row.lo:.2f} .. {row.hi:.2f}"
        name = f"{NAME}, {profile}: weights over round robin, geometric mean of the classes"
        checks.append(at_least(name, None if row is None else row.value, bound, unit="x", note=note))
    ordered, judged = _ordered(rows_)
    name = f"{NAME}, D: classes in the published order, round robin < least request < weights, by the medians"
    checks.append(at_least(name, float(ordered) if judged else None, float(len(LEVELS)), note=f"of {judged}"))
    checks += [
        reported(f"{NAME}, {row.profile}: weights over round robin", row.value, unit="x")
        for row in rows_
        if row.policy == "weights" and row.metric == RATIO and ALL not in row.profile
    ]
    return checks


def _ordered(found: list[Row]) -> tuple[int, int]:
    """(classes in order, classes with all three) under D at the middle level."""
    ordered = judged = 0
    for name in LEVELS:
        picked = [
            measured(found, profile=profile_of("D", name, MIDDLE), policy=policy, metric=RATE)
            for policy in MATRIX_POLICIES
        ]
        values = [row.value for row in picked if row is not None and row.value is not None]
        if len(values) == len(MATRIX_POLICIES):
            judged += 1
            ordered += values[0] < values[1] < values[2]
    return ordered, judged


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Rates by class and ratios by class, for each profile."""
    classes = [name for name in LEVELS if any(f", {name}, " in row.profile for row in found)]
    shown: list[Figure] = []
    for profile in PROFILES:
        policies = dict.fromkeys(row.policy for row in found if row.profile.startswith(f"{profile}, ") and row.policy)
        if not policies:
            continue
        for metric, title, unit in (
            (RATE, "Sustainable rate", "RPS"),
            (RATIO, "Sustainable rate over round robin", "x"),
        ):
            shown.append(
                Figure(
                    name=f"{profile.lower()}-{'rates' if metric == RATE else 'ratios'}",
                    title=f"{title}, profile {profile}",
                    kind="bars",
                    x_label="class",
                    y_label=unit,
                    series=[
                        _series(found, profile, classes, policy, metric)
                        for policy in policies
                        if metric == RATE or policy != ROUND_ROBIN
                    ],
                    caption="P95 TTFT within the class's published level; 95 % over seeds by bootstrap.",
                )
            )
    return shown


def _series(found: Sequence[Row], profile: str, classes: Sequence[str], policy: str, metric: str) -> Series:
    picked = [
        measured(list(found), profile=profile_of(profile, name, MIDDLE), policy=policy, metric=metric)
        for name in classes
    ]
    return series_of(policy, classes, picked)


PUBLISHED = tuple(
    Published(
        profile=profile_of("D", name, MIDDLE),
        policy=policy,
        metric=RATE,
        value=level.published[place],
        unit="RPS",
        source=SOURCE,
        note=(
            "a fleet that was called equal and fault-free, which could not give these ratios; D, and what prompts "
            "share, are our assumptions, chosen so that round robin comes near"
        ),
    )
    for name, level in LEVELS.items()
    for policy, place in PUBLISHED_AS.items()
)

EXPERIMENT = Experiment(
    name=NAME,
    title="Sustainable rate by class, policy and service level",
    question=(
        "How many requests per second does a fleet of nine sustain under each of eight classes, by who routes, on a "
        "clean fleet and on one whose cells are slow at times (D)?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=(
        f"Highest constant rate with p95 TTFT within the level and 95 % served: {BISECTIONS} bisections over a ladder "
        "of rates 1.1 % apart. Each step is 30 s of warm-up, 45 s that count (longer below 11 RPS, until 500 requests "
        "count) and 15 s of load after it; a step is ended early only when it is decided. A rate is simulated once "
        "for all levels. The middle level is the published one, the other two (0.75 and 1.5 of it) are ours. "
        f"The {CELLS} cells: {', '.join(MATRIX_POLICIES)} under D, three levels, three seeds. The spikes of "
        "adversarial_spike come on top of its rate. 0 RPS: not even the lowest rate of the ladder, a quarter of the "
        "published one of round robin, is sustained."
    ),
)
