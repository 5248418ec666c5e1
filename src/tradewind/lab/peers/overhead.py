"""What a router itself costs: engines that answer at once, one core for the router, one for everything else."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.config.schema import AgentConfig, CellConfig, ControlConfig, GatewayConfig, GridConfig, PickConfig
from tradewind.lab.grids import MODEL
from tradewind.lab.instant.closedloop import WARM_UP_S
from tradewind.lab.instant.engines import engines
from tradewind.lab.instant.usage import cpu_s, family, pin
from tradewind.lab.peers.specs import Peer
from tradewind.lab.peers.stand import Front, free_ports, front

ENGINES = 4
BODY_BYTES = 2_048
RATE_PER_S = 200.0
CONNECTIONS = 32
ROUTER_CORE, OTHER_CORE = 0, 1
ANY = "127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """How often, and how long each load lasts after its warm-up."""

    turns: int = 3
    open_s: float = 1.5
    closed_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One measurement: open loop past the router and through it, then a closed loop."""

    added_p50_ms: float
    added_p99_ms: float
    answers: int  # of the open loop
    failures: int  # of both
    max_rps: float
    cpu_us: float | None  # None without answers


async def overhead(peer: Peer, spans: Spans, *, folder: Path) -> dict[str, Any]:
    """Added latency at 200 RPS and the most requests per second with 32 connections: each from its best turn.

    What else runs on a machine makes a turn worse and none better.
    """
    ports = free_ports(ENGINES)
    with engines(ports) as pid:
        pin(pid, OTHER_CORE)
        async with front(peer, instant_grid(peer, ports, folder=folder), folder=folder) as up:
            pids = _pinned(up)
            port = int(up.target.address.rpartition(":")[2])
            turns = [await _turn(ports[0], port, pids, spans) for _ in range(spans.turns)]
    return best(turns)


def best(turns: Sequence[Turn]) -> dict[str, Any]:
    """The turn that added least, and the one that served most; failures are those of all."""
    quickest = min(turns, key=lambda turn: turn.added_p50_ms)
    fullest = max(turns, key=lambda turn: turn.max_rps)
    return {
        "turns": len(turns),
        "requests": sum(turn.answers for turn in turns),
        "added_p50_ms": quickest.added_p50_ms,
        "added_p99_ms": quickest.added_p99_ms,
        "max_rps": fullest.max_rps,
        "router_cpu_us": fullest.cpu_us,
        "failures": sum(turn.failures for turn in turns),
    }


async def _turn(direct: int, routed: int, pids: Sequence[int], spans: Spans) -> Turn:
    past = await _load("openloop", direct, RATE_PER_S, spans.open_s, BODY_BYTES)
    through = await _load("openloop", routed, RATE_PER_S, spans.open_s, BODY_BYTES)
    before_s = sum(cpu_s(one) for one in pids)
    closed = await _load("closedloop", routed, CONNECTIONS, spans.closed_s, BODY_BYTES, -1)
    used_s = sum(cpu_s(one) for one in pids) - before_s
    # The warm-up of the closed loop costs the router too, and its answers are not counted.
    share = spans.closed_s / (spans.closed_s + WARM_UP_S)
    answers = closed["answers"]
    return Turn(
        added_p50_ms=through["p50_ms"] - past["p50_ms"],
        added_p99_ms=through["p99_ms"] - past["p99_ms"],
        answers=int(through["answers"]),
        failures=int(through["failures"] + closed["refused"] + closed["lost"]),
        max_rps=answers / closed["seconds"],
        cpu_us=1e6 * used_s * share / answers if answers else None,
    )


def instant_grid(peer: Peer, ports: Sequence[int], *, folder: Path) -> GridConfig:
    """Cells without delay or telemetry to speak of, in one site."""
    picks = {"routing": "pick", "pick": PickConfig(policy="cost")} if peer.policy == "pick" else {}
    return GridConfig(
        grid="instant",
        state_dir=str(folder),
        sites=["here"],
        models=[MODEL],
        controls=[ControlConfig(site="here")],
        gateways=[GatewayConfig(site="here", **picks)],  # type: ignore[arg-type]
        agents=[AgentConfig()],
        cells=[
            CellConfig(id=f"here-{number}", site="here", url=f"http://127.0.0.1:{port}")
            for number, port in enumerate(ports)
        ],
        dashboard="",
    )


def _pinned(up: Front) -> list[int]:
    """Every process that routes. The first and its children get a core; what stands beside it shares the other."""
    first, *beside = up.router_pids
    routing = family(first)
    for pid in routing:
        pin(pid, ROUTER_CORE)
    for pid in beside:
        pin(pid, OTHER_CORE)
    return [*routing, *beside]


async def _load(client: str, *numbers: float) -> dict[str, float]:
    """One load from a process of its own; what it counted."""
    argv = [sys.executable, "-m", f"tradewind.lab.instant.{client}", *(f"{number:g}" for number in numbers)]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    pin(process.pid, OTHER_CORE)
    assert process.stdout is not None
    lines = (await process.stdout.read()).decode().split("\n")
    if await process.wait():
        raise RuntimeError(f"{' '.join(argv)} failed")
    found: dict[str, float] = json.loads(lines[1])
    return found
