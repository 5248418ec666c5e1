"""`tuner-change`: the load doubles, a way triples, a cell halves: how soon is the tail as short as it can be again?"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.nine import mean_row, number, ran, text
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.model.tuning import PHYSICS, Weights
from tradewind.sim.disturbances import uniform
from tradewind.sim.faults import Change, Detour, Slow
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.art import art_trace
from tradewind.workload.mooncake import Trace

NAME = "tuner-change"
LOAD, WAY, HALF = "load doubles", "a way triples", "a cell halves"
EFFECTS: Mapping[str, tuple[Change, ...]] = {
    LOAD: (),
    WAY: (Change(at_s=0.0, cell=1, effect=Detour(factor=3.0)),),  # middle becomes the farthest
    HALF: (Change(at_s=0.0, cell=0, effect=Slow(slow=uniform(0.5))),),  # the near one
}
OWN = "cost"  # physics: both weights 1
AGAIN = "cost, near ties drawn again"  # physics against itself: what chance alone does
CALIBRATOR = "cost;tuner=calibrator"
BLIND = ("cost;tuner=es-repaired", "cost;tuner=es")
GRID = tuple(Weights(rtt, queue) for rtt in (0.2, 1.0) for queue in (0.2, 0.5, 1.0, 2.0) if (rtt, queue) != PHYSICS)
SEEDS, FIRST_SEED = 20, 3_300
GRID_SEEDS, BLIND_SEEDS = 4, 5  # of them
SCALE = 2.0  # of the trace's gaps, about 4 requests a second at 1
TRACE_S, QUICK_TRACE_S = 1_250.0, 40.0  # about 5,000 requests, the change in the middle
BACK, QUICK_BACK = 1_000, 40  # requests after the change, from which on the tail must be back
WINDOW, STEP, QUICK_WINDOW = 2_000, 250, 80
WITHIN, DEMANDED = 10.0, 0.9  # %, of the seeds
FIRST, AFTER = "TTFT p95 of the first 1,000 after the change", "TTFT p95 from 1,000 after the change on"
AGAINST_BEST, AGAINST_OWN = "against the best fixed weights", "against physics"
WORST, CALM = "worst window of 2,000 requests against physics", "seeds without a window of 2,000 above physics + 10 %"
MOVES = "moves accepted"


def fixed(weights: Weights) -> str:
    """The written form without a tuner."""
    return f"cost;rtt_weight={weights.rtt:g};queue_weight={weights.queue:g}"


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    return [
        Trial(experiment=NAME, args={"change": change, "policy": policy, "seed": seed, "quick": options.quick})
        for place, seed in enumerate(options.seed_range(seeds=SEEDS, first=FIRST_SEED))
        for change in EFFECTS
        for policy in _policies(place, options)
    ]


def _policies(place: int, options: Options) -> Iterator[str]:
    yield from (OWN, AGAIN)
    if options.policies or options.quick:
        yield from options.policies or (CALIBRATOR,)
        yield from (fixed(weights) for weights in GRID[:1])
        return
    yield CALIBRATOR
    if place < BLIND_SEEDS:
        yield from BLIND
    if place < GRID_SEEDS:
        yield from (fixed(weights) for weights in GRID)


def run(trial: Trial) -> Result:
    """p95 TTFT around the change and window by window; None for a window in which nothing was served."""
    quick = bool(trial.args["quick"])
    policy, made = text(trial, "policy"), scenario(text(trial, "change"), quick=quick)
    if policy == AGAIN:
        policy, made = OWN, replace(made, ties="/again")
    done = ran(made, policy, seed=int(number(trial, "seed")))
    records, change_s = done.records, SCALE * _trace_s(quick=quick) / 2
    at = sum(record.intended_s < change_s for record in records)
    back, window = (QUICK_BACK, QUICK_WINDOW) if quick else (BACK, WINDOW)
    starts = range(0, max(1, len(records) - window + 1), STEP)
    history = done.result.tuning
    return {
        "first": _p95(records[at : at + back]),
        "after": _p95(records[at + back :]),
        "windows": [_p95(records[start : start + window]) for start in starts],
        "moves": sum(event.what == "accepted" for event in history.events) if history is not None else None,
    }


def _trace_s(*, quick: bool) -> float:
    return QUICK_TRACE_S if quick else TRACE_S


def _p95(records: Sequence[Record]) -> float | None:
    return percentile([r.ttft_s for r in records if r.ok and r.ttft_s is not None], 0.95)


def scenario(change: str, *, quick: bool) -> Scenario:
    """S1's three far cells; in the middle of the trace, this happens."""
    far, trace_s = scenario_named("S1-ts1"), _trace_s(quick=quick)
    change_s = SCALE * trace_s / 2
    later = 1.0 if change == LOAD else SCALE

    def load(rng: random.Random) -> Trace:
        trace = art_trace(rng, for_s=trace_s)
        half = trace_s / 2
        return replace(
            trace,
            requests=tuple(
                replace(request, at_s=SCALE * min(request.at_s, half) + later * max(0.0, request.at_s - half))
                for request in trace.requests
            ),
        )

    return replace(
        far,
        name=f"tuner-change {change}",
        title=change,
        load=load,
        for_s=change_s + later * trace_s / 2,
        changes=tuple(replace(effect, at_s=change_s) for effect in EFFECTS[change]),
    )


_Runs = Mapping[str, Mapping[int, Result]]  # policy -> seed -> result


def rows(done: Done) -> Sequence[Row]:
    """Against physics seed by seed, and against the best point of the grid."""
    groups: dict[str, dict[str, dict[int, Result]]] = {}
    for trial, result in done:
        runs = groups.setdefault(text(trial, "change"), {})
        runs.setdefault(text(trial, "policy"), {})[int(number(trial, "seed"))] = result
    return [row for change, runs in groups.items() for row in _rows(change, runs)]


