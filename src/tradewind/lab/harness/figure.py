"""Figures of experiments: what to draw, and plotly's drawing of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from tradewind.lab.harness.row import Row

HEIGHT_PX, WIDTH_PX = 420, 860
COLOURS = ("#0b6e99", "#d9822b", "#3d9970", "#b3446c", "#7b6fb0", "#6b7780", "#c9a227", "#1f3a5f", "#8c564b", "#17becf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, one colour of bars or points. All lists have the same length; None leaves a gap."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    lo: Sequence[float | None] | None = None  # ends of 95 % intervals
    hi: Sequence[float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure. `name` is unique in its experiment and fit for a file name."""

    name: str
    title: str
    kind: Literal["bars", "lines", "points"]
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    caption: str = ""


def series_of(name: str, x: Sequence[float | str], rows: Sequence[Row | None]) -> Series:
    """Values and intervals of rows, one at each x; None leaves a gap."""
    return Series(
        name=name,
        x=x,
        y=[None if row is None else row.value for row in rows],
        lo=[None if row is None else row.lo for row in rows],
        hi=[None if row is None else row.hi for row in rows],
    )


def drawn(figure: Figure) -> go.Figure:
    """As plotly draws it."""
    shown = go.Figure()
    for index, series in enumerate(figure.series):
        shape = {"x": list(series.x), "y": list(series.y), "name": series.name, "error_y": _bars(series)}
        colour = COLOURS[index % len(COLOURS)]
        if figure.kind == "bars":
            shown.add_bar(**shape, marker_color=colour)
        else:
            mode = "lines+markers" if figure.kind == "lines" else "markers"
            shown.add_scatter(**shape, mode=mode, line={"color": colour}, marker={"color": colour, "size": 7})
    shown.update_layout(
        title={"text": figure.title, "font": {"size": 15}},
        height=HEIGHT_PX,
        width=WIDTH_PX,
        margin={"l": 65, "r": 20, "t": 55, "b": 60},
        template="plotly_white",
        legend={"orientation": "v"},
        showlegend=len(figure.series) > 1,
        xaxis={"title": figure.x_label, "type": _axis(figure, log=figure.log_x)},
        yaxis={"title": figure.y_label, "type": "log" if figure.log_y else "linear"},
    )
    return shown


def _axis(figure: Figure, *, log: bool) -> str:
    names = any(isinstance(x, str) for series in figure.series for x in series.x)
    return "category" if names else "log" if log else "linear"


def _bars(series: Series) -> dict[str, object] | None:
    if series.lo is None or series.hi is None:
        return None
    above = [_gap(hi, y) for hi, y in zip(series.hi, series.y, strict=True)]
    below = [_gap(y, lo) for lo, y in zip(series.lo, series.y, strict=True)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 3}


def _gap(upper: float | None, lower: float | None) -> float:
    return 0.0 if upper is None or lower is None else max(0.0, upper - lower)
