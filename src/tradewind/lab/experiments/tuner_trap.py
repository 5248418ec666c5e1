"""`tuner-trap`: a queue weight of 0 on decode-heavy traffic wins first tokens and ruins the rest; who falls for it."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Argument, Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row, measured
from tradewind.lab.simulated.nine import number, ran, text
from tradewind.lab.simulated.policies import maker
from tradewind.lab.tuning.forced import RULES, Forced
from tradewind.measure.record import Record
from tradewind.measure.statistics import mean_interval, percentile
from tradewind.measure.summary import shares
from tradewind.model.tuning import Weights
from tradewind.sim.scenario import Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.sim.tuning import WithTuner
from tradewind.workload.arrivals import poisson
from tradewind.workload.mooncake import BLOCK_TOKENS, Trace, TracedRequest

NAME = "tuner-trap"
PROMPT_TOKENS, OUTPUT_TOKENS, MAX_SEQS = 400, 256, 256
# The cost that the trap is of: the way, the queue and the prefill. What decodes cost is in `cost`, which spreads them.
BARE = "cost;own_weight=0;others_weight=0;prefill_weight=1"
WHOLE = "cost"
RATES = (6.0, 9.0)
PARENTS = (Weights(1.0, 5.0), Weights(0.1, 1.0))
CHILDREN = (Weights(1.0, 0.0), Weights(1.0, 0.2))
START = Weights(1.0, 5.0)
TUNERS = ("calibrator", "es-repaired", "es")
SAFE = ("calibrator", "es-repaired")
FIXED = "fixed"
TRAPPED = 1.5  # times E2E p95 at the start's weights, on the same requests
SEEDS, FIRST_SEED = 20, 3_100
FORCED_S, FREE_S, FREE_RATE = 220.0, 660.0, 9.0  # so many seconds of load
WHOLE_SEEDS = 5  # of them, where weights matter little
QUICK_FORCED_S, QUICK_FREE_S = 60.0, 60.0
LAST = 1 / 3  # of a free run: where it has ended up
GUARDS = {"mean_e2e_z": "mean E2E", "mean_itl_z": "mean ITL", "top_share_child": "share of one cell"}
ACCEPTED, COMPARED = "children accepted", "comparisons"
FORCED, FREE, SHAPE = "forced", "free", "what it is"
IN_TRAP, E2E, LEAST_QUEUE = "runs trapped", "E2E p95 at the end", "queue weight at the end"


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    trials: list[Trial] = []
    for place, seed in enumerate(options.seed_range(seeds=SEEDS, first=FIRST_SEED)):
        costs = (BARE, WHOLE) if place < WHOLE_SEEDS else (BARE,)
        trials += [_trial(seed, options, **args) for args in (_shapes(options) if place < WHOLE_SEEDS else ())]
        trials += [_trial(seed, options, **args) for args in _forced(options)]
        trials += [
            _trial(seed, options, part=FREE, cost=cost, tuner=tuner, rate=FREE_RATE)
            for cost in costs
            for tuner in (FIXED, *(options.policies or TUNERS))
        ]
    return trials


def _trial(seed: int, options: Options, **args: Argument) -> Trial:
    return Trial(experiment=NAME, args={"seed": seed, "quick": options.quick, **args})


def _shapes(options: Options) -> Iterator[dict[str, Argument]]:
    for cost in (BARE, WHOLE):
        for weights in (Weights(1.0, 1.0), START, *CHILDREN[: 1 if options.quick else 2]):
            yield {"part": SHAPE, "cost": cost, "rate": FREE_RATE, "rtt": weights.rtt, "queue": weights.queue}


def _forced(options: Options) -> Iterator[dict[str, Argument]]:
    for rule in RULES:
        for rate in RATES[: 1 if options.quick else 2]:
            for parent in PARENTS[: 1 if options.quick else 2]:
                for child in CHILDREN[: 1 if options.quick else 2]:
                    weights = {"parent": _said(parent), "child": _said(child)}
                    yield {"part": FORCED, "cost": BARE, "rule": rule, "rate": rate, **weights}


def run(trial: Trial) -> Result:
    """One run: fixed weights, one comparison repeated, or a tuner on its own."""
    quick = bool(trial.args["quick"])
    part, cost, seed = text(trial, "part"), text(trial, "cost"), int(number(trial, "seed"))
    for_s = (QUICK_FORCED_S if quick else FORCED_S) if part == FORCED else (QUICK_FREE_S if quick else FREE_S)
    scenario = decode_heavy(number(trial, "rate"), for_s=FORCED_S if part == SHAPE and not quick else for_s)
    if part == SHAPE:
        fixed = f"{cost};rtt_weight={number(trial, 'rtt')};queue_weight={number(trial, 'queue')}"
        return _figures(_counted(ran(scenario, fixed, seed=seed).records, 0.1))
    if part == FORCED:
        return _force(trial, scenario, seed)
    tuner = text(trial, "tuner")
    written = f"{cost};rtt_weight={START.rtt:g};queue_weight={START.queue:g}"
    if tuner != FIXED:
        written += f";tuner={tuner};start={_said(START)};box=tested"
    done = ran(scenario, written, seed=seed)
    history = done.result.tuning
    last = START if history is None else history.last
    return {**_figures(_counted(done.records, 1.0 - LAST)), "rtt": last.rtt, "queue": last.queue}


def _force(trial: Trial, scenario: Scenario, seed: int) -> Result:
    rule, parent, child = text(trial, "rule"), _weights(text(trial, "parent")), _weights(text(trial, "child"))
    make = WithTuner(
        make_policy=maker(text(trial, "cost")), make_tuner=lambda _: Forced(rule, parent=parent, child=child)
    )
    history = ran(scenario, make, seed=seed).result.tuning
    assert history is not None
    verdicts = Counter(_verdict(dict(event.figures), event.what.value) for event in history.events)
    return {"verdicts": dict(sorted(verdicts.items())), "reasons": [event.reason for event in history.events][:3]}


def _verdict(figures: Mapping[str, float], what: str) -> str:
    if what != "rolled_back":
        return what
    return next((name for key, name in GUARDS.items() if key in figures), "another guard")


def decode_heavy(rate: float, *, for_s: float) -> Scenario:
    """S1's three far cells under short prompts that nobody shares and long answers."""

    def load(rng: random.Random) -> Trace:
        times = poisson(rng, rate_per_s=rate, for_s=for_s)
        requests = (
            TracedRequest(at_s=at_s, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS, session=f"s{place}")
            for place, at_s in enumerate(times)
        )
        return Trace(requests=tuple(requests), block_tokens=BLOCK_TOKENS)

    far = scenario_named("S1-ts1")
    cells = tuple(replace(cell, limits=replace(cell.limits, max_num_seqs=MAX_SEQS)) for cell in far.cells)
    return replace(
        far, name=f"decode-heavy-{rate:g}", title="short prompts, long answers", cells=cells, load=load, for_s=for_s
    )


