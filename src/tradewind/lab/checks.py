"""Figures with a bound: the rows of `make verify` and `make bench`, as a table and as JSON."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `holds` None = reported without a bound, or not measured (then `note` says why)."""

    name: str
    value: float | None
    unit: str = ""
    bound: str = ""  # for people: "<= 500"
    holds: bool | None = None
    item: str = ""  # "2/3": issue 2, item 3
    command: str = ""  # what measures it alone
    note: str = ""


def at_most(name: str, value: float | None, bound: float, *, unit: str = "", note: str = "") -> Check:
    """A figure that must not exceed its bound; an unknown one does not hold."""
    holds = value is not None and value <= bound
    return Check(name=name, value=value, bound=f"<= {bound:g}", holds=holds, unit=unit, note=note)


def at_least(name: str, value: float | None, bound: float, *, unit: str = "", note: str = "") -> Check:
    """A figure that must reach its bound; an unknown one does not hold."""
    holds = value is not None and value >= bound
    return Check(name=name, value=value, bound=f">= {bound:g}", holds=holds, unit=unit, note=note)


def reported(name: str, value: float | None, *, unit: str = "", note: str = "") -> Check:
    """A figure that stands beside others without a bound of its own."""
    return Check(name=name, value=value, unit=unit, note=note)


def without_bounds(checks: Iterable[Check]) -> list[Check]:
    """The figures of something that stands beside what was promised."""
    return [msgspec.structs.replace(check, bound="", holds=None) for check in checks]


def all_hold(checks: Iterable[Check]) -> bool:
    """Whether no check failed."""
    return all(check.holds is not False for check in checks)


def checks_table(checks: Sequence[Check], *, title: str) -> Table:
    """The table for people."""
    table = Table(title=title, title_justify="left")
    table.add_column("item")
    table.add_column("what", overflow="fold")
    for name in ("value", "bound"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    table.add_column("note", overflow="fold", max_width=40)
    for check in checks:
        value = "?" if check.value is None else f"{check.value:.4g}"
        verdict = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("-")}[check.holds]
        table.add_row(check.item, check.name, f"{value} {check.unit}".strip(), check.bound, verdict, check.note)
    return table


def write_checks(path: Path, checks: Sequence[Check], *, facts: dict[str, object]) -> None:
    """Write {"facts": ..., "checks": [...]}. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {"facts": facts, "checks": checks}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
