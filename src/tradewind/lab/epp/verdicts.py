"""What came of each case, as a table and as JSON."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from rich.table import Table
from rich.text import Text


class Result(StrEnum):
    """Of one case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"  # something it needs was not told; `detail` says what


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    case: str
    proves: str
    result: Result
    detail: str = ""  # what was wrong, or what is missing
    took_ms: float = 0.0


_STYLES = {Result.PASSED: "green", Result.FAILED: "bold red", Result.SKIPPED: "dim"}


def table(verdicts: Sequence[Verdict], *, title: str) -> Table:
    """For people."""
    rows = Table(title=title, title_justify="left")
    rows.add_column("case", no_wrap=True)
    rows.add_column("proves", overflow="fold")
    rows.add_column("result")
    rows.add_column("detail", overflow="fold", max_width=50)
    for verdict in verdicts:
        rows.add_row(
            verdict.case, verdict.proves, Text(verdict.result, style=_STYLES[verdict.result]), Text(verdict.detail)
        )
    return rows


def summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many of each result."""
    return {result.value: sum(verdict.result is result for verdict in verdicts) for result in Result}
