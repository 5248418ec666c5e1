"""`network`: what RTT and jitter among the signals are worth, in the five published sub-phases; published table 7."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tradewind.lab.checks import Check, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.lab.simulated.nine import (
    ROUND_ROBIN,
    SOURCE,
    between,
    mean_row,
    nine,
    number,
    ran,
    text,
    ttft_ms,
)
from tradewind.sim.faults import Change, Noise
from tradewind.workload.arrivals import POISSON
from tradewind.workload.classes import baseline_mixed
from tradewind.workload.mooncake import Trace, TracedRequest

NAME = "network"
SEEDS, FIRST_SEED = 10, 200
COUNTED_S, QUICK_COUNTED_S = 45.0, 8.0
SETTLE_S, QUICK_SETTLE_S = 15.0, 3.0
NOISE_S = 0.020
SITE_B = (3, 4, 5)
TAIL, GAIN = "TTFT p95", "gain of the network signals"
MEDIAN = "TTFT p50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One sub-phase; they follow each other in one run."""

    name: str
    rate: float
    noisy: bool = False


PHASES = (
    Phase(name="near_idle", rate=2.0),
    Phase(name="symmetric", rate=10.0),
    Phase(name="saturation", rate=24.0),
    Phase(name="jitter on site B", rate=24.0, noisy=True),
    Phase(name="recovery", rate=10.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same policy with and without the network among its signals."""

    name: str
    using: str
    blind: str


PAIRS = (
    Pair(name="published", using="published:10", blind="published:8"),
    Pair(name="weights", using="weights", blind="weights;rtt_full_s=1e9;jitter_full_s=1e9"),
    Pair(name="cost", using="cost", blind="cost;rtt_weight=0"),
)
POLICIES = (ROUND_ROBIN, *(policy for pair in PAIRS for policy in (pair.using, pair.blind)))
QUICK_POLICIES = (ROUND_ROBIN, PAIRS[0].using, PAIRS[0].blind)


def plan(options: Options) -> Sequence[Trial]:
    """Every arm on every seed."""
    policies = options.policies or (QUICK_POLICIES if options.quick else POLICIES)
    return [
        Trial(experiment=NAME, args={"policy": policy, "seed": seed, "quick": options.quick})
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for policy in policies
    ]


def run(trial: Trial) -> Result:
    """The tail of each sub-phase of one run."""
    settle_s, counted_s = (QUICK_SETTLE_S, QUICK_COUNTED_S) if trial.args["quick"] else (SETTLE_S, COUNTED_S)
    phase_s = settle_s + counted_s
    ends = list(accumulate(phase_s for _ in PHASES))
    changes = [
        Change(at_s=end_s - (phase_s if on else 0.0), cell=cell, effect=Noise(deviation_s=NOISE_S if on else 0.0))
        for phase, end_s in zip(PHASES, ends, strict=True)
        if phase.noisy
        for on in (True, False)
        for cell in SITE_B
    ]
    scenario = nine(NAME, lambda rng: _trace(rng, phase_s), for_s=ends[-1], changes=changes)
    records = ran(scenario, text(trial, "policy"), seed=int(number(trial, "seed"))).records
    return {
        phase.name: {
            TAIL: ttft_ms(between(records, end_s - counted_s, end_s), 0.95),
            MEDIAN: ttft_ms(between(records, end_s - counted_s, end_s), 0.50),
        }
        for phase, end_s in zip(PHASES, ends, strict=True)
    }


def _trace(rng: random.Random, phase_s: float) -> Trace:
    """The sub-phases' loads one after the other."""
    parts = [baseline_mixed(rng, rate_per_s=phase.rate, for_s=phase_s, arrivals=POISSON) for phase in PHASES]
    return joined(parts, each_s=phase_s)


def joined(parts: Sequence[Trace], *, each_s: float) -> Trace:
    """Traces one after the other; block ids of one mean nothing in the next."""
    first = 0
    requests: list[TracedRequest] = []
    for index, part in enumerate(parts):
        requests += [
            replace(
                request,
                at_s=request.at_s + index * each_s,
                block_ids=tuple(first + block for block in request.block_ids),
            )
            for request in part.requests
        ]
        first += max((max(request.block_ids) for request in part.requests if request.block_ids), default=0)
    return replace(parts[0], requests=tuple(requests))


def rows(done: Done) -> Sequence[Row]:
    """By sub-phase: each arm's tail, and the gains, paired by seed."""
    arms: dict[str, dict[int, Result]] = {}
    for trial, result in done:
        arms.setdefault(text(trial, "policy"), {})[int(number(trial, "seed"))] = result
    return [row for phase in PHASES for row in _of_phase(phase.name, arms)]


def _of_phase(phase: str, arms: Mapping[str, Mapping[int, Result]]) -> Iterator[Row]:
    for policy, by_seed in arms.items():
        for metric in (MEDIAN, TAIL):
            values = {seed: result[phase][metric] for seed, result in by_seed.items()}
            yield mean_row(NAME, profile=phase, policy=policy, metric=metric, values=values, unit="ms")
    for pair in PAIRS:
        using, blind = arms.get(pair.using, {}), arms.get(pair.blind, {})
        gains = {
            seed: _gain(result[phase][TAIL], blind[seed][phase][TAIL])
            for seed, result in using.items()
            if seed in blind
        }
        if gains:
            yield mean_row(NAME, profile=phase, policy=pair.using, metric=GAIN, values=gains, unit="%")


def _gain(using: float | None, blind: float | None) -> float | None:
    """How much of the tail the signals take away, in percent; negative: they add to it."""
    return None if using is None or not blind else 1e2 * (1.0 - using / blind)


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """A gain, and its interval, in every sub-phase."""
    checks: list[Check] = []
    for pair in PAIRS:
        for phase in PHASES:
            row = measured(list(found), profile=phase.name, policy=pair.using, metric=GAIN)
            if row is not None:
                note = "" if row.lo is None or row.hi is None else f"{row.lo:.1f} .. {row.hi:.1f}"
                checks.append(reported(f"{NAME}, {phase.name}: {GAIN}, {pair.name}", row.value, unit="%", note=note))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """Gains, and the tails they come from."""
    return [
        Figure(
            name="gain",
            title="p95 TTFT that the network signals take away",
            kind="bars",
            x_label="sub-phase",
            y_label="% of the tail without them",
            series=[_series(found, pair.using, GAIN, pair.name) for pair in PAIRS],
            caption="Paired by seed, means, 95 % by bootstrap; below zero they add to it.",
        ),
        Figure(
            name="tails",
            title="p95 TTFT in the five sub-phases",
            kind="bars",
            x_label="sub-phase",
            y_label="ms",
            series=[_series(found, policy, TAIL, policy) for policy in dict.fromkeys(row.policy for row in found)],
            caption="Means over seeds, 95 % by bootstrap.",
        ),
    ]


def _series(found: Sequence[Row], policy: str, metric: str, name: str) -> Series:
    chosen = [row for row in found if row.metric == metric and row.policy == policy]
    return series_of(name, [row.profile for row in chosen], chosen)


_NOTE = (
    "the rates of the sub-phases are not published; a path 30 ms longer, or 20 ms of jitter, cannot be worth "
    "hundreds of milliseconds of TTFT by itself, so the published gaps come from queues"
)
_TABLE_7 = {
    "near_idle": (587.0, 562.0, 491.0),
    "symmetric": (712.0, 678.0, 547.0),
    "saturation": (1_842.0, 1_247.0, 901.0),
    "jitter on site B": (1_971.0, 1_583.0, 1_142.0),
    "recovery": (824.0, 712.0, 561.0),
}
PUBLISHED = (
    *(
        Published(
            profile=phase, policy=policy, metric=TAIL, value=value, unit="ms", source=f"{SOURCE}, table 7", note=_NOTE
        )
        for phase, values in _TABLE_7.items()
        for policy, value in zip((ROUND_ROBIN, PAIRS[0].blind, PAIRS[0].using), values, strict=True)
    ),
    *(
        Published(
            profile=phase, policy=PAIRS[0].using, metric=GAIN, value=1e2 * (1.0 - ten / eight), unit="%",
            source=f"{SOURCE}, table 7", note=_NOTE,
        )
        for phase, (_, eight, ten) in _TABLE_7.items()
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    name=NAME,
    title="What the network signals are worth",
    question=(
        "The same policy with and without RTT and jitter among its signals, from a nearly idle fleet to a saturated "
        "one with 20 ms of jitter on one site: how much of the tail do they take away?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=(
        "Nine equal cells at RTTs of 8, 22 and 38 ms; baseline_mixed by Poisson at 2, 10, 24, 24 and 10 RPS, "
        f"{SETTLE_S:g} s to settle and {COUNTED_S:g} s that count each, one after the other in one run. Jitter: each "
        "message late by the positive part of N(0, 20 ms)."
    ),
)
