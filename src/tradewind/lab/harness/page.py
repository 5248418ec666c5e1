"""Runs of experiments as one HTML page that needs no other file and no network."""

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from plotly.offline import get_plotlyjs

from tradewind.lab.checks import Check
from tradewind.lab.harness.figure import Figure, drawn
from tradewind.lab.harness.pivot import Cell, Grid, grids, heading, with_unit
from tradewind.lab.harness.row import Published
from tradewind.lab.harness.runner import Report
from tradewind.lab.harness.text import footer

STYLE = """
body { font: 15px/1.55 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin: 3rem 0 .3rem; border-top: 2px solid #0b6e99; padding-top: 1rem; }
table { border-collapse: collapse; margin: .6rem 0 1.2rem; font-size: 13.5px; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.n { text-align: right; white-space: nowrap; } th { position: sticky; top: 0; background: #fff; }
.no { color: #b00; font-weight: 600; } .yes { color: #2a7a3f; font-weight: 600; }
small { color: #666; } h4 { margin: 1rem 0 .2rem; }
p.note, figcaption, .how { color: #555; font-size: 13.5px; } code { background: #f3f3f3; padding: .1rem .3rem; }
details > summary { cursor: pointer; color: #0b6e99; margin: .6rem 0; } figure { margin: 1rem 0; }
nav a { margin-right: 1rem; white-space: nowrap; } .warn { background: #fff3cd; padding: .5rem .8rem; }
"""
_MANY_ROWS = 24  # beyond, a table is folded


def write_page(path: Path, reports: Sequence[Report], *, facts: Mapping[str, object]) -> None:
    """Write the page. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(reports, facts=facts), encoding="utf-8")


def page(reports: Sequence[Report], *, facts: Mapping[str, object]) -> str:
    """The page's text."""
    links = "".join(f'<a href="#{item.experiment.name}">{item.experiment.name}</a>' for item in reports)
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    quick = any(item.quick for item in reports)
    warning = '<p class="warn">Quick runs: they show that it works, and are no figures to quote.</p>' if quick else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tradewind laboratory</title>
<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body>
<h1>Tradewind laboratory</h1>{warning}
<p>Every figure of ours was measured by the command beside it. Engines are emulated or simulated by one step-time law;
figures show routing, not a GPU. Intervals are 95 %, by bootstrap over seeds. Figures of others are their authors'.</p>
{_summary(reports)}<nav>{links}</nav>
{"".join(_section(item) for item in reports)}
<p class="how">{html.escape(told)}</p></body></html>
"""


def _summary(reports: Sequence[Report]) -> str:
    """What was demanded of all experiments, before any detail."""
    rows = [
        [f'<a href="#{item.experiment.name}">{item.experiment.name}</a>', *_claim_cells(claim)]
        for item in reports
        for claim in item.claims
    ]
    return _table(["experiment", "what must be true", "value", "bound", "holds", "note"], rows) if rows else ""


def _section(report: Report) -> str:
    experiment = report.experiment
    parts = [
        f'<h2 id="{experiment.name}">{experiment.name}: {html.escape(experiment.title)}</h2>',
        f"<p>{html.escape(experiment.question)}</p>",
        *(_figure(figure) for figure in (experiment.figures(report.rows) if report.rows else ())),
        _claims(report.claims),
        _rows(report),
        _published_notes(experiment.published),
        f'<p class="note">{html.escape(experiment.notes)}</p>' if experiment.notes else "",
        "".join(_failed(failure.replay, failure.error) for failure in report.failures),
        f'<p class="how">{_footer(report)}</p>',
    ]
    return "\n".join(part for part in parts if part)


def _figure(figure: Figure) -> str:
    body = drawn(figure).to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False, "displayModeBar": False}
    )
    return f"<figure>{body}<figcaption>{html.escape(figure.caption)}</figcaption></figure>"


def _claims(claims: Sequence[Check]) -> str:
    if not claims:
        return ""
    return _table(["what must be true", "value", "bound", "holds", "note"], (_claim_cells(claim) for claim in claims))


def _claim_cells(claim: Check) -> list[str]:
    verdict = {True: '<span class="yes">yes</span>', False: '<span class="no">NO</span>', None: ""}[claim.holds]
    value = html.escape(with_unit(claim.value, claim.unit))
    return [html.escape(claim.name), value, html.escape(claim.bound), verdict, html.escape(claim.note)]


def _rows(report: Report) -> str:
    found = grids(report.rows, report.experiment.published)
    tables = "".join(f"<h4>{html.escape(heading(grid))}</h4>{_grid(grid)}" for grid in found)
    if len(report.rows) <= _MANY_ROWS:
        return tables
    return f"<details><summary>all {len(report.rows)} figures</summary>{tables}</details>"


def _grid(grid: Grid) -> str:
    heads = ["policy", *(html.escape(f"{metric}, {unit}" if unit else metric) for metric, unit in grid.heads)]
    rows = ([html.escape(policy), *map(_figures_of, cells)] for policy, cells in grid.lines)
    return _table(heads, rows, numbers=range(1, len(heads)))


def _figures_of(cell: Cell) -> str:
    first, *others = cell.lines or ("",)
    return html.escape(first) + "".join(f"<br><small>{html.escape(line)}</small>" for line in others)


def _published_notes(published: Sequence[Published]) -> str:
    """Sources of the published figures, and why some cannot be reproduced; each sentence once."""
    sources = dict.fromkeys(item.source for item in published)
    notes = dict.fromkeys(item.note for item in published if item.note)
    if not sources:
        return ""
    lines = [f"Published: {html.escape('; '.join(sources))}.", *(f"* {html.escape(note)}" for note in notes)]
    return "".join(f'<p class="note">{line}</p>' for line in lines)


def _failed(replay: str, error: str) -> str:
    return f'<p class="no">failed: <code>{html.escape(replay)}</code></p><pre>{html.escape(error)}</pre>'


def _footer(report: Report) -> str:
    before, _, command = footer(report).rpartition(": ")
    return f"{html.escape(before)}: <code>{html.escape(command)}</code>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: range = range(0)) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join(
        "<tr>" + "".join(_cell(cell, number=index in numbers) for index, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: str, *, number: bool) -> str:
    return f'<td class="n">{cell}</td>' if number else f"<td>{cell}</td>"
