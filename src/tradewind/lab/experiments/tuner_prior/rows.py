"""From runs to rows: the surface of fixed weights, and how far from its best point each tuner is, and when."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tradewind.lab.experiments.tuner_prior.grids import PROFILES
from tradewind.lab.experiments.tuner_prior.surface import Surface, in_force, settled, worst_gap
from tradewind.lab.experiments.tuner_prior.trials import AGAIN, NAME, fixed
from tradewind.lab.harness.experiment import Done, Result
from tradewind.lab.harness.row import Row
from tradewind.lab.simulated.nine import mean_row, number, text
from tradewind.model.tuning import PHYSICS, Weights

WITHIN = 0.05
P95 = "TTFT p95 of the counted requests"
GAP = "gap of the weights, worst from the counted requests on"
SEEDS_WITHIN = f"seeds within {WITHIN:.0%} by the weights"
SETTLED = f"requests until the weights stay within {WITHIN:.0%}"
ACCEPTED = "moves accepted"
AS_RUN = "TTFT p95 against the best fixed weights, as run"
RUNS_WITHIN = f"runs within {WITHIN:.0%}, as run"
END = ("rtt weight at the end", "queue weight at the end")
CHOSEN_GAP = "gap of the weights, against the best chosen on other seeds"
NONE, BEST = "none", "best fixed weights"
TICKS = (0, 250, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000)


def gap_at(tick: int) -> str:
    """The metric's name."""
    return f"gap of the weights at request {tick:,}"


def weight_at(which: str, tick: int) -> str:
    """The metric's name; `which` is rtt or queue."""
    return f"{which} weight at request {tick:,}"


def from_start(profile: str, start: Weights) -> str:
    """A profile's rows of one prior."""
    return f"{profile}, from {start.rtt:g}/{start.queue:g}"


def parsed(policy: str) -> tuple[str, Weights | None]:
    """(arm, prior) of a written form; None: fixed weights."""
    constants = dict(part.partition("=")[::2] for part in policy.split(";")[1:])
    if "start" in constants:
        arm = policy.partition(";start=")[0]
        rtt, _, queue = constants["start"].partition("/")
        return arm, Weights(float(rtt), float(queue))
    return policy, None


@dataclass(frozen=True, slots=True)
class Tuned:
    """Runs of one tuner from one prior, by seed."""

    arm: str
    start: Weights
    runs: Mapping[int, Result]


@dataclass(frozen=True, slots=True)
class Group:
    """All runs of one profile."""

    profile: str
    after: int
    seed: int  # the first
    surface: Surface
    best_s: Mapping[int, float]  # by seed
    physics_s: Mapping[int, float]
    again_s: Mapping[int, float]
    tuned: Sequence[Tuned]

    def as_run(self, seed: int, p95_s: float) -> float | None:
        """Against the best point: by physics on the same seed, and what physics has more on the seeds of the grid."""
        if seed not in self.physics_s:
            return None
        return p95_s / self.physics_s[seed] * (1.0 + self.surface.gap(PHYSICS)) - 1.0


def rows(done: Done) -> Sequence[Row]:
    """Profile by profile."""
    return [row for name in PROFILES if (group := _group(name, done)) is not None for row in _of_group(group)]


def _group(profile: str, done: Done) -> Group | None:
    runs: dict[str, dict[int, Result]] = {}
    after = 0
    for trial, result in done:
        if text(trial, "profile") == profile and result["p95_s"] is not None:
            runs.setdefault(text(trial, "policy"), {})[int(number(trial, "seed"))] = result
            after = int(number(trial, "after"))
    by_weights = {weights: of for policy, of in runs.items() if (weights := _fixed(policy)) is not None}
    shared = set.intersection(*(set(of) for of in by_weights.values())) if by_weights else set()
    if not shared:
        return None
    surface = Surface({weights: [of[seed]["p95_s"] for seed in sorted(shared)] for weights, of in by_weights.items()})
    return Group(
        profile=profile,
        after=after,
        seed=min(shared),
        surface=surface,
        best_s={seed: by_weights[surface.best][seed]["p95_s"] for seed in sorted(shared)},
        physics_s={seed: result["p95_s"] for seed, result in runs.get(fixed(PHYSICS), {}).items()},
        again_s={seed: result["p95_s"] for seed, result in runs.get(AGAIN, {}).items()},
        tuned=[Tuned(arm, start, of) for policy, of in runs.items() for arm, start in (parsed(policy),) if start],
    )


def _fixed(policy: str) -> Weights | None:
    constants = dict(part.partition("=")[::2] for part in policy.split(";")[1:])
    if set(constants) != {"rtt_weight", "queue_weight"}:
        return None
    return Weights(float(constants["rtt_weight"]), float(constants["queue_weight"]))


