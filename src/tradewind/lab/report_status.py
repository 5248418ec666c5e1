"""`tradewind status`: cells by site with state and reason, gateways, and the processes of this machine."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table
from rich.text import Text

from tradewind.config.schema import GatewayConfig
from tradewind.lab.locate import running
from tradewind.lab.watch import pick_line
from tradewind.runtime.ask import AskFailed, ask

STATE_STYLES = {"ready": "green", "loading": "yellow", "draining": "cyan", "faulted": "red", "terminated": "dim"}
Json = dict[str, object]


def grid_status(file: Path | None, *, control: str) -> Json:
    """What the control at "ip:port" knows, and the processes of the file's state_dir.

    Where control does not answer, the gateway's view stands in and "problem" says so: routing goes on without control.
    Raises AskFailed when nobody answers, ConfigError.
    """
    grid = running(file) if file is not None else None
    seen: Json = {"control": f"http://{control}", "problem": ""}
    try:
        seen["grid"] = ask(control, "/v1/grid")
        gateways = ask(control, "/v1/gateways")
        seen["gateways"] = gateways.get("gateways", []) if isinstance(gateways, dict) else []
    except AskFailed as error:
        if grid is None or not grid.gateways:
            raise
        status = ask(grid.gateways[0].admin, "/v1/status")
        seen |= {"problem": f"{error}; this is the view of gateway {grid.gateways[0].id}"}
        seen |= _as_seen_by_gateway(status if isinstance(status, dict) else {})
    if grid is not None:
        seen["clients"] = [f"http://{gateway.listen}" for gateway in grid.gateways]
        seen["dashboard"] = f"http://{grid.dashboard}" if grid.dashboard else ""
        seen["processes"] = processes(Path(grid.state_dir))
        seen |= _from_gateways(grid.gateways)
    return seen


def _from_gateways(gateways: Sequence[GatewayConfig]) -> Json:
    """What the picker of each gateway does that has one, and which gate it has; of those that answer."""
    picks: list[Json] = []
    gates: list[Json] = []
    for gateway in gateways:
        with contextlib.suppress(AskFailed):  # the table of processes tells that it is down
            status = ask(gateway.admin, "/v1/status")
            if not isinstance(status, dict):
                continue
            if status.get("pick"):
                picks.append({"gateway_id": gateway.id, "line": pick_line(status), "pick": status["pick"]})
            if isinstance(status.get("gate"), dict):
                gates.append({"gateway_id": gateway.id, **status["gate"]})
    return {"picks": picks, "gates": gates}


def _as_seen_by_gateway(status: Json) -> Json:
    rows = status.get("cells")
    cells = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    weights = {row.get("cell_id"): row["weight"] for row in cells if row.get("weight") is not None}
    return {
        "grid": {"grid": status.get("grid"), "version": "of the gateway", "cells": cells},
        "gateways": [{"gateway_id": status.get("gateway_id"), "weights": weights}],
    }


def processes(state_dir: Path) -> list[Json]:
    """The supervisor's rows; `running` is checked now, the rest is as the supervisor last wrote it."""
    try:
        written = msgspec.json.decode((state_dir / "processes.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return []
    rows = written.get("processes", []) if isinstance(written, dict) else []
    return [{**row, "running": _alive(row.get("pid"))} for row in rows if isinstance(row, dict)]


def _alive(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def status_tables(seen: Json) -> list[Table | Text]:
    """The tables for people."""
    tables: list[Table | Text] = [Text(str(seen["problem"]), style="red")] if seen.get("problem") else []
    tables.append(_cells(seen))
    picks = seen.get("picks")
    rows = picks if isinstance(picks, list) else []
    tables.extend(Text(f"gateway {row['gateway_id']} picks: {row['line']}") for row in rows)
    gates = seen.get("gates")
    tables.extend(_gate(row) for row in (gates if isinstance(gates, list) else []))
    if seen.get("processes"):
        tables.append(_processes(seen))
    places = [*(seen.get("clients") or []), *filter(None, [seen.get("dashboard")])]  # type: ignore[misc]
    tables.append(Text(f"control {seen['control']}" + (f", clients and page: {', '.join(places)}" if places else "")))
    return tables


def _gate(row: Json) -> Text:
    """One line; red where a gate is wanted and missing."""
    if row.get("missing"):
        told = f"gateway {row['gateway_id']} has NO first-token gate: {row['why']}"
        return Text(told + "; streams that wait in an engine that dies are lost", style="red")
    return Text(f"gateway {row['gateway_id']} first-token gate: {row['mode']} ({row['why']})")


def _cells(seen: Json) -> Table:
    grid = seen["grid"] if isinstance(seen["grid"], dict) else {}
    table = Table(title=f"grid {grid.get('grid', '?')}, view {grid.get('version', '?')}", title_justify="left")
    for name in ("site", "cell", "state", "heard", "weight", "slowness", "prefill tokens/s", "models", "why"):
        table.add_column(name)
    rows = [row for row in grid.get("cells", []) if isinstance(row, dict)]
    for row in sorted(rows, key=lambda row: (str(row.get("site")), str(row.get("cell_id")))):
        state = str(row.get("state"))
        age = row.get("heartbeat_age_s")
        table.add_row(
            str(row.get("site")),
            str(row.get("cell_id")),
            Text(state, style=STATE_STYLES.get(state, "")),
            f"{age:.1f} s ago" if isinstance(age, float) else "?",
            _weights(seen, str(row.get("cell_id"))),
            _learned(seen, str(row.get("cell_id")), "slowness_ratio", "{:.2f}"),
            _learned(seen, str(row.get("cell_id")), "prefill_tokens_per_s", "{:.0f}"),
            ", ".join(row.get("models") or []),
            str(row.get("reason") or row.get("conflict") or ""),
        )
    return table


def _weights(seen: Json, cell_id: str) -> str:
    """The weight at each gateway, "-" where the cell is in no pool."""
    gateways = seen.get("gateways")
    weights = [gateway["weights"].get(cell_id, "-") for gateway in (gateways if isinstance(gateways, list) else [])]
    return " / ".join(map(str, weights))


def _learned(seen: Json, cell_id: str, name: str, form: str) -> str:
    """What the picker of each gateway goes by; "?" before a first token has taught it, "-" without a picker."""
    gateways = seen.get("gateways")
    found = [_path(gateway, cell_id) for gateway in (gateways if isinstance(gateways, list) else [])]
    return " / ".join(
        "-" if path.get(name) is None else form.format(path[name]) if path.get("first_tokens") else "?"
        for path in found
    )


def _path(gateway: Json, cell_id: str) -> Json:
    paths = gateway.get("paths")
    rows = [row for row in paths if isinstance(row, dict)] if isinstance(paths, list) else []
    return next((row for row in rows if row.get("cell_id") == cell_id), {})


def _processes(seen: Json) -> Table:
    table = Table(title="processes", title_justify="left")
    for name in ("process", "pid", "state", "restarts", "last exit", "log"):
        table.add_column(name)
    rows = seen["processes"]
    for row in rows if isinstance(rows, list) else []:
        state = "up" if row.get("running") and row.get("ready") else "starting" if row.get("running") else "down"
        cells = (row.get("name"), row.get("pid"), state, row.get("restarts"), row.get("last_exit"), row.get("log"))
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    return table
