"""`exporter-death`: the GPU exporter of one cell dies, or freezes, under load."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from tradewind.lab.checks import Check, at_least, at_most
from tradewind.lab.harness.experiment import Done, Experiment, Options, Result, Trial
from tradewind.lab.harness.figure import Figure, Series, series_of
from tradewind.lab.harness.row import Published, Row, measured
from tradewind.lab.simulated.nine import (
    AS_PUBLISHED,
    CELLS,
    COST,
    SOURCE,
    WEIGHTS,
    between,
    mean_row,
    nine,
    number,
    ran,
    success,
    text,
)
from tradewind.measure.record import Record
from tradewind.model.view import GridView
from tradewind.sim.faults import Change, Exporter
from tradewind.sim.grid import SimGrid
from tradewind.sim.policy import Policy
from tradewind.sim.steered import PicksPolicy, WeightsPolicy
from tradewind.workload.arrivals import POISSON
from tradewind.workload.classes import baseline_mixed

NAME = "exporter-death"
POLICIES = (AS_PUBLISHED, WEIGHTS, COST)
RATE_RPS, DEATH_S, FOR_S, QUICK_FOR_S = 10.0, 30.0, 60.0, 24.0
QUICK_DEATH_S, QUICK_CELLS = 12.0, (0,)
SEEDS, FIRST_SEED = 1, 800
MODES = ("dead", "frozen")
FLAGS = {"dead": "dcgm_fallback", "frozen": "gpu_frozen"}
FLAG, SUCCESS, SHARE = "exporter's end to flag at the gateway", "success", "cell's share after it, of the one before"
FLAGGED = "cells flagged"


def plan(options: Options) -> Sequence[Trial]:
    """Each of nine cells, dead and frozen."""
    quick = options.quick
    return [
        Trial(experiment=NAME, args={"mode": mode, "cell": cell, "policy": policy, "seed": seed, "quick": quick})
        for seed in options.seed_range(seeds=SEEDS, first=FIRST_SEED)
        for mode in MODES
        for policy in options.policies or POLICIES
        for cell in (QUICK_CELLS if quick else range(CELLS))
    ]


def run(trial: Trial) -> Result:
    """When the gateway's view had the flag, and what became of the requests."""
    mode, cell, seed = text(trial, "mode"), int(number(trial, "cell")), int(number(trial, "seed"))
    death_s, for_s = (QUICK_DEATH_S, QUICK_FOR_S) if trial.args["quick"] else (DEATH_S, FOR_S)
    death_s += 0.05 + 0.1 * cell  # scrapes and heartbeats are at whole seconds and halves
    effect = Exporter(mode="dead" if mode == "dead" else "frozen")
    scenario = nine(
        f"{NAME}/{cell}",
        lambda rng: baseline_mixed(rng, rate_per_s=RATE_RPS, for_s=for_s, arrivals=POISSON),
        for_s=for_s,
        changes=[Change(at_s=death_s, cell=cell, effect=effect)],
    )
    seen: list[float] = []
    records = ran(scenario, text(trial, "policy"), seed=seed, watch=_watch(cell, FLAGS[mode], seen)).records
    own = scenario.cells[cell].cell_id
    before, after = _share(between(records, 0.0, death_s), own), _share(between(records, death_s, for_s), own)
    return {
        "flag": seen[0] - death_s if seen else None,
        "success": success(records),
        "share": after / before if before and after is not None else None,
    }


def _watch(cell: int, flag: str, seen: list[float]) -> Callable[[SimGrid, Policy], None]:
    """Notes when the gateway's view first has the flag."""
    newest: list[GridView] = []

    def look(grid: SimGrid, policy: Policy) -> None:
        if seen or not isinstance(policy, WeightsPolicy | PicksPolicy):
            return
        view = policy.steer.view
        if newest and newest[0] is view:
            return
        newest[:] = [view]
        if view.cells and flag in view.cells[cell].telemetry.flags:
            seen.append(grid.loop.now_s)

    return look


def _share(records: Sequence[Record], cell_id: str) -> float | None:
    return sum(record.cell == cell_id for record in records) / len(records) if records else None


def profile(mode: str) -> str:
    """As rows name it."""
    return f"exporter {mode}, 10 RPS"


