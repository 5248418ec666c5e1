"""The tuner for people: lines of status and a table of history."""

import time
from collections.abc import Mapping, Sequence

from rich.table import Table

from tradewind.cli.tuner_orders import Json, TunerSeen, state, weights


def status_lines(seen: Sequence[TunerSeen], followed: Sequence[Json]) -> list[str]:
    """Each control's tuner, then what each gateway follows."""
    out = []
    for item in seen:
        if item.tuner is None:
            out.append(item.problem)
            continue
        out.append(f"{item.control.name}: {item.tuner.get('kind')}: {state(item.tuner)}")
        out.append(
            f"  order {item.tuner.get('driver')}, generation {item.tuner.get('generation')}; {_heard(item.tuner)}"
        )
        out.append(f"  start {weights(item.tuner.get('start'))}; {_box(item.tuner.get('box'))}")
        happened = item.tuner.get("events")
        if isinstance(happened, Mapping) and happened:
            counts = ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in happened.items())
            out.append(f"  since control's start: {counts}")
    for gateway in followed:
        order = gateway.get("order")
        if isinstance(order, dict):
            told = f"{weights(order.get('weights'))} by {order.get('driver')}, generation {order.get('generation')}"
        else:
            told = str(gateway.get("problem") or "no order: its policy's own weights")
        out.append(f"gateway {gateway.get('id')}: {told}")
    return out


def _heard(tuner: Json) -> str:
    age_s = tuner.get("sample_age_s")
    newest = f", the newest {age_s:.0f} s ago" if isinstance(age_s, float) else ""
    return f"{tuner.get('samples')} requests heard{newest}"


def _box(box: object) -> str:
    if not isinstance(box, dict):
        return "no box"
    rtt, queue = (f"{low:g}..{high:g}" for low, high in (box["rtt"], box["queue"]))
    ratio = f", rtt at most {box['most_ratio']:g} x queue" if box["most_ratio"] < 1e6 else ""
    return f"box rtt {rtt}, queue {queue}{ratio}"


def history_table(found: Json) -> Table:
    """One line per event, oldest first."""
    rows = found.get("events")
    table = Table(title=None, box=None, pad_edge=False)
    for name in ("when", "what", "weights after it", "why"):
        table.add_column(name, overflow="fold")
    for row in rows if isinstance(rows, list) else []:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["at_unix_s"]))
        child = f" (child {weights(row['child'])})" if row["child"] else ""
        table.add_row(when, row["what"].replace("_", " "), weights(row["weights"]) + child, row["reason"])
    if not table.row_count:
        table.add_row("", "", "", "nothing happened yet")
    return table