def _rows(change: str, runs: _Runs) -> Iterator[Row]:
    own = runs.get(OWN, {})
    best, gain = best_fixed(runs)
    for policy, by_seed in runs.items():
        for metric, key in ((FIRST, "first"), (AFTER, "after")):
            values = {seed: _times(result[key], 1e3) for seed, result in by_seed.items()}
            yield mean_row(NAME, profile=change, policy=policy, metric=metric, values=values, unit="ms")
            ratios = {seed: over(result[key], own.get(seed, {}).get(key)) for seed, result in by_seed.items()}
            if policy != OWN:
                yield _percent(change, policy, f"{metric} {AGAINST_OWN}", ratios)
            if key == "after":
                against = {seed: None if ratio is None else ratio / gain for seed, ratio in ratios.items()}
                yield _percent(change, policy, f"{metric} {AGAINST_BEST}", against)
        if policy != OWN:
            yield from _windows(change, policy, by_seed, own)
        if any(result["moves"] is not None for result in by_seed.values()):
            moves = {seed: result["moves"] for seed, result in by_seed.items()}
            yield mean_row(NAME, profile=change, policy=policy, metric=MOVES, values=moves, unit="")
    yield Row(
        experiment=NAME, profile=change, policy=best, metric="best fixed weights, against physics",
        value=1e2 * (gain - 1.0), unit="%", n=len(runs.get(best, {})), seed=min(own, default=None),
    )  # fmt: skip


def best_fixed(runs: _Runs) -> tuple[str, float]:
    """The point of the grid with the shortest tail after the change, and its mean ratio to physics, which is one."""
    own, best, least = runs.get(OWN, {}), OWN, 1.0
    for weights in GRID:
        found = runs.get(fixed(weights), {})
        ratios = [over(result["after"], own.get(seed, {}).get("after")) for seed, result in found.items()]
        known = [ratio for ratio in ratios if ratio is not None]
        if known and fmean(known) < least:
            best, least = fixed(weights), fmean(known)
    return best, least


def _windows(change: str, policy: str, by_seed: Mapping[int, Result], own: Mapping[int, Result]) -> Iterator[Row]:
    worst: dict[int, float | None] = {}
    for seed, result in by_seed.items():
        pairs = zip(result["windows"], own.get(seed, {}).get("windows", ()), strict=False)
        ratios = [ratio for value, other in pairs if (ratio := over(value, other)) is not None]
        worst[seed] = max(ratios, default=None)
    yield _percent(change, policy, WORST, worst)
    known = [value for value in worst.values() if value is not None]
    yield Row(
        experiment=NAME, profile=change, policy=policy, metric=CALM,
        value=float(sum(value <= 1.0 + WITHIN / 1e2 for value in known)), unit="seeds", n=len(known),
        seed=min(by_seed),
    )  # fmt: skip


def over(value: float | None, other: float | None) -> float | None:
    """Their ratio; None where one is not known."""
    return value / other if value is not None and other else None


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _percent(change: str, policy: str, metric: str, ratios: Mapping[int, float | None]) -> Row:
    values = {seed: None if ratio is None else 1e2 * (ratio - 1.0) for seed, ratio in ratios.items()}
    return mean_row(NAME, profile=change, policy=policy, metric=metric, values=values, unit="%")


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """The calibrator is held to it; physics against itself and the searches stand beside."""
    return [check for row in found for check in _claim(row)]


def _claim(row: Row) -> Iterator[Check]:
    name, note = f"{row.profile}, {row.policy}: {row.metric}", f"of {row.n} seeds"
    ours = row.policy == CALIBRATOR
    if row.policy.startswith("cost;rtt_weight"):
        return
    if row.metric == f"{AFTER} {AGAINST_BEST}":
        yield at_most(name, row.value, WITHIN, unit="%") if ours else reported(name, row.value, unit="%")
    elif row.metric == CALM:
        demanded = ceil(DEMANDED * (row.n or 1))
        bounded = at_least(name, row.value, demanded, unit="seeds", note=note)
        yield bounded if ours else reported(name, row.value, unit="seeds", note=note)


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """How near the best, and how bad the worst window is."""
    every = list(found)
    policies = [policy for policy in (AGAIN, CALIBRATOR, *BLIND) if any(row.policy == policy for row in every)]

    def series(metric: str) -> list[Series]:
        return [
            series_of(
                policy,
                list(EFFECTS),
                [measured(every, profile=change, policy=policy, metric=metric) for change in EFFECTS],
            )
            for policy in policies
        ]

    return [
        Figure(
            name=name,
            title=title,
            kind="bars",
            x_label="what changes in mid run",
            y_label="%",
            series=series(metric),
            caption="Means over seeds, 95 % by bootstrap.",
        )
        for name, title, metric in (
            ("back", f"{AFTER}, {AGAINST_BEST}", f"{AFTER} {AGAINST_BEST}"),
            ("worst", "Worst window of 2,000 requests, p95 TTFT against physics on the same requests", WORST),
        )
    ]  # fmt: skip


EXPERIMENT = Experiment(
    name=NAME,
    title="Tuners while the world changes",
    question=(
        "The load doubles, the way to a site triples, a cell halves, in mid run: is the tail within 10 % of the best "
        "fixed weights after 1,000 requests, and does a tuner make any 2,000 requests worse than physics would?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Three far cells, gaps of the trace times 2 until the change. All have learned rates: that is what makes a "
        "halved cell harmless, whoever tunes. Physics with near ties drawn again shows what chance does, and nobody "
        "can be better than that. The best fixed weights are the best of eight points, found by means over few seeds."
    ),
)