def _of_group(group: Group) -> Iterator[Row]:
    yield from _surface_rows(group)
    for tuned in group.tuned:
        yield from _of_start(group, tuned)
    for start in dict.fromkeys(tuned.start for tuned in group.tuned):
        gap = group.surface.gap(start)
        yield _row(from_start(group.profile, start), NONE, GAP, 1e2 * gap, "%", len(group.best_s), group.seed)
    arms = dict.fromkeys(tuned.arm for tuned in group.tuned)
    for arm in arms:
        yield from _as_run(
            group, arm, [(s, r["p95_s"]) for t in group.tuned if t.arm == arm for s, r in t.runs.items()]
        )
        yield from _over_requests(group, arm)
    yield from _as_run(group, AGAIN, list(group.again_s.items()))


def _surface_rows(group: Group) -> Iterator[Row]:
    seeds = len(group.best_s)
    for weights, mean_s in group.surface.points():
        yield _row(group.profile, fixed(weights), P95, 1e3 * mean_s, "ms", seeds, group.seed)
    values = {seed: 1e3 * value for seed, value in group.best_s.items()}
    yield mean_row(NAME, profile=group.profile, policy=BEST, metric=P95, values=values, unit="ms")
    for metric, value in zip(("rtt weight", "queue weight"), group.surface.best, strict=True):
        yield _row(group.profile, BEST, metric, value, "", seeds, group.seed)
    own, chosen_s = fixed(PHYSICS), group.surface.chosen_s
    yield _row(group.profile, own, GAP, 1e2 * group.surface.gap(PHYSICS), "%", seeds, group.seed)
    fair = None if chosen_s is None else 1e2 * (group.surface.at(PHYSICS) / chosen_s - 1.0)
    yield _row(group.profile, own, CHOSEN_GAP, fair, "%", seeds, group.seed)


def _of_start(group: Group, tuned: Tuned) -> Iterator[Row]:
    profile, surface, runs = from_start(group.profile, tuned.start), group.surface, tuned.runs
    gaps = {seed: 1e2 * worst_gap(surface, run["course"], after=group.after) for seed, run in runs.items()}
    yield mean_row(NAME, profile=profile, policy=tuned.arm, metric=GAP, values=gaps, unit="%")
    first, seeds = min(runs), len(runs)
    inside = sum(gap <= 1e2 * WITHIN for gap in gaps.values())
    yield _row(profile, tuned.arm, SEEDS_WITHIN, inside, "seeds", seeds, first)
    since = [settled(surface, run["course"], within=WITHIN) for run in runs.values()]
    middle = median(float("inf") if at is None else at for at in since)
    yield _row(profile, tuned.arm, SETTLED, None if middle == float("inf") else middle, "requests", seeds, first)
    accepted = {seed: float(run["events"].get("accepted", 0)) for seed, run in runs.items()}
    yield mean_row(NAME, profile=profile, policy=tuned.arm, metric=ACCEPTED, values=accepted, unit="")
    for place, metric in enumerate(END, start=1):
        yield _row(
            profile, tuned.arm, metric, median(run["course"][-1][place] for run in runs.values()), "", seeds, first
        )


def _as_run(group: Group, policy: str, runs: Sequence[tuple[int, float]]) -> Iterator[Row]:
    found = [value for seed, p95_s in runs if (value := group.as_run(seed, p95_s)) is not None]
    if not found:
        return
    values = [1e2 * value for value in found]
    yield mean_row(NAME, profile=group.profile, policy=policy, metric=AS_RUN, values=values, unit="%", seed=group.seed)
    inside = sum(value <= WITHIN for value in found)
    yield _row(group.profile, policy, RUNS_WITHIN, 1e2 * inside / len(found), "%", len(found), group.seed)


def _over_requests(group: Group, arm: str) -> Iterator[Row]:
    """From wrong priors alone, all of them together; each weight's middle course beside it."""
    wrong = [tuned for tuned in group.tuned if tuned.arm == arm and tuned.start != PHYSICS]
    least = min((run["requests"] for tuned in wrong for run in tuned.runs.values()), default=0)
    for tick in (tick for tick in TICKS if tick < least):
        gaps = [
            1e2 * group.surface.gap(in_force(run["course"], request=tick))
            for tuned in wrong
            for run in tuned.runs.values()
        ]
        yield mean_row(
            NAME, profile=group.profile, policy=arm, metric=gap_at(tick), values=gaps, unit="%", seed=group.seed
        )
        for tuned in wrong:
            there = [in_force(run["course"], request=tick) for run in tuned.runs.values()]
            for place, which in enumerate(("rtt", "queue")):
                value = median(weights[place] for weights in there)
                profile = from_start(group.profile, tuned.start)
                yield _row(profile, arm, weight_at(which, tick), value, "", len(there), group.seed)


def mean_of(found: Sequence[Row]) -> float | None:
    """Of the rows that have a value."""
    known = [row.value for row in found if row.value is not None]
    return fmean(known) if known else None


def _row(profile: str, policy: str, metric: str, value: float | None, unit: str, n: int, seed: int) -> Row:
    return Row(experiment=NAME, profile=profile, policy=policy, metric=metric, value=value, unit=unit, n=n, seed=seed)
