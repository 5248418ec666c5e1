"""Comparisons as tables for people: milliseconds, and differences with their errors."""

from collections.abc import Sequence

from rich.table import Table

from tradewind.lab.simulated.compare import Difference, RunRow, against_best, difference, mean_of

_COLUMNS = (
    ("TTFT p50", "ttft_p50_s", 1e3, "{:.0f}"),
    ("p95", "ttft_p95_s", 1e3, "{:.0f}"),
    ("p99", "ttft_p99_s", 1e3, "{:.0f}"),
    ("E2E p50", "e2e_p50_s", 1e3, "{:.0f}"),
    ("p95", "e2e_p95_s", 1e3, "{:.0f}"),
    ("ITL", "itl_mean_s", 1e3, "{:.1f}"),
    ("p95", "itl_p95_s", 1e3, "{:.0f}"),
    ("hit", "hit_served_ratio", 1.0, "{:.2f}"),
    ("believed", "hit_predicted_ratio", 1.0, "{:.2f}"),
    ("max share", "max_share", 1.0, "{:.2f}"),
    ("served", "success_ratio", 1.0, "{:.3f}"),
)
_COMPARED = ("ttft_p95_s", "e2e_p95_s")


def comparison_table(rows: Sequence[RunRow], *, title: str) -> Table:
    """One scenario: means over seeds per policy; the last two columns compare with the first policy's seeds."""
    policies = list(dict.fromkeys(row.policy for row in rows))
    seeds = len({row.seed for row in rows})
    table = Table(title=f"{title} ({seeds} seeds, ms)")
    table.add_column("policy")
    for heading, *_ in _COLUMNS:
        table.add_column(heading, justify="right")
    table.add_column(f"{policies[0]} against it: TTFT p95 / E2E p95, %", justify="right")
    first = [row for row in rows if row.policy == policies[0]]
    for policy in policies:
        of = [row for row in rows if row.policy == policy]
        values = [shape.format(mean_of(of, metric) * factor) for _, metric, factor, shape in _COLUMNS]
        compared = [percent(difference(first, of, metric=metric)) for metric in _COMPARED]
        table.add_row(policy, *values, "" if policy == policies[0] else " / ".join(compared))
    return table


def best_lines(rows: Sequence[RunRow]) -> list[str]:
    """The first policy against the best of the others, metric by metric."""
    policy = rows[0].policy
    found = [against_best(rows, policy=policy, metric=metric) for metric in _COMPARED]
    return [
        f"{item.scenario}: {policy} against the best other by {item.metric}, {item.baseline}: {percent(item)} %"
        + (
            f", 95 % interval {100 * item.low_ratio:+.1f}..{100 * item.high_ratio:+.1f}"
            if item.low_ratio is not None and item.high_ratio is not None
            else ""
        )
        for item in found
        if item is not None
    ]


def percent(item: Difference) -> str:
    """Mean relative difference and its standard error, in percent."""
    error = "" if item.error_ratio is None else f" ({100 * item.error_ratio:.1f})"
    return f"{100 * item.mean_ratio:+.1f}{error}"
