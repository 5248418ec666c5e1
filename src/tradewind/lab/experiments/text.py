"""A run of an experiment for people: our figures beside the published ones, and what was demanded."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from tradewind.lab.checks import checks_table
from tradewind.lab.experiments.row import Published, Row
from tradewind.lab.experiments.runner import Report

MOST_ROWS = 60  # of a table on a terminal; the rest is in the report and in JSON


def show(console: Console, report: Report) -> None:
    """Print one report."""
    experiment = report.experiment
    console.print(f"\n[bold]{experiment.name}[/bold]: {experiment.title}\n{experiment.question}", highlight=False)
    if report.rows:
        console.print(rows_table(report))
    if report.claims:
        console.print(checks_table(report.claims, title="what must be true"))
    if experiment.notes:
        console.print(experiment.notes, style="dim", highlight=False)
    console.print(footer(report), style="dim", highlight=False)
    for failure in report.failures:
        console.print(f"FAILED {failure.replay}", style="bold red", highlight=False)
        console.print(failure.error, markup=False, highlight=False)


def rows_table(report: Report) -> Table:
    """Our rows, and beside them what was published."""
    published = by_key(report.experiment.published)
    table = Table(title=f"{report.experiment.name} (quick: no figure to quote)" if report.quick else None)
    for heading in ("profile", "policy", "metric"):
        table.add_column(heading, overflow="fold")
    for heading in ("ours", "95 %", "n", "published"):
        table.add_column(heading, justify="right")
    for row in report.rows[:MOST_ROWS]:
        beside = published.get((row.profile, row.policy, row.metric))
        table.add_row(
            row.profile,
            row.policy,
            row.metric,
            with_unit(row.value, row.unit),
            interval(row),
            "" if row.n is None else f"{row.n}",
            "" if beside is None else with_unit(beside.value, beside.unit) + ("*" if beside.note else ""),
        )
    if len(report.rows) > MOST_ROWS:
        table.caption = f"{len(report.rows) - MOST_ROWS} more rows: --json FILE or --report FILE"
    return table


def by_key(published: Sequence[Published]) -> Mapping[tuple[str, str, str], Published]:
    """Published figures by profile, policy and metric."""
    return {(item.profile, item.policy, item.metric): item for item in published}


def with_unit(value: float | None, unit: str) -> str:
    """ "?" for what could not be had."""
    return "?" if value is None else f"{number(value)} {unit}".strip()


def number(value: float) -> str:
    """Four digits that count, no exponent where it can be helped."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def interval(row: Row) -> str:
    """Both ends, or nothing."""
    return "" if row.lo is None or row.hi is None else f"{number(row.lo)} .. {number(row.hi)}"


def footer(report: Report) -> str:
    """How it was run."""
    commit = report.rows[0].commit if report.rows else "unknown"
    reused = f", {report.reused} from a run before" if report.reused else ""
    return f"{report.trials} trials{reused}, {report.took_s:.1f} s, commit {commit}: {report.command}"
