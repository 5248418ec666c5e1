"""`impairment`: what routing gains over Envoy's own policies, from an unimpaired fleet to a badly impaired one."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tradewind.engine.law import HEALTHY
from tradewind.lab.checks import Check, at_least, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.nine import mean_row
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sustained import Phases, highest_rate, sustains
from tradewind.sim.disturbances import uniform
from tradewind.sim.faults import Change, Slow
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.arrivals import CONSTANT
from tradewind.workload.classes import baseline_mixed
from tradewind.workload.streams import stream

NAME = "impairment"
ROUND_ROBIN, LEAST_REQUEST, LEAST_OF_ALL = "envoy_round_robin", "envoy_least_request:2", "envoy_least_request:N"
BASELINES = (ROUND_ROBIN, LEAST_REQUEST, LEAST_OF_ALL)
POLICIES = (*BASELINES, "weights", "cost")
SEEDS, FIRST_SEED = 3, 300
SLO_S = 1.5
SLOW_S = 15.0  # mean length of a slow-down
CLEAN_RPS = 28.0  # about what the unimpaired fleet sustains: where the search begins
PRECISION, CLEAN_PRECISION = 0.05, 0.025
PHASES = Phases(warm_up_s=20.0, counted_s=40.0, cool_down_s=10.0)
QUICK_PHASES, QUICK_PRECISION = Phases(warm_up_s=5.0, counted_s=10.0, cool_down_s=2.0), 0.2
RATE, GAIN = "sustainable RPS", "gain over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """`share` of the time each cell, by itself, works at `speed` of its healthy self; `lasting`: so many cells do."""

    share: float = 0.0
    speed: float = 1.0
    lasting: int = 0

    @property
    def name(self) -> str:
        """As profile."""
        if self.lasting:
            return f"{self.lasting} of 9 cells always at {self.speed:g} x"
        if not self.share:
            return "clean"
        return f"{100 * self.share:g} % of the time at {self.speed:g} x"

    @property
    def near_rps(self) -> float:
        """Where the search begins: a part of the capacity that is left."""
        left = 1.0 - (self.lasting / 9 or self.share) * (1.0 - self.speed)
        return CLEAN_RPS * left * (1.0 if left == 1.0 else 0.75)


CLEAN = Level()
D = Level(share=0.2, speed=0.4)  # the declared profile D
BY_SHARE = (CLEAN, *(Level(share=share, speed=0.4) for share in (0.05, 0.1)), D, Level(share=0.4, speed=0.4))
BY_DEPTH = (CLEAN, *(Level(share=0.2, speed=speed) for speed in (0.8, 0.6)), D, Level(share=0.2, speed=0.2))
LASTING = (Level(speed=0.5, lasting=1),)
LEVELS = tuple(dict.fromkeys((*BY_SHARE, *BY_DEPTH, *LASTING)))
QUICK_LEVELS, QUICK_POLICIES = (CLEAN, LASTING[0]), (ROUND_ROBIN, "weights")


def changes_of(level: Level, rng: random.Random, *, cells: int, until_s: float) -> tuple[Change, ...]:
    """The slow-downs of a run, in order of time; exponential and in their steady state from the start."""
    slowed = Slow(slow=uniform(level.speed))
    if level.lasting:
        return tuple(Change(at_s=0.0, cell=cell, effect=slowed) for cell in range(level.lasting))
    if not level.share:
        return ()
    normal_s = SLOW_S * (1.0 - level.share) / level.share
    found: list[Change] = []
    for cell in range(cells):
        is_slow, at_s = rng.random() < level.share, 0.0
        while at_s < until_s:
            found.append(Change(at_s=at_s, cell=cell, effect=slowed if is_slow else Slow(slow=HEALTHY)))
            at_s += rng.expovariate(1 / (SLOW_S if is_slow else normal_s))
            is_slow = not is_slow
    return tuple(sorted(found, key=lambda change: (change.at_s, change.cell)))


def scenario_of(level: Level, *, seed: int, rate: float, phases: Phases) -> Scenario:
    """Nine equal cells in three sites; all policies and rates meet the same slow-downs."""
    fleet = scenario_named("S2")
    drawn = changes_of(level, stream(seed, f"{NAME}/{level.name}"), cells=len(fleet.cells), until_s=phases.for_s)
    return replace(
        fleet,
        name=NAME,
        load=lambda rng: baseline_mixed(rng, rate_per_s=rate, for_s=phases.for_s, arrivals=CONSTANT),
        for_s=phases.for_s,
        changes=drawn,
    )


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    policies = options.policies or (QUICK_POLICIES if options.quick else POLICIES)
    return [
        Trial(
            experiment=NAME,
            args={
                "share": level.share,
                "speed": level.speed,
                "lasting": level.lasting,
                "policy": policy,
                "seed": seed,
                "quick": options.quick,
            },
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for level in (QUICK_LEVELS if options.quick else LEVELS)
        for policy in dict.fromkeys((ROUND_ROBIN, *policies))
    ]


def level_of(trial: Trial) -> Level:
    """The impairment of a trial."""
    args = trial.args
    return Level(share=float(args["share"] or 0), speed=float(args["speed"] or 0), lasting=int(args["lasting"] or 0))


def run(trial: Trial) -> Result:
    """The rate that one policy sustains on one seed."""
    level, seed, quick = level_of(trial), int(trial.args["seed"] or 0), bool(trial.args["quick"])
    phases = QUICK_PHASES if quick else PHASES
    make = maker(str(trial.args["policy"]))

    def holds(rate: float) -> bool:
        scenario = scenario_of(level, seed=seed, rate=rate, phases=phases)
        return sustains(scenario, make, seed=seed, slo_s=SLO_S, phases=phases)

    precision = QUICK_PRECISION if quick else CLEAN_PRECISION if level == CLEAN else PRECISION
    return {"rate": highest_rate(holds, near=level.near_rps, precision=precision)}


Rates = Mapping[str, Mapping[int, float]]  # policy -> seed -> RPS


def rows(done: Done) -> Sequence[Row]:
    """By level: what each policy sustains, then the gains of ours, paired by seed."""
    levels: dict[Level, dict[str, dict[int, float]]] = {}
    for trial, result in done:
        policy, seed = str(trial.args["policy"]), int(trial.args["seed"] or 0)
        levels.setdefault(level_of(trial), {}).setdefault(policy, {})[seed] = float(result["rate"])
    return [row for level, rates in levels.items() for row in _of_level(level, rates)]


def _of_level(level: Level, rates: Rates) -> Iterator[Row]:
    for policy, by_seed in rates.items():
        yield mean_row(NAME, profile=level.name, policy=policy, metric=RATE, values=by_seed, unit="RPS")
    for policy, by_seed in rates.items():
        for baseline in BASELINES:
            pairs = {
                seed: rate / rates[baseline][seed]
                for seed, rate in by_seed.items()
                if policy != baseline and rates.get(baseline, {}).get(seed)
            }
            if pairs:
                yield mean_row(
                    NAME, profile=level.name, policy=policy, metric=f"{GAIN} {baseline}", values=pairs, unit="x"
                )


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Nothing is lost where nothing is to be gained; what is gained under D is shown, its bound is slo-matrix's."""
    return [
        _claim(row, level)
        for level in (CLEAN, D)
        for row in (measured(list(found), profile=level.name, policy="weights", metric=f"{GAIN} {ROUND_ROBIN}"),)
        if row is not None
    ]


