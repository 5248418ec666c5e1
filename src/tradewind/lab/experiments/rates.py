"""`rates`: what is left of a wrong table of hardware classes, and of a cell that halves, once rates are learned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row, measured, signed_interval
from tradewind.lab.simulated.nine import e2e_ms, mean_row, number, ran, text, ttft_ms
from tradewind.lab.simulated.trials import shortened
from tradewind.sim.disturbances import uniform
from tradewind.sim.faults import Change, Slow
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.scenarios import scenario_named

NAME = "rates"
LEARNED, FIXED = "cost", "cost;alpha=0;calibrate=0;trials=0"
FASTER = "cost;alpha=0.4"  # slowness is learned in half as many first tokens, all the time
EQUAL, ODD, MIXED = "equal cells, scale 1", "one cell of another class, scale 1", "three classes"
HALVED: Mapping[str, int] = {"near cell halved": 0, "middle cell halved": 1, "far cell halved": 2}
SLOW = "near cell at half its speed from the start"
ODD_CLASS = "2xl40s-b"  # the same engine under another name, as a class of its own
TOLD = f"{FIXED};rates={ODD_CLASS}:2"  # as fixed as they are true: what there is to gain by any learning
WRONG: Mapping[str, Sequence[str]] = {  # profile -> what the table begins with
    EQUAL: ("rates=10", "rates=0.1"),
    ODD: (f"rates={ODD_CLASS}:10", f"rates={ODD_CLASS}:0.1"),
    MIXED: ("rates=h100:10", "rates=h100:0.1", "rates=h200:10", "rates=h200:0.1"),
}
TRUE = ""
FIRST = 500  # requests in which rates may still be learned
HALF_S, HALF_SCALE = 1_800.0, "S1-ts2"  # some 3,600 requests
SEEDS, FIRST_SEED = 20, 2_600
QUICK_S, QUICK_FIRST = 30.0, 40
QUICK_WRONG: Mapping[str, Sequence[str]] = {EQUAL: ("rates=10",), MIXED: ("rates=h100:10",)}
EARLY, LATER = "TTFT p95 of the first 500", "TTFT p95 after 500"
AGAINST_TRUE, AGAINST_FIXED = "against true rates", "against fixed rates"
E2E = "E2E p95 after the change"
CHANGED = "TTFT p95 after the change"
MOST_WORSE, LEAST_GAIN = 5.0, -15.0
DEMANDED = (EQUAL, ODD)  # of learned rates, at scale 1; the other fleet is shown


def plan(options: Options) -> Sequence[Trial]:
    """Seeds outermost, so that a run that was cut has whole seeds."""
    quick = options.quick
    wrong = QUICK_WRONG if quick else WRONG
    return [
        Trial(
            experiment=NAME, args={"profile": profile, "policy": policy, "table": table, "seed": seed, "quick": quick}
        )
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for profile in (*wrong, *HALVED, SLOW)
        for policy in options.policies or _policies(profile)
        for table in (TRUE, *wrong.get(profile, ()))
    ]


def _policies(profile: str) -> Sequence[str]:
    if profile == SLOW:
        return LEARNED, FIXED, TOLD
    return (LEARNED, FIXED, FASTER) if profile in HALVED else (LEARNED, FIXED)


def run(trial: Trial) -> Result:
    """Percentiles before and after rates can have been learned, or the cell has changed."""
    profile, table, quick = text(trial, "profile"), text(trial, "table"), bool(trial.args["quick"])
    scenario = _scenario(profile, quick=quick)
    policy = text(trial, "policy") + (f";{table}" if table else "")
    records = ran(scenario, policy, seed=int(number(trial, "seed"))).records
    if profile in HALVED or profile == SLOW:
        (change,) = scenario.changes
        after = [record for record in records if record.intended_s >= change.at_s]
        return {CHANGED: ttft_ms(after, 0.95), E2E: 1e-3 * (e2e_ms(after, 0.95) or 0.0)}
    first = QUICK_FIRST if quick else FIRST
    return {EARLY: ttft_ms(records[:first], 0.95), LATER: ttft_ms(records[first:], 0.95)}


def _scenario(profile: str, *, quick: bool) -> Scenario:
    for_s = QUICK_S if quick else None
    if profile == MIXED:
        return shortened(scenario_named("S3"), for_s)
    if profile in HALVED:
        half = shortened(scenario_named(HALF_SCALE), QUICK_S if quick else HALF_S)
        return _halved(half, HALVED[profile], at_s=half.for_s / 2)
    if profile == SLOW:
        slow = _halved(shortened(scenario_named(HALF_SCALE), QUICK_S if quick else HALF_S / 2), 0, at_s=0.0)
        near, *others = slow.cells
        return replace(slow, cells=(_odd(near), *others))
    far = shortened(scenario_named("S1-ts1"), for_s)
    if profile == EQUAL:
        return far
    near, middle, distant = far.cells
    return replace(far, cells=(near, _odd(middle), distant))


def _halved(scenario: Scenario, cell: int, *, at_s: float) -> Scenario:
    return replace(scenario, changes=(Change(at_s=at_s, cell=cell, effect=Slow(slow=uniform(0.5))),))


def _odd(cell: CellSpec) -> CellSpec:
    """The same cell as the only one of its class."""
    return replace(cell, profile=replace(cell.profile, name=ODD_CLASS))


_Runs = Mapping[str, Mapping[int, Result]]  # as written, with its table -> seed -> result


def rows(done: Done) -> Sequence[Row]:
    """Means, and differences paired by seed: with the true table, or with rates that stay as they are."""
    groups: dict[str, dict[str, dict[int, Result]]] = {}
    for trial, result in done:
        table = text(trial, "table")
        written = text(trial, "policy") + (f";{table}" if table else "")
        groups.setdefault(text(trial, "profile"), {}).setdefault(written, {})[int(number(trial, "seed"))] = result
    return [row for profile, runs in groups.items() for row in _rows(profile, runs)]


def _rows(profile: str, runs: _Runs) -> Iterator[Row]:
    slowed = profile in HALVED or profile == SLOW
    metrics = ((CHANGED, "ms"), (E2E, "s")) if slowed else ((EARLY, "ms"), (LATER, "ms"))
    basis = FIXED if slowed else next(iter(runs))  # the first is learned rates with the true table
    against = AGAINST_FIXED if slowed else AGAINST_TRUE
    for written, by_seed in runs.items():
        for metric, unit in metrics:
            values = {seed: result[metric] for seed, result in by_seed.items()}
            yield mean_row(NAME, profile=profile, policy=written, metric=metric, values=values, unit=unit)
            if written != basis and basis in runs:
                yield mean_row(
                    NAME, profile=profile, policy=written, metric=f"{metric} {against}",
                    values=_differences(by_seed, runs[basis], metric), unit="%",
                )  # fmt: skip


def _differences(ours: Mapping[int, Result], basis: Mapping[int, Result], metric: str) -> dict[int, float | None]:
    """Percent, by seed; a run that did not come through has none."""
    found: dict[int, float | None] = {}
    for seed, result in ours.items():
        value, other = result[metric], basis.get(seed, {}).get(metric)
        found[seed] = 1e2 * (value / other - 1.0) if value is not None and other else None
    return found


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """Learned rates: near those of a true table after 500 requests, and far below fixed ones once a cell has halved."""
    return [check for row in found for check in _claim(row)]


def _claim(row: Row) -> Iterator[Check]:
    name, note = f"{row.profile}, {row.policy}: {row.metric}", signed_interval(row)
    learned = not row.policy.startswith(FIXED)
    if row.metric == f"{LATER} {AGAINST_TRUE}":
        bounded = at_most(name, row.value, MOST_WORSE, unit="%", note=note)
        demanded = learned and row.profile in DEMANDED
        yield bounded if demanded else reported(name, row.value, unit="%", note=note)
    elif row.metric == f"{E2E} {AGAINST_FIXED}":
        yield reported(name, row.value, unit="%", note=note)
    elif row.metric == f"{CHANGED} {AGAINST_FIXED}":
        bounded = at_most(name, row.value, LEAST_GAIN, unit="%", note=note)
        yield (
            bounded
            if row.policy == LEARNED and row.profile in HALVED
            else reported(name, row.value, unit="%", note=note)
        )


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """What a wrong table costs, and what a halved cell does."""
    every = list(found)
    wrong = [(profile, table) for profile, tables in WRONG.items() for table in tables]
    x = [f"{profile}: {table.removeprefix('rates=')}" for profile, table in wrong]

    def of(policy: str, metric: str) -> list[Row | None]:
        return [
            measured(every, profile=profile, policy=f"{policy};{table}", metric=f"{metric} {AGAINST_TRUE}")
            for profile, table in wrong
        ]

    return [
        Figure(
            name="table",
            title="p95 TTFT with a table of hardware classes that is 10x wrong, against a true one",
            kind="bars",
            x_label="cells: which class begins with times so many times the true ones",
            y_label="%",
            series=[
                series_of("learned, first 500 requests", x, of(LEARNED, EARLY)),
                series_of("learned, after 500", x, of(LEARNED, LATER)),
                series_of("never corrected, after 500", x, of(FIXED, LATER)),
            ],
            caption="Paired by seed, means and 95 % by bootstrap.",
        ),
        Figure(
            name="halved",
            title="One of three cells halves in mid run: p95 TTFT from then on, against rates that stay as they were",
            kind="bars",
            x_label="which cell",
            y_label="%",
            series=[
                series_of(
                    label,
                    list(HALVED),
                    [
                        measured(every, profile=profile, policy=policy, metric=f"{CHANGED} {AGAINST_FIXED}")
                        for profile in HALVED
                    ],
                )
                for label, policy in (("learned", LEARNED), ("learned twice as fast", FASTER))
            ],
            caption="Paired by seed, means and 95 % by bootstrap.",
        ),
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Learned rates: a wrong table of hardware classes, and a cell that halves",
    question=(
        "How soon is a fleet whose hardware the table has ten times too slow or too fast served as if the table were "
        "true, and what does learning gain where a cell halves in mid run?"
    ),
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    notes=(
        "Differences are paired by seed, against learned rates that begin with the true table. Fixed: no slowness, no "
        "correction of classes, no trials; shares and drains of the scorer go on beside all. Where all cells are equal "
        "a table that is wrong as a whole hardly matters: what counts is which cell is cheaper. `rates=0.1` says that "
        "engines are ten times as fast as they are."
    ),
)