def _counted(records: Sequence[Record], after: float) -> Sequence[Record]:
    """Those that arrived after this part of the run."""
    return records[int(after * len(records)) :]


def _figures(records: Sequence[Record]) -> dict[str, float | None]:
    return {
        "ttft_p95_s": percentile([r.ttft_s for r in records if r.ok and r.ttft_s is not None], 0.95),
        "e2e_p95_s": percentile([r.e2e_s for r in records if r.ok and r.e2e_s is not None], 0.95),
        "top_share": max(shares(records).values(), default=None),
    }


def _said(weights: Weights) -> str:
    return f"{weights.rtt:g}/{weights.queue:g}"


def _weights(written: str) -> Weights:
    rtt, _, queue = written.partition("/")
    return Weights(float(rtt), float(queue))


def profile_of(part: str, cost: str, rate: float) -> str:
    """As rows name it."""
    what = "way, queue and prefill" if cost == BARE else "the whole cost"
    return f"{part}, {rate:g}/s, {what}"


def rows(done: Done) -> Sequence[Row]:
    """What the trap is, what comparisons say to its children, and where free runs end."""
    return [*_shape_rows(done), *_forced_rows(done), *_free_rows(done)]


def _grouped(done: Done, part: str, keys: Sequence[str]) -> dict[tuple[Argument, ...], dict[int, Result]]:
    groups: dict[tuple[Argument, ...], dict[int, Result]] = {}
    for trial, result in done:
        if trial.args["part"] == part:
            key = tuple(trial.args[name] for name in keys)
            groups.setdefault(key, {})[int(number(trial, "seed"))] = result
    return groups


