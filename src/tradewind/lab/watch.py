"""What a running grid says of itself, read over its admin APIs."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.runtime.ask import AskFailed, ask_async

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSeen:
    """One cell as one gateway sees it. None = unknown."""

    cell_id: str
    site: str
    state: str
    reason: str
    silent: bool
    draining: bool
    weight: int | None  # None: in no pool
    share: float  # of the gateway's weight
    pressure: float | None
    speed: float | None
    rtt_s: float | None
    jitter_s: float | None
    requests: int
    failed: int
    why: str  # of its weight
    flags: tuple[str, ...]
    signals: tuple[tuple[str, float | None], ...]


async def gateway_status(gateway: GatewayConfig) -> Json:
    """The status document of a gateway. Raises AskFailed."""
    return _object(await ask_async(gateway.admin, "/v1/status"))


async def gateway_cells(gateway: GatewayConfig) -> list[CellSeen]:
    """The cells as a gateway sees them, sorted by id. Raises AskFailed."""
    return cells_of(await gateway_status(gateway))


def control_live(status: Json) -> bool:
    """Whether any control speaks to this gateway."""
    return bool(status.get("control_live"))


async def gateway_events(gateway: GatewayConfig, *, after: int = 0) -> list[Json]:
    """Events of a gateway that are newer than `after`, oldest first. Raises AskFailed."""
    return _objects(_object(await ask_async(gateway.admin, f"/v1/events?after={after}&limit=1000")).get("events"))


async def control_grid(grid: GridConfig) -> Json:
    """The grid as the first control that answers sees it. Raises AskFailed."""
    return await _first_control(grid, "/v1/grid")


async def control_events(grid: GridConfig, *, after: int = 0) -> list[Json]:
    """Life-cycle changes. Raises AskFailed."""
    return _objects((await _first_control(grid, f"/v1/events?after={after}&limit=1000")).get("events"))


async def _first_control(grid: GridConfig, path: str) -> Json:
    failure = AskFailed("the grid file has no control")
    for control in grid.controls:
        try:
            return _object(await ask_async(control.admin, path))
        except AskFailed as error:
            failure = error
    raise failure


async def routable(grid: GridConfig) -> tuple[str, bool]:
    """("" or which cells a gateway does not route to yet, whether each gateway routes to any)."""
    expected = {cell.id for cell in grid.cells}
    seen = await asyncio.gather(*(_routed_by(gateway) for gateway in grid.gateways))
    lines = []
    for gateway, (cells, problem) in zip(grid.gateways, seen, strict=True):
        missing = sorted(expected - cells)
        if problem or missing:
            routed = f"{len(cells & expected)} of {len(expected)} cells"
            lines.append(f"{gateway.id} routes to {routed}" + (f" ({problem})" if problem else ""))
    return "; ".join(lines), all(cells and not problem for cells, problem in seen)


async def _routed_by(gateway: GatewayConfig) -> tuple[set[str], str]:
    try:
        status = await gateway_status(gateway)
    except AskFailed:
        return set(), "it does not answer yet"
    problem = "" if status.get("ready") else "Envoy has no configuration yet"
    return {cell.cell_id for cell in cells_of(status) if cell.weight is not None}, problem


def cells_of(status: Json) -> list[CellSeen]:
    """The cell rows of a gateway's status document."""
    rows = _objects(status.get("cells"))
    total = sum(_integer(row.get("weight")) for row in rows)
    return sorted((_cell(row, total) for row in rows), key=lambda cell: cell.cell_id)


def _cell(row: Json, total: int) -> CellSeen:
    terms = _object(row.get("terms"))
    weight = row.get("weight")
    flags = terms.get("flags")
    return CellSeen(
        cell_id=str(row.get("cell_id", "")),
        site=str(row.get("site", "")),
        state=str(row.get("state", "")),
        reason=str(row.get("reason") or ""),
        silent=bool(row.get("silent")),
        draining=bool(row.get("draining")),
        weight=weight if isinstance(weight, int) else None,
        share=_integer(weight) / total if total else 0.0,
        pressure=_number(terms.get("pressure")),
        speed=_number(terms.get("speed")),
        rtt_s=_number(row.get("rtt_s")),
        jitter_s=_number(row.get("jitter_s")),
        requests=_integer(row.get("requests")),
        failed=_integer(row.get("failed")),
        why=str(terms.get("reason") or ""),
        flags=tuple(str(flag) for flag in flags) if isinstance(flags, list) else (),
        signals=_signals(terms.get("signals")),
    )


def _signals(pairs: object) -> tuple[tuple[str, float | None], ...]:
    if not isinstance(pairs, Sequence):
        return ()
    return tuple((str(pair[0]), _number(pair[1])) for pair in pairs if isinstance(pair, list) and len(pair) == 2)


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
