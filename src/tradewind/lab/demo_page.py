"""The demo's report as one HTML file: figures, tables, and how to run it again."""

import html
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import plotly.graph_objects as go

from tradewind import __version__
from tradewind.lab.demo_why import why_lines, why_rows
from tradewind.lab.observe import Observer
from tradewind.measure.record import Record

if TYPE_CHECKING:
    from tradewind.lab.demo import Arm, DemoResult

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd;
text-align: left; } .no { color: #b00; font-weight: 600; } .yes { color: #2a7a3f; } h2 { margin-top: 2rem; }
code { background: #f3f3f3; padding: .1rem .3rem; } p.note { color: #555; }
"""
HEIGHT_PX = 380
GATE_NOTE = """An engine sends its headers while the request still waits, and after headers Envoy cannot retry. The
first-token gate holds them until the first token, so what waits in an engine that dies is served by another cell. A
stream that has begun is cut with its engine, gate or not."""


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """A run over time, thin enough for a page. All lists of a group have the same length."""

    sample_at_s: list[float]
    weight_shares: dict[str, list[float]]  # cell -> share of the gateway's weight
    request_at_s: list[float]
    request_ttft_s: list[float | None]
    request_cell: list[str]
    request_ok: list[bool]


def trail_of(records: Sequence[Record], observer: Observer) -> Trail:
    """What the figures need of a run."""
    cells = sorted({cell for sample in observer.samples for cell in sample.cells})
    ordered = sorted(records, key=lambda record: record.intended_s)
    return Trail(
        sample_at_s=[round(sample.at_s, 2) for sample in observer.samples],
        weight_shares={
            cell: [round(sample.cells[cell].share, 4) if cell in sample.cells else 0.0 for sample in observer.samples]
            for cell in cells
        },
        request_at_s=[round(record.intended_s, 3) for record in ordered],
        request_ttft_s=[None if record.ttft_s is None else round(record.ttft_s, 4) for record in ordered],
        request_cell=[record.cell or "" for record in ordered],
        request_ok=[record.ok for record in ordered],
    )


def write_page(path: Path, result: "DemoResult") -> None:
    """Write the report; it needs no other file and no network. Raises OSError."""
    from tradewind.lab.demo_text import user_rows

    first, *others = result.arms
    figures = [_weights_figure(first), _ttft_figure(result.arms), _shares_figure(result.arms)]
    parts = [figure.to_html(full_html=False, include_plotlyjs=index == 0) for index, figure in enumerate(figures)]
    users = _table(
        ["", *(arm.title for arm in result.arms)], ([name, *cells] for name, cells in user_rows(result.arms))
    )
    verdict = '<span class="yes">everything promised held</span>'
    if not result.holds:
        verdict = '<span class="no">something promised did not hold</span>'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tradewind demo</title>
<style>{STYLE}</style></head><body>
<h1>Tradewind demo: {verdict}</h1>
<p>Three sites of three emulated RTX PRO 6000 cells, WAN between them, one unmodified Envoy; streaming traffic replayed
from the Azure 2023 conversation trace at {result.rate_per_s:g} requests a second for {result.duration_s:g} s.
Just before its engine is killed a burst gives every cell requests that wait for their first token.
{"The same requests once more under round robin, without the first-token gate." if others else ""}</p>
<h2>What was injected, when it was seen, what users saw</h2>{_faults(result.arms)}
<h2>What users saw</h2>{users}
<p class="note">{GATE_NOTE}</p>
{_why(first)}
<h2>Weights over time ({html.escape(first.name)}; they serve what no pick reaches)</h2>{parts[0]}
<h2>Time to first token of every request</h2>{parts[1]}
<h2>Who answered</h2>{parts[2]}
<h2>What was promised</h2>{_checks(result)}
<p class="note">Run it again: <code>tradewind demo --seed {result.seed} --duration {result.duration_s:g}</code>.
Tradewind {__version__}, Python {platform.python_version()}, {html.escape(platform.platform())}. The engines are
emulated: figures show the routing, not a GPU.
Trace: Azure Public Dataset, CC-BY 4.0, Patel et al., Splitwise, ISCA 2024.</p>
</body></html>
""",
        encoding="utf-8",
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _faults(arms: "list[Arm]") -> str:
    heads = ["at", "fault", "target"]
    for arm in arms:
        heads += [f"{arm.title}: seen after", "by", "failed of sent", "TTFT p95"]
    rows = []
    for index, row in enumerate(arms[0].faults):
        cells = [f"{row.injected_s:.1f} s", row.name, row.target]
        for arm in arms:
            one = arm.faults[index]
            cells += ["never" if one.seen_s is None else f"{one.seen_s:.2f} s", one.seen_by]
            cells += [f"{one.failed} of {one.requests}"]
            cells += ["?" if one.ttft_p95_s is None else f"{1e3 * one.ttft_p95_s:.0f} ms"]
        rows.append(cells)
    return _table(heads, rows)


def _why(arm: "Arm") -> str:
    if arm.why is None:
        return ""
    heads, rows = why_rows(arm.why)
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in why_lines(arm.why))
    return f"<h2>Why one request went where it went (* won)</h2>{_table(heads, rows)}{lines}"


def _checks(result: "DemoResult") -> str:
    rows = []
    for check in result.checks:
        verdict = {True: "yes", False: "NO", None: ""}[check.holds]
        value = "?" if check.value is None else f"{check.value:.4g} {check.unit}".strip()
        rows.append([check.name, value, check.bound, verdict, check.note])
    return _table(["what", "value", "bound", "holds", "note"], rows)


def _weights_figure(arm: "Arm") -> go.Figure:
    figure = go.Figure()
    for cell, values in arm.trail.weight_shares.items():
        figure.add_scatter(x=arm.trail.sample_at_s, y=[100 * value for value in values], name=cell, mode="lines")
    for row in arm.faults:
        figure.add_vline(x=row.injected_s, line_dash="dot", line_color="#999")
        figure.add_annotation(x=row.injected_s, y=1.06, yref="paper", text=row.target, showarrow=False, xanchor="left")
    return _styled(figure, x="seconds", y="share of the weight, %")


def _ttft_figure(arms: "list[Arm]") -> go.Figure:
    figure = go.Figure()
    for arm in arms:
        points = [
            (at_s, ttft_s, cell)
            for at_s, ttft_s, cell, ok in zip(
                arm.trail.request_at_s,
                arm.trail.request_ttft_s,
                arm.trail.request_cell,
                arm.trail.request_ok,
                strict=True,
            )
            if ok and ttft_s is not None
        ]
        figure.add_scatter(
            x=[at_s for at_s, _ttft_s, _cell in points],
            y=[ttft_s for _at_s, ttft_s, _cell in points],
            text=[cell for _at_s, _ttft_s, cell in points],
            name=arm.title,
            mode="markers",
            marker={"size": 5, "opacity": 0.7},
        )
    for row in arms[0].faults:
        figure.add_vline(x=row.injected_s, line_dash="dot", line_color="#999")
    return _styled(figure, x="sent at, seconds", y="TTFT, seconds (log)", log=True)


def _shares_figure(arms: "list[Arm]") -> go.Figure:
    figure = go.Figure()
    for arm in arms:
        figure.add_bar(x=list(arm.shares), y=[100 * share for share in arm.shares.values()], name=arm.title)
    return _styled(figure, x="cell", y="share of requests, %")


def _styled(figure: go.Figure, *, x: str, y: str, log: bool = False) -> go.Figure:
    figure.update_layout(
        height=HEIGHT_PX,
        margin={"l": 60, "r": 20, "t": 40, "b": 45},
        template="plotly_white",
        xaxis_title=x,
        yaxis_title=y,
        yaxis_type="log" if log else "linear",
    )
    return figure
