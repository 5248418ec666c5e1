"""The tuner's history as one HTML page: weights over time with what happened, and the lines with their reasons."""

import html
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tradewind.lab.harness.figure import COLOURS, HEIGHT_PX, WIDTH_PX
from tradewind.lab.harness.page import STYLE

Row = Mapping[str, object]
MARKS = {
    "proposed": "circle-open",
    "accepted": "triangle-up",
    "rejected": "x-thin-open",
    "rolled_back": "triangle-down",
    "voided": "square-open",
    "regime": "diamond-open",
    "frozen": "star",
    "thawed": "star-open",
    "reset": "hexagon",
    "set": "cross",
}


def write_history(path: Path, history: Mapping[str, object]) -> None:
    """Write the page of what `GET /v1/tuner/history` answered. Raises OSError."""
    rows = history.get("events")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(history_page(rows if isinstance(rows, list) else []), encoding="utf-8")


def history_page(rows: Sequence[Row]) -> str:
    """The page's text; needs no other file and no network."""
    body = (
        trajectory(rows).to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        if rows
        else "<p>Nothing happened yet.</p>"
    )
    lines = "".join(_line(row) for row in rows)
    heads = "".join(f"<th>{name}</th>" for name in ("when", "what", "rtt", "queue", "why", "figures"))
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tradewind tuner</title>
<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>
<h1>The tuner's weights</h1><figure>{body}</figure>
<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></body></html>
"""


def trajectory(rows: Sequence[Row]) -> go.Figure:
    """Both weights as steps, with one mark per event; 1 is the physical rate."""
    shown = go.Figure()
    times = [_when(row) for row in rows]
    for index, name in enumerate(("rtt", "queue")):
        values = [_weight(row, "weights", name) for row in rows]
        colour = COLOURS[index]
        shown.add_scatter(x=times, y=values, name=name, mode="lines", line={"color": colour, "shape": "hv"})
        for what, mark in MARKS.items():
            places = [place for place, row in enumerate(rows) if row["what"] == what]
            if places:
                shown.add_scatter(
                    x=[times[place] for place in places],
                    y=[_weight(rows[place], "child", name) or values[place] for place in places],
                    text=[str(rows[place]["reason"]) for place in places],
                    name=what.replace("_", " "),
                    legendgroup=what,
                    showlegend=index == 0,
                    mode="markers",
                    marker={"symbol": mark, "size": 9, "color": colour},
                    hovertemplate="%{text}<extra>" + name + " %{y:.3g}</extra>",
                )
    shown.update_layout(
        height=HEIGHT_PX,
        width=WIDTH_PX,
        template="plotly_white",
        margin={"l": 65, "r": 20, "t": 25, "b": 50},
        yaxis={"title": "weight (1 = physics)", "type": "log"},
    )
    return shown


def _weight(row: Row, of: str, name: str) -> float | None:
    weights = row.get(of)
    value = weights.get(name) if isinstance(weights, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _when(row: Row) -> str:
    at = row["at_unix_s"]
    assert isinstance(at, int | float), "as control writes it"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _line(row: Row) -> str:
    figures = row.get("figures")
    told = ", ".join(f"{name} {value:.4g}" for name, value in figures.items()) if isinstance(figures, Mapping) else ""
    rtt, queue = (_weight(row, "weights", name) or 0.0 for name in ("rtt", "queue"))
    cells = (_when(row), str(row["what"]), f"{rtt:.4g}", f"{queue:.4g}", str(row["reason"]), told)
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
