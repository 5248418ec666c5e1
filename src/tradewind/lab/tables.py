"""Live tables for a terminal: what a gateway thinks of each cell, and why."""

import asyncio
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tradewind.config.schema import GatewayConfig
from tradewind.lab.watch import CellPicked, CellSeen, cells_of, gateway_status, pick_line
from tradewind.runtime.ask import AskFailed

STATE_STYLES = {"ready": "green", "loading": "yellow", "draining": "cyan", "faulted": "red", "terminated": "dim"}
BAR_WIDTH = 12
WIDE = 132  # columns of a terminal that takes all of a table
_TEXTS = frozenset({"site", "cell", "state", ""})
_LEFT_OUT = frozenset({"site", "weight", "", "failed"})
_LEFT_OUT_OF_PICKS = _LEFT_OUT | {"pressure", "speed", "slowness", "hits"}


async def watch_top(gateway: GatewayConfig, *, every_s: float) -> None:
    """Show a gateway's cells until cancelled."""
    with Live(Text(f"asking {gateway.id} at http://{gateway.admin}"), auto_refresh=False) as live:
        while True:
            try:
                status = await gateway_status(gateway)
                cells, picks = cells_of(status), pick_line(status)
                title = f"gateway {gateway.id}, {len(cells)} cells" + (f"; {picks}" if picks else "")
                live.update(cells_table(cells, title=title, width=live.console.width), refresh=True)
            except AskFailed as error:
                live.update(Text(str(error), style="red"), refresh=True)
            await asyncio.sleep(every_s)


def cells_table(
    seen: Iterable[CellSeen], *, title: str, served: Mapping[str, float] | None = None, width: int = WIDE
) -> Table:
    """One row for each cell, by site. `served`: share of the requests that each cell really got, 0..1.

    In fewer than WIDE columns what an operator asks first is shown whole, and the rest is left out.
    """
    cells = sorted(seen, key=lambda cell: (cell.site, cell.cell_id))
    picks = any(cell.picked is not None for cell in cells)
    rows = [_row(cell, served, picks=picks) for cell in cells]
    left_out = (_LEFT_OUT_OF_PICKS if picks else _LEFT_OUT) if width < WIDE else frozenset()
    table = Table(title=title, title_justify="left", expand=False)
    shown = [name for name in (rows[0] if rows else ("cell", "state", "why")) if name not in left_out]
    for name in shown:
        if name == "why":
            table.add_column(name, overflow="fold", max_width=44)
        else:
            table.add_column(name, justify="left" if name in _TEXTS else "right")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _row(cell: CellSeen, served: Mapping[str, float] | None, *, picks: bool) -> dict[str, str | Text]:
    """Heading -> text, in order."""
    row: dict[str, str | Text] = {
        "site": cell.site,
        "cell": cell.cell_id,
        "state": Text("blind" if cell.silent else cell.state, style=STATE_STYLES.get(cell.state, "")),
        "weight": "-" if cell.weight is None else str(cell.weight),
        "share": _ratio(cell.share),
    }
    if served is not None:
        row["served"] = _ratio(served.get(cell.cell_id, 0.0))
    row |= {
        "": Text("#" * round(cell.share * 3 * BAR_WIDTH), style="blue"),
        "pressure": _number(cell.pressure, "{:.2f}"),
        "speed": _number(cell.speed, "{:.2f}"),
        "rtt": _number(cell.rtt_s, "{:.1f} ms", scale=1e3),
        "failed": str(cell.failed),
    }
    if picks:
        row |= dict(zip(("in flight", "waiting", "slowness", "hits"), _picked(cell.picked), strict=True))
    row["why"] = " ".join(filter(None, (cell.why or cell.reason, *cell.flags, *_pick_flags(cell.picked))))
    return row


def _picked(picked: CellPicked | None) -> tuple[str, str, str, str]:
    """In flight, prompt tokens that wait, slowness, prefix hits served of those predicted."""
    if picked is None:
        return "?", "?", "?", "?"
    predicted = picked.predicted_hit_tokens
    hits = _ratio(picked.served_hit_tokens / predicted) if predicted else "-"
    return str(picked.in_flight), str(picked.waiting_tokens), _number(picked.slowness, "{:.2f}"), hits


def _pick_flags(picked: CellPicked | None) -> tuple[str, ...]:
    """What keeps the picker from the cell."""
    if picked is None:
        return ()
    cooling = () if picked.cooling_s is None else (f"cooling {picked.cooling_s:.1f} s",)
    return (
        cooling if picked.learned_limit_tokens is None else (*cooling, f"refuses {picked.learned_limit_tokens} tokens")
    )


def _ratio(value: float) -> str:
    return f"{100 * value:.1f} %"


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return "?" if value is None else form.format(value * scale)


def console_is_live(console: Console) -> bool:
    """Whether a table that redraws itself makes sense here; a log file gets lines instead."""
    return console.is_terminal and not console.is_dumb_terminal
