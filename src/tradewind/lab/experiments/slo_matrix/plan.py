"""What `slo-matrix` runs: classes with their levels and ladders, policies, and one trial for each search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import process_time

from tradewind.lab.experiments.slo_matrix.search import BISECTIONS, Found, Step, highest, ladder, simulate
from tradewind.lab.harness.experiment import Options, Result, Trial
from tradewind.lab.simulated.policies import maker
from tradewind.lab.simulated.sustained import Phases
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.arrivals import CONSTANT
from tradewind.workload.classes import class_named

NAME = "slo-matrix"
ROUND_ROBIN = "envoy_round_robin"
MATRIX_POLICIES = (ROUND_ROBIN, "envoy_least_request:2", "weights")
POLICIES = (*MATRIX_POLICIES, "envoy_least_request:N", "cost")
PROFILES = ("D", "clean")
TIERS: Mapping[str, float] = {"strict": 0.75, "middle": 1.0, "loose": 1.5}  # of the class's level
MIDDLE = "middle"  # the published one; the other two are not published
MATRIX_REPEATS, SEEDS, FIRST_SEED = 3, 5, 500
LEAST_SAMPLES = 500
SPAN = 16.0  # of a ladder, highest over lowest rate
PHASES = Phases()
QUICK_PHASES = Phases(warm_up_s=4.0, counted_s=8.0, cool_down_s=2.0)
QUICK_CLASSES, QUICK_POLICIES = ("baseline_mixed",), (ROUND_ROBIN, "weights")
QUICK_BISECTIONS, QUICK_SAMPLES = 3, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A class's middle level, and what was published for it: RPS of round robin, least request, Solyx."""

    slo_s: float
    published: tuple[float, float, float]

    @property
    def ladder(self) -> tuple[float, float]:
        """Lowest and highest rate; the search begins at round robin's published one."""
        return self.published[0] / SPAN**0.5, self.published[0] * SPAN**0.5


LEVELS: dict[str, Level] = {  # published_systems.md A, table 2
    "baseline_mixed": Level(slo_s=1.5, published=(12, 17, 20)),
    "rapid_shift": Level(slo_s=1.5, published=(11, 15, 18)),
    "code_heavy": Level(slo_s=3.0, published=(10, 14, 16)),
    "adversarial_spike": Level(slo_s=3.0, published=(17, 24, 28)),
    "multiturn": Level(slo_s=3.5, published=(9, 12, 14)),
    "rag_multidoc": Level(slo_s=3.0, published=(13, 19, 22)),
    "long_context": Level(slo_s=3.0, published=(7, 10, 12)),
    "very_long": Level(slo_s=7.0, published=(4, 6, 7)),
}


def plan(options: Options) -> Sequence[Trial]:
    """The published matrix first: three policies, three levels, three repeats, under D. Then the rest of the table."""
    given = options.policies or (QUICK_POLICIES if options.quick else POLICIES)
    policies = tuple(dict.fromkeys((ROUND_ROBIN, *given)))
    seeds = options.seed_range(seeds=SEEDS, first=FIRST_SEED)
    trials = [
        _trial(name, policy, profile, seed, quick=options.quick, whole=_in_matrix(policy, profile, seed, seeds))
        for profile in (PROFILES[:1] if options.quick else PROFILES)
        for seed in seeds
        for name in (QUICK_CLASSES if options.quick else LEVELS)
        for policy in policies
    ]
    return sorted(trials, key=lambda trial: trial.args["tiers"] != "all")


def _in_matrix(policy: str, profile: str, seed: int, seeds: range) -> bool:
    return policy in MATRIX_POLICIES and profile == "D" and seed in seeds[:MATRIX_REPEATS]


def _trial(name: str, policy: str, profile: str, seed: int, *, quick: bool, whole: bool) -> Trial:
    return Trial(
        experiment=NAME,
        args={
            "class": name,
            "policy": policy,
            "profile": profile,
            "seed": seed,
            "tiers": "all" if whole else MIDDLE,
            "quick": quick,
        },
    )


def tiers_of(trial: Trial) -> Mapping[str, float]:
    """The levels that a trial searches, in seconds."""
    slo_s = LEVELS[str(trial.args["class"])].slo_s
    return {tier: slo_s * ratio for tier, ratio in TIERS.items() if trial.args["tiers"] in ("all", tier)}


def phases_of(rate: float, *, quick: bool) -> Phases:
    """The published step; a low rate counts for longer, until there are samples enough."""
    phases, least = (QUICK_PHASES, QUICK_SAMPLES) if quick else (PHASES, LEAST_SAMPLES)
    return replace(phases, counted_s=max(phases.counted_s, (least + 1) / rate))


def scenario_of(name: str, *, profile: str, rate: float, phases: Phases) -> Scenario:
    """The fleet of nine under one class at one rate. All policies meet the same requests and disturbances."""
    workload = class_named(name)
    return replace(
        scenario_named("S2"),
        name=f"{NAME}/{name}",
        title=f"nine equal cells, {workload.title}",
        load=lambda rng: workload.make(rng, rate_per_s=rate, for_s=phases.for_s, arrivals=CONSTANT),
        for_s=phases.for_s,
        disturbance=profile,
    )


def run(trial: Trial) -> Result:
    """One policy on one class and seed: a search for each level."""
    name, profile = str(trial.args["class"]), str(trial.args["profile"])
    seed, quick = int(trial.args["seed"] or 0), bool(trial.args["quick"])
    tiers, make = tiers_of(trial), maker(str(trial.args["policy"]))
    loosest_s = max(tiers.values())
    begin_s = process_time()
    made: dict[float, Step] = {}

    def step(rate: float) -> Step:
        if rate not in made:
            phases = phases_of(rate, quick=quick)
            scenario = scenario_of(name, profile=profile, rate=rate, phases=phases)
            made[rate] = simulate(scenario, make, rate=rate, seed=seed, slo_s=loosest_s, phases=phases)
        return made[rate]

    rates = ladder(*LEVELS[name].ladder, bisections=QUICK_BISECTIONS if quick else BISECTIONS)
    found = {tier: _told(highest(rates, step, slo_s=slo_s, known=made.values())) for tier, slo_s in tiers.items()}
    return {
        "tiers": found,
        "simulated": len(made),
        "requests": sum(one.requests for one in made.values()),
        "cpu_s": process_time() - begin_s,
    }


def _told(found: Found) -> Mapping[str, float | int | bool | None]:
    best = found.best
    gaps = [one.gap_s for one in found.steps if one.gap_s is not None]
    return {
        "rate": None if best is None else best.rate,
        "tail_s": None if best is None else best.tail_s,
        "served": None if best is None else best.served,
        "at_top": found.at_top,
        "steps": len(found.steps),
        "samples": min(one.samples for one in found.steps),
        "gap_s": max(gaps, default=None),
    }