def _shape_rows(done: Done) -> Iterator[Row]:
    for (cost, rate, rtt, queue), runs in _grouped(done, SHAPE, ("cost", "rate", "rtt", "queue")).items():
        profile = profile_of(SHAPE, str(cost), float(rate or 0.0))
        policy = f"{_said(Weights(float(rtt or 0.0), float(queue or 0.0)))}"
        for metric, key, unit, factor in (
            ("TTFT p95", "ttft_p95_s", "ms", 1e3),
            ("E2E p95", "e2e_p95_s", "s", 1.0),
            ("largest share of a cell", "top_share", "%", 1e2),
        ):
            yield _mean(profile, policy, metric, {seed: run[key] for seed, run in runs.items()}, unit, factor)


def _forced_rows(done: Done) -> Iterator[Row]:
    for (rule, rate, parent, child), runs in _grouped(done, FORCED, ("rule", "rate", "parent", "child")).items():
        profile = f"{profile_of(FORCED, BARE, float(rate or 0.0))}: {parent} against {child}"
        verdicts: Counter[str] = Counter()
        for run in runs.values():
            verdicts.update(run["verdicts"])
        total = verdicts.total()
        for metric, value, unit in (
            (ACCEPTED, float(verdicts["accepted"]), ""),
            (COMPARED, float(total), ""),
            *((f"refused by {name}", 1e2 * verdicts[name] / total if total else None, "%") for name in GUARDS.values()),
            ("refused for first tokens", 1e2 * verdicts["rejected"] / total if total else None, "%"),
        ):
            yield Row(
                experiment=NAME, profile=profile, policy=str(rule), metric=metric, value=value, unit=unit,
                n=len(runs), seed=min(runs),
            )  # fmt: skip


def _free_rows(done: Done) -> Iterator[Row]:
    groups = _grouped(done, FREE, ("cost", "rate", "tuner"))
    for (cost, rate, tuner), runs in groups.items():
        profile = f"{profile_of(FREE, str(cost), float(rate or 0.0))}, from {_said(START)}"
        basis = groups.get((cost, rate, FIXED), {})
        ratios = {seed: _ratio(run, basis.get(seed)) for seed, run in runs.items()}
        known = [ratio for ratio in ratios.values() if ratio is not None]
        yield _mean(profile, str(tuner), E2E, {seed: run["e2e_p95_s"] for seed, run in runs.items()}, "s", 1.0)
        yield _mean(
            profile, str(tuner), "TTFT p95 at the end", {s: run["ttft_p95_s"] for s, run in runs.items()}, "ms", 1e3
        )
        for metric, value, unit in (
            (IN_TRAP, float(sum(ratio > TRAPPED for ratio in known)), "runs"),
            ("E2E p95 over that of the start, worst run", max(known, default=None), ""),
            (LEAST_QUEUE, median(float(run["queue"]) for run in runs.values()), ""),
        ):
            yield Row(
                experiment=NAME, profile=profile, policy=str(tuner), metric=metric, value=value, unit=unit,
                n=len(known), seed=min(runs),
            )  # fmt: skip


