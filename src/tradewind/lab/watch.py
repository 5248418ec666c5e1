"""What a running grid says of itself, read over its admin APIs."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.runtime.ask import AskFailed, ask_async

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPicked:
    """One cell in a gateway's books where it picks. None = unknown or not so."""

    in_flight: int
    waiting_tokens: int
    slowness: float | None
    cooling_s: float | None
    learned_limit_tokens: int | None
    predicted_hit_tokens: int
    served_hit_tokens: int


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
    picked: CellPicked | None = None  # None: the gateway goes by weights


async def gateway_status(gateway: GatewayConfig) -> Json:
    """The status document of a gateway. Raises AskFailed."""
    return _object(await ask_async(gateway.admin, "/v1/status"))


async def gateway_cells(gateway: GatewayConfig) -> list[CellSeen]:
    """The cells as a gateway sees them, sorted by id. Raises AskFailed."""
    return cells_of(await gateway_status(gateway))


def control_live(status: Json) -> bool:
    """Whether any control speaks to this gateway."""
    return bool(status.get("control_live"))


def gate_mode(status: Json) -> str:
    """The first-token gate in force: wasm, native or none; "" where the gateway does not say."""
    gate = status.get("gate")
    return str(gate.get("mode", "")) if isinstance(gate, Mapping) else ""


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
    books = {str(row.get("cell_id")): row for row in _objects(_object(status.get("pick")).get("cells"))}
    seen = (_cell(row, total, books.get(str(row.get("cell_id")))) for row in rows)
    return sorted(seen, key=lambda cell: cell.cell_id)


def pick_line(status: Json) -> str:
    """What a gateway's picker does, in one line; "" when it has none."""
    pick = _object(status.get("pick"))
    if not pick:
        return ""
    refusals = _object(pick.get("refusals"))
    refused = ", ".join(f"{_integer(count)} {kind}" for kind, count in sorted(refusals.items()))
    cost_us = _number(pick.get("decision_us"))
    parts = [
        f"policy {pick.get('policy')}",
        f"{_integer(pick.get('picks'))} picks" + (f" at {cost_us:.0f} us" if cost_us is not None else ""),
        f"{_integer(pick.get('in_flight'))} in flight",
        f"{_integer(pick.get('left'))} left to the weights",
        f"{_integer(pick.get('refused'))} refused",
    ]
    rare = ("moved", "late", "expired", "faults", "policy_failures")
    parts += [f"{_integer(pick.get(name))} {name.replace('_', ' ')}" for name in rare if pick.get(name)]
    return ", ".join(parts) + (f" ({refused})" if refused else "")


def _picked(row: Json) -> CellPicked:
    limit = row.get("learned_limit_tokens")
    return CellPicked(
        in_flight=_integer(row.get("in_flight")),
        waiting_tokens=_integer(row.get("waiting_tokens")),
        slowness=_number(row.get("slowness_ratio")),
        cooling_s=_number(row.get("cooling_s")),
        learned_limit_tokens=limit if isinstance(limit, int) else None,
        predicted_hit_tokens=_integer(row.get("predicted_hit_tokens")),
        served_hit_tokens=_integer(row.get("served_hit_tokens")),
    )


def _cell(row: Json, total: int, books: Json | None) -> CellSeen:
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
        picked=None if books is None else _picked(books),
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
