"""Rows as people read them: a table for each profile, policies down, metrics across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.lab.harness.row import Published, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure of ours and the published one; None: there is none."""

    ours: Row | None
    published: Published | None

    @property
    def lines(self) -> tuple[str, ...]:
        """Value, interval, published figure: a line for each that there is."""
        ours, theirs = self.ours, self.published
        lines = [] if ours is None else [number(ours.value)]
        if ours is not None and ours.lo is not None and ours.hi is not None:
            lines.append(f"{number(ours.lo)} .. {number(ours.hi)}")
        if theirs is not None:
            lines.append(f"published {number(theirs.value)}{'*' if theirs.note else ''}")
        return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One profile. A head is (metric, unit)."""

    profile: str
    heads: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, tuple[Cell, ...]], ...]  # policy, one cell a head
    counts: tuple[int, ...]  # different n of its rows: seeds, or samples


def grids(rows: Sequence[Row], published: Sequence[Published]) -> list[Grid]:
    """All rows, in the order in which profiles, metrics and policies come."""
    theirs = {(item.profile, item.policy, item.metric): item for item in published}
    return [
        _grid(profile, [row for row in rows if row.profile == profile], theirs)
        for profile in dict.fromkeys(row.profile for row in rows)
    ]


def _grid(profile: str, rows: Sequence[Row], theirs: Mapping[tuple[str, str, str], Published]) -> Grid:
    ours = {(row.policy, row.metric): row for row in rows}
    heads = dict.fromkeys((row.metric, row.unit) for row in rows)
    lines = []
    for policy in dict.fromkeys(row.policy for row in rows):
        cells = []
        for metric, unit in heads:
            row = ours.get((policy, metric))
            mine = row if row is not None and row.unit == unit else None
            cells.append(Cell(ours=mine, published=theirs.get((profile, policy, metric)) if mine else None))
        lines.append((policy, tuple(cells)))
    counts = sorted({row.n for row in rows if row.n is not None})
    return Grid(profile=profile, heads=tuple(heads), lines=tuple(lines), counts=tuple(counts))


def number(value: float | None) -> str:
    """Four digits that count, no exponent where it can be helped; "?" for what could not be had."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def with_unit(value: float | None, unit: str) -> str:
    """A value that stands alone."""
    return f"{number(value)} {unit}".strip() if value is not None else "?"


def heading(grid: Grid) -> str:
    """The profile, and on how much its figures rest."""
    counts = f"n = {grid.counts[0]}" if len(grid.counts) == 1 else ""
    return f"{grid.profile} ({counts})" if counts else grid.profile
