"""The experiment of one grid file: made where it is asked for, since its trials are the operator's own."""

from collections.abc import Sequence

from rich.table import Table

from tradewind.lab.experiments.what_if.answer import CHANGE, NAME, arms_of, plain, rows, sentences
from tradewind.lab.experiments.what_if.changes import changed
from tradewind.lab.experiments.what_if.fleet import fleet_of
from tradewind.lab.experiments.what_if.load import load_of
from tradewind.lab.experiments.what_if.run import grid_of, run
from tradewind.lab.experiments.what_if.setup import AS_IT_IS, Setup
from tradewind.lab.harness.experiment import Experiment, Options, Trial
from tradewind.lab.harness.figure import Figure, series_of
from tradewind.lab.harness.row import Row
from tradewind.lab.simulated.policies import maker

SEEDS = 5
QUESTION = (
    "How does this grid serve this load, and what would change it? Every what-if meets the same arrivals and paths."
)


def experiment_of(setup: Setup, what_ifs: Sequence[str], *, command: str) -> Experiment:
    """The experiment; `command` makes it again. Raises SetupError, UnknownPolicyError, ConfigError before any run."""
    described = fleet_of(grid_of(setup), setup)
    arms = list(dict.fromkeys((AS_IT_IS, *what_ifs)))
    policies = {arm: changed(described.fleet, arm).policy for arm in arms}
    for policy in dict.fromkeys(policies.values()):
        maker(policy)
    load_of(setup, seed=1, factor=1.0)

    def plan(options: Options) -> list[Trial]:
        return [
            Trial(experiment=NAME, args={**setup.args(), "what_if": arm, "decides": policies[arm], "seed": seed})
            for seed in options.seed_range(seeds=SEEDS, first=1)
            for arm in arms
        ]

    cells, sites = len(described.fleet.cells), len(described.fleet.sites)
    load = setup.trace or f"{setup.workload} at {setup.rate_per_s:g}/s"
    notes = f"Assumed: {'; '.join(described.assumed)}."
    return Experiment(
        name=NAME,
        title=f"{setup.grid}: {cells} cells in {sites} sites, {load}",
        question=QUESTION,
        plan=plan,
        run=run,
        rows=rows,
        figures=figures,
        notes=notes,
        command=command,
    )


def arms_table(found: Sequence[Row], *, slo_ttft_s: float) -> Table:
    """Metrics down, arms across: the mean over seeds with its 95 % interval."""
    arms = arms_of(found)
    seeds = max((row.n or 0 for row in found), default=0)
    table = Table(
        title=f"mean over {seeds} seeds (95 % interval); good: TTFT within {slo_ttft_s:g} s", show_lines=False
    )
    table.add_column("")
    for arm in arms:
        table.add_column(arm, justify="right", overflow="fold")
    units = {row.metric: row.unit for row in found if not row.metric.endswith(CHANGE)}
    by_key = {(row.profile, row.metric): row for row in found}
    for metric, unit in units.items():
        label = metric.replace("_", " ") + (f", {unit}" if unit else "")
        table.add_row(label, *(_cell(by_key.get((arm, metric))) for arm in arms))
    return table


def _cell(row: Row | None) -> str:
    if row is None or row.value is None:
        return "" if row is None else "?"
    value = plain(row.value, row.unit)
    if row.lo is None or row.hi is None or row.lo == row.hi:
        return value
    return f"{value} ({plain(row.lo, row.unit)}..{plain(row.hi, row.unit)})"


def figures(found: Sequence[Row]) -> list[Figure]:
    """Latency of each arm, the changes, and the sites' load."""
    arms = arms_of(found)
    caption = " ".join(sentences(found))
    drawn = [
        _figure(found, arms, "latency", "Tails", "ms", ("ttft_p95", "ttft_p99", "e2e_p95", "e2e_p99"), caption),
        _figure(found, arms, "goodput", "Requests served within the SLO", "1/s", ("goodput",), ""),
        _figure(
            found,
            arms,
            "sites",
            "Utilisation by site: 100 % is all that full batches can do",
            "%",
            _utilisation(found),
            "",
        ),
    ]
    if len(arms) > 1:
        changes = tuple(f"{metric}{CHANGE}" for metric in ("ttft_p95", "e2e_p95", "goodput"))
        text = "Paired by seed; an interval that holds 0 shows no difference."
        drawn.insert(1, _figure(found, arms[1:], "changes", "Against the grid as it is", "%", changes, text))
    return drawn


def _utilisation(found: Sequence[Row]) -> tuple[str, ...]:
    names = dict.fromkeys(row.metric for row in found if row.metric.startswith("utilisation "))
    return tuple(name for name in names if not name.endswith(CHANGE))


def _figure(
    found: Sequence[Row],
    arms: Sequence[str],
    name: str,
    title: str,
    unit: str,
    metrics: Sequence[str],
    caption: str,
) -> Figure:
    by_key = {(row.profile, row.metric): row for row in found}
    series = []
    for metric in metrics:
        picked = [by_key.get((arm, metric)) for arm in arms]
        series.append(series_of(metric.replace("_", " "), list(arms), picked))
    return Figure(name=name, title=title, kind="bars", x_label="", y_label=unit, series=series, caption=caption)
