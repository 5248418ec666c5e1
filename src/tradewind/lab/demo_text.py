"""The demo's summary for a terminal."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tradewind.lab.checks import checks_table
from tradewind.lab.demo_checks import FaultRow, quantiles
from tradewind.lab.demo_why import Why, why_lines, why_rows

if TYPE_CHECKING:
    from tradewind.lab.demo import Arm, DemoResult


def summary_tables(result: "DemoResult") -> list[Table | Text]:
    """Faults, users, shares, promises, and where the report lies."""
    tables: list[Table | Text] = [faults_table(result.arms), users_table(result.arms), shares_table(result.arms)]
    if result.arms[0].why is not None:
        tables.extend(why_tables(result.arms[0].why))
    tables.append(checks_table(result.checks, title="What was promised (pick)"))
    for arm in result.arms[:1]:
        tables.extend(Text(f"unexplained: {line}", style="red") for line in arm.unexplained[:10])
    verdict = "Everything promised held." if result.holds else "Something promised did NOT hold."
    tables.append(Text(f"{verdict} Report: {result.report}, figures as JSON: {result.data}"))
    return tables


def faults_table(arms: "list[Arm]") -> Table:
    """What was injected, when it was seen and by what, what users saw."""
    table = Table(title="What was injected, and when it was seen", title_justify="left")
    for name in ("at", "fault", "target"):
        table.add_column(name)
    for arm in arms:
        table.add_column(f"{arm.title}: seen after", justify="right")
        table.add_column("by", overflow="fold", max_width=26)
        table.add_column("users: failed, TTFT p95", justify="right")
    for index, row in enumerate(arms[0].faults):
        cells = [f"{row.injected_s:.0f} s", row.name, row.target]
        for arm in arms:
            cells += _seen_cells(arm.faults[index])
        table.add_row(*cells)
    return table


def _seen_cells(row: FaultRow) -> list[str]:
    seen = "-" if row.seen_s is None else f"{row.seen_s:.2f} s"
    p95 = "?" if row.ttft_p95_s is None else f"{1e3 * row.ttft_p95_s:.0f} ms"
    return [seen, row.seen_by, f"{row.failed} of {row.requests}, {p95}"]


def users_table(arms: "list[Arm]") -> Table:
    """What users saw over the whole run."""
    table = Table(title="What users saw", title_justify="left")
    table.add_column("")
    for arm in arms:
        table.add_column(arm.title, justify="right")
    for name, cells in user_rows(arms):
        table.add_row(name, *cells)
    return table


def user_rows(arms: "list[Arm]") -> list[tuple[str, list[str]]]:
    """(what, one text for each arm); the same rows stand in the report."""
    sums = [(arm, arm.summary) for arm in arms]
    return [
        ("requests", [str(summary.requests) for _arm, summary in sums]),
        ("success", [_percent(summary.success_ratio) for _arm, summary in sums]),
        ("failures by kind", [_kinds(summary.failures) for _arm, summary in sums]),
        ("killed engine: lost before a token", [str(arm.lost_before_token) for arm, _summary in sums]),
        ("killed engine: retried elsewhere", [str(arm.retried_from_killed) for arm, _summary in sums]),
        ("killed engine: cut after tokens", [str(arm.cut_after_tokens) for arm, _summary in sums]),
        ("long prompts refused (400)", [f"{arm.leak.leaked} of {arm.leak.long_prompts}" for arm, _summary in sums]),
        ("TTFT p50 / p95 / p99", [quantiles(s.ttft_s.p50, s.ttft_s.p95, s.ttft_s.p99) for _arm, s in sums]),
        ("E2E p50 / p95 / p99", [quantiles(s.e2e_s.p50, s.e2e_s.p95, s.e2e_s.p99) for _arm, s in sums]),
        ("ITL p50 / p95", [quantiles(s.itl_s.p50, s.itl_s.p95) for _arm, s in sums]),
        ("goodput (TTFT <= 1.5 s)", [f"{summary.goodput_per_s:.2f} /s" for _arm, summary in sums]),
    ]


def shares_table(arms: "list[Arm]") -> Table:
    """Share of the requests that each cell answered."""
    table = Table(title="Share of requests by cell", title_justify="left")
    table.add_column("cell")
    for arm in arms:
        table.add_column(arm.title, justify="right")
    for cell in sorted({cell for arm in arms for cell in arm.shares}):
        table.add_row(cell, *(_percent(arm.shares.get(cell, 0.0)) for arm in arms))
    return table


def why_tables(why: Why) -> list[Table | Text]:
    """Why one request went where it went; * marks the cell that won."""
    heads, rows = why_rows(why)
    table = Table(title="Why one request went where it went (* won)", title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head == "cell" else "right")
    for row in rows:
        table.add_row(*row)
    return [table, *(Text(line) for line in why_lines(why))]


def _percent(ratio: float | None) -> str:
    return "?" if ratio is None else f"{100 * ratio:.2f} %"


def _kinds(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in failures.items()) or "none"