def _claim(row: Row, level: Level) -> Check:
    note = f"{row.lo:.2f} .. {row.hi:.2f}" if row.lo is not None else ""
    name = f"{NAME}, {level.name}: sustainable rate of {row.policy} over round robin"
    if level == CLEAN:
        return at_least(name, row.value, 0.97, unit="x", note=note)
    return reported(name, row.value, unit="x", note=note)


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """What everybody sustains, as impairment spreads and as it deepens."""
    return [
        _figure(
            found,
            "share",
            "Sustainable rate as impairment spreads (slow cells at 0.4 x)",
            [(100 * level.share, level) for level in BY_SHARE],
            "share of the time that a cell is slow, %",
        ),
        _figure(
            found,
            "depth",
            "Sustainable rate as impairment deepens (each cell slow 20 % of the time)",
            [(level.speed, level) for level in reversed(BY_DEPTH)],
            "speed of a slow cell",
        ),
    ]


def _figure(found: Sequence[Row], name: str, title: str, places: Sequence[tuple[float, Level]], x_label: str) -> Figure:
    policies = dict.fromkeys(row.policy for row in found if row.metric == RATE)
    return Figure(
        name=name,
        title=title,
        kind="lines",
        x_label=x_label,
        y_label="RPS with p95 TTFT <= 1.5 s",
        series=[_series(found, policy, places) for policy in policies],
        caption="Mean over seeds, 95 % by bootstrap; all policies meet the same slow-downs.",
    )


def _series(found: Sequence[Row], policy: str, places: Sequence[tuple[float, Level]]) -> Series:
    picked = [measured(list(found), profile=level.name, policy=policy, metric=RATE) for _, level in places]
    return series_of(policy, [x for x, _ in places], picked)


EXPERIMENT = Experiment(
    name=NAME,
    title="Gain as a function of impairment",
    question=(
        "How much does routing by pressure or by cost gain over Envoy's own policies, as a growing part of the fleet's "
        "capacity is impaired, from none to much of it?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Sustainable rate: the highest constant rate at which p95 TTFT stays within 1.5 s and 95 % are served, by "
        "bisection to 5 % (clean: 2.5 %), steps of 20 + 40 + 10 s. Slow-downs are exponential, 15 s in the mean, each "
        "cell on its own."
    ),
)
