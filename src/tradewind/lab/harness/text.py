"""A run of an experiment for people: our figures beside the published ones, and what was demanded."""

from rich.console import Console
from rich.table import Table

from tradewind.lab.checks import checks_table
from tradewind.lab.harness.pivot import Grid, grids, heading
from tradewind.lab.harness.runner import Report

MOST_TABLES = 12  # on a terminal; all are in the report and in JSON


def show(console: Console, report: Report) -> None:
    """Print one report."""
    experiment = report.experiment
    console.print(f"\n[bold]{experiment.name}[/bold]: {experiment.title}\n{experiment.question}", highlight=False)
    if report.quick:
        console.print("quick: it works, and this is no figure to quote", style="yellow")
    found = grids(report.rows, experiment.published)
    for grid in found[:MOST_TABLES]:
        console.print(grid_table(grid))
    if len(found) > MOST_TABLES:
        console.print(f"{len(found) - MOST_TABLES} more tables: --json FILE or --report FILE", style="dim")
    if report.claims:
        console.print(checks_table(report.claims, title="what must be true"))
    if experiment.notes:
        console.print(experiment.notes, style="dim", highlight=False)
    console.print(footer(report), style="dim", highlight=False)
    for failure in report.failures:
        console.print(f"FAILED {failure.replay}", style="bold red", highlight=False)
        console.print(failure.error, markup=False, highlight=False)


def grid_table(grid: Grid) -> Table:
    """One profile."""
    table = Table(title=heading(grid), title_justify="left")
    table.add_column("policy", no_wrap=True)
    for metric, unit in grid.heads:
        table.add_column(f"{metric}, {unit}" if unit else metric, justify="right", overflow="fold")
    for policy, cells in grid.lines:
        table.add_row(policy, *("\n".join(cell.lines) for cell in cells))
    return table


def footer(report: Report) -> str:
    """How it was run."""
    commit = report.rows[0].commit if report.rows else "unknown"
    reused = f", {report.reused} from a run before" if report.reused else ""
    return f"{report.trials} trials{reused}, {report.took_s:.1f} s, commit {commit}: {report.command}"