def _ratio(run: Result, basis: Result | None) -> float | None:
    if basis is None or run["e2e_p95_s"] is None or not basis["e2e_p95_s"]:
        return None
    return float(run["e2e_p95_s"] / basis["e2e_p95_s"])


def _mean(profile: str, policy: str, metric: str, values: Mapping[int, float | None], unit: str, factor: float) -> Row:
    known = [factor * value for value in values.values() if value is not None]
    low, high = mean_interval(known) or (None, None)
    return Row(
        experiment=NAME, profile=profile, policy=policy, metric=metric, value=fmean(known) if known else None,
        unit=unit, lo=low, hi=high, n=len(known), seed=min(values),
    )  # fmt: skip


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Neither the calibrator nor the repaired search ever takes it; how often the published one falls in is shown."""
    checks: list[Check] = []
    for row in found:
        name = f"{row.profile}, {row.policy}: {row.metric}"
        if row.metric == ACCEPTED:
            compared = measured(list(found), profile=row.profile, policy=row.policy, metric=COMPARED)
            checks.append(
                at_most(
                    name,
                    row.value,
                    0,
                    note=f"of {compared.value:.0f} in {row.n} runs" if compared and compared.value is not None else "",
                )
            )
        elif row.metric == IN_TRAP and row.policy != FIXED:
            note = f"of {row.n}"
            safe = row.policy in SAFE
            checks.append(at_most(name, row.value, 0, note=note) if safe else reported(name, row.value, note=note))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """The trap, and where runs end."""
    every = list(found)
    bare, whole = (profile_of(SHAPE, cost, FREE_RATE) for cost in (BARE, WHOLE))
    policies = list(dict.fromkeys(row.policy for row in every if row.profile == bare))
    ends = [f"{profile_of(FREE, cost, FREE_RATE)}, from {_said(START)}" for cost in (BARE, WHOLE)]
    tuners = list(dict.fromkeys(row.policy for row in every if row.profile == ends[0]))

    def of(profile: str, names: Sequence[str], metric: str) -> list[Row | None]:
        return [measured(every, profile=profile, policy=policy, metric=metric) for policy in names]

    return [
        Figure(
            name="weights",
            title=f"{PROMPT_TOKENS} prompt tokens, {OUTPUT_TOKENS} output tokens, {FREE_RATE:g}/s: fixed weights",
            kind="bars",
            x_label="RTT weight / queue weight",
            y_label="E2E p95, s",
            series=[
                series_of("way, queue and prefill", policies, of(bare, policies, "E2E p95")),
                series_of("the whole cost", policies, of(whole, policies, "E2E p95")),
            ],
        ),
        Figure(
            name="ends",
            title=f"Free runs from {_said(START)}: E2E p95 of the last third",
            kind="bars",
            x_label="tuner",
            y_label="s",
            series=[
                series_of("way, queue and prefill", tuners, of(ends[0], tuners, E2E)),
                series_of("the whole cost", tuners, of(ends[1], tuners, E2E)),
            ],
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="The trap of a queue weight of 0",
    question=(
        "With short prompts and long answers a queue weight of 0 sends everything to the nearest cell: first tokens "
        "come sooner, answers take far longer, and both arms of a comparison pay. Which tuner takes such a child?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "The trap is one of a cost of three terms: way, queue and prefill. `cost` itself counts what a request's "
        "decode costs it and the others, which no tuner moves, so that its weights matter little here. Forced: the "
        "child is proposed again and again and compared by the tuner's own rule, before physics at this load is "
        "known; the parent stays. Free: tuners from the start's weights in the wide box; the published search has a "
        "box of its own, in which a queue weight of 5 does not lie. Trapped: E2E p95 of the last third over 1.5 times "
        "what the start's weights have on the same requests."
    ),
)