def rows(done: Done) -> Sequence[Row]:
    """Over nine cells and the seeds."""
    groups: dict[tuple[str, str], list[tuple[int, Result]]] = {}
    for trial, result in done:
        key = (text(trial, "mode"), text(trial, "policy"))
        groups.setdefault(key, []).append((int(number(trial, "seed")), result))
    return [row for (mode, policy), found in groups.items() for row in _of_group(profile(mode), policy, found)]


def _of_group(name: str, policy: str, found: Sequence[tuple[int, Mapping[str, float | None]]]) -> Iterator[Row]:
    seed, results = min(seed for seed, _ in found), [result for _, result in found]
    for metric, key, unit in ((FLAG, "flag", "s"), (SUCCESS, "success", "%"), (SHARE, "share", "x")):
        yield mean_row(
            NAME, profile=name, policy=policy, metric=metric, values=[r[key] for r in results], unit=unit, seed=seed
        )
    flags = [result["flag"] for result in results if result["flag"] is not None]
    for metric, value, unit in (
        (f"{FLAG}, longest", max(flags, default=None), "s"),
        (FLAGGED, float(len(flags)), "cells"),
    ):
        yield Row(
            experiment=NAME, profile=name, policy=policy, metric=metric, value=value, unit=unit, n=len(results),
            seed=seed,
        )  # fmt: skip


def claims(found: Sequence[Row]) -> Sequence[Check]:
    """A dead exporter is known within a second, on every cell, and costs nobody anything."""
    checks: list[Check] = []
    for policy in (WEIGHTS, COST):
        for mode, bound_s in (("dead", 1.0), ("frozen", 10.0)):
            rows_of = {
                metric: measured(list(found), profile=profile(mode), policy=policy, metric=metric)
                for metric in (f"{FLAG}, longest", SUCCESS, FLAGGED)
            }
            late, served, flagged = rows_of.values()
            name = f"{NAME}, {mode}, {policy}"
            if late is not None:
                checks.append(at_most(f"{name}: {late.metric}", late.value, bound_s, unit="s"))
            if served is not None:
                checks.append(at_least(f"{name}: {SUCCESS}", served.value, 100.0, unit="%"))
            if flagged is not None:
                checks.append(at_least(f"{name}: {FLAGGED}", flagged.value, flagged.n or CELLS, unit="cells"))
    return checks


def figures(found: Sequence[Row]) -> Sequence[Figure]:
    """How soon it is known."""
    policies = list(dict.fromkeys(row.policy for row in found))
    return [
        Figure(
            name="flag",
            title="Seconds until the gateway knows that an exporter's values are none",
            kind="bars",
            x_label="what the exporter does",
            y_label="s",
            series=[_series(found, policy) for policy in policies],
            caption="Means over nine cells, 95 % by bootstrap.",
        )
    ]


def _series(found: Sequence[Row], policy: str) -> Series:
    chosen = [row for row in found if row.metric == FLAG and row.policy == policy]
    return series_of(policy, [row.profile for row in chosen], chosen)


PUBLISHED = (
    Published(
        profile=profile("dead"),
        policy=AS_PUBLISHED,
        metric=FLAG,
        value=0.824,
        unit="s",
        source=f"{SOURCE}, telemetry fault",
        note="there the agent finds out by its next readings; here it sees the connection break, and says so at once",
    ),
    Published(
        profile=profile("dead"),
        policy=AS_PUBLISHED,
        metric=SUCCESS,
        value=99.90,
        unit="%",
        source=f"{SOURCE}, telemetry fault",
    ),
)

EXPERIMENT = Experiment(
    name=NAME,
    title="The GPU exporter dies, or freezes",
    question="How soon is it known that GPU values are none, on each of nine cells, and does it cost any request?",
    plan=plan,
    run=run,
    rows=rows,
    figures=figures,
    claims=claims,
    published=PUBLISHED,
    notes=(
        "baseline_mixed at 10 RPS. The agent sees the exporter's connection break 10 ms after its death, and a view "
        "takes 100 ms to the gateway: those two are assumed, so for a dead exporter the figure is theirs. A frozen "
        "exporter answers with old values; it is found out when they stand still while the engine works."
    ),
)
