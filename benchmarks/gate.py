"""What the first-token gate costs: two gateways side by side, one with it, one without, taking turns in one run.

As benchmarks.router: Envoys with one worker on the first core, everything else on the second. A streamed answer is a
chunk every two milliseconds, each of which Envoy reads for itself; a JSON answer is not held. Memory is what Envoy has
allocated while streams wait for their first token; their bodies are kept for a retry with the gate and without.
"""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.stand import CONNECTIONS, Stand, stand, turn
from tests.support.envoy import RunningEnvoy
from tradewind.config.schema import GateConfig
from tradewind.lab.checks import Check, reported
from tradewind.lab.instant.closedloop import request
from tradewind.lab.instant.usage import p50
from tradewind.xds.settings import LISTENER_NAME

BARE, GATED = "without", "with"
SHORT, LONG = 16, 116  # chunks
KINDS: Mapping[str, int | None] = {"JSON answer": None, f"{SHORT} chunks": SHORT, f"{LONG} chunks": LONG}
REFERENCE = "elsewhere: 15 us a request and less than 1 us a chunk for wasm, +-1 us for native"
STREAMS = 16  # at once
WAITING, WAITING_BYTES = 200, 100_000
ACTIVE = f"http.{LISTENER_NAME}.downstream_rq_active"
SETTLE_S, PATIENCE_S = 0.5, 20.0

Costs = Mapping[tuple[str, str], Sequence[float]]  # (kind, arm) -> Envoy's CPU microseconds per request, by round


def bench(quick: bool) -> list[Check]:
    rounds, seconds = (2, 2.0) if quick else (6, 3.0)
    costs: dict[tuple[str, str], list[float]] = {(kind, arm): [] for kind in KINDS for arm in (BARE, GATED)}
    with stand(gate=GateConfig(mode="none")) as bare, stand(gate=GateConfig(mode="auto")) as gated:
        assert (bare.gate, gated.gate) in {("none", "wasm"), ("none", "native")}, "no gate to measure"
        for _ in range(rounds):
            for kind, chunks in KINDS.items():
                for arm, here in ((BARE, bare), (GATED, gated)):
                    costs[kind, arm].append(envoy_us(here, seconds, chunks))
        memory = {arm: waiting_bytes(here) for arm, here in ((BARE, bare), (GATED, gated))}
    return [*cost_rows(costs, mode=gated.gate), *memory_rows(memory)]


def envoy_us(here: Stand, seconds: float, chunks: int | None) -> float:
    """Envoy's CPU microseconds per request, of one turn."""
    connections = CONNECTIONS if chunks is None else STREAMS
    pid = here.envoy.process.pid
    return turn(here.port, seconds, pid, None, connections=connections, chunks=chunks).envoy_us


def cost_rows(costs: Costs, *, mode: str) -> list[Check]:
    """Ratios are those of neighbouring turns, so that a machine whose speed changes bears on both alike."""
    rows = []
    for kind in KINDS:
        pairs = list(zip(costs[kind, BARE], costs[kind, GATED], strict=True))
        bare_us, gated_us = p50([bare for bare, _ in pairs]), p50([gated for _, gated in pairs])
        note = f"{gated_us:.1f} us with the gate ({mode}), {bare_us:.1f} without"
        ratio = p50([gated / bare for bare, gated in pairs])
        rows.append(reported(f"gate, {kind}: Envoy CPU per request over that without", ratio, note=note))
        added_us = p50([gated - bare for bare, gated in pairs])
        rows.append(reported(f"gate, {kind}: Envoy CPU added per request", added_us, unit="us", note=REFERENCE))
    per_chunk_us = {arm: p50(chunk_costs(costs, arm)) for arm in (BARE, GATED)}
    added = [gated - bare for bare, gated in zip(chunk_costs(costs, BARE), chunk_costs(costs, GATED), strict=True)]
    note = f"{per_chunk_us[GATED]:.2f} us with the gate, {per_chunk_us[BARE]:.2f} without"
    return [*rows, reported("gate: Envoy CPU added per chunk after the first ones", p50(added), unit="us", note=note)]


def chunk_costs(costs: Costs, arm: str) -> list[float]:
    """Of one more chunk, by round: from a short and a long stream."""
    short, long = (costs[f"{chunks} chunks", arm] for chunks in (SHORT, LONG))
    return [(more - less) / (LONG - SHORT) for less, more in zip(short, long, strict=True)]


def memory_rows(memory: Mapping[str, float]) -> list[Check]:
    """What one waiting stream takes in Envoy."""
    name = f"gate: Envoy memory of a waiting stream with a body of {WAITING_BYTES // 1_000} KB"
    note = f"{memory[BARE] / 1e3:.1f} KB without; {WAITING} streams"
    return [
        reported(name, memory[GATED] / 1e3, unit="KB", note=note),
        reported(f"{name}, over that without", memory[GATED] / memory[BARE]),
    ]


def waiting_bytes(here: Stand) -> float:
    """Bytes that Envoy allocates for each stream that waits; the first batch fills its pools and is not counted."""
    for _ in range(2):
        until(lambda: active(here.envoy) == 0)
        before = allocated(here.envoy)
        with contextlib.ExitStack() as stack:
            for _ in range(WAITING):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE_S))
                client.sendall(request(WAITING_BYTES, chunks=0))
            until(lambda: active(here.envoy) == WAITING)
            time.sleep(SETTLE_S)  # the last bodies are on their way to the engines
            during = allocated(here.envoy)
    return (during - before) / WAITING


def active(envoy: RunningEnvoy) -> int:
    """Requests of clients that Envoy has."""
    return sum(envoy.stats(f"^{ACTIVE}$").values())


def allocated(envoy: RunningEnvoy) -> int:
    return int(json.loads(envoy.get("/memory"))["allocated"])


def until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "Envoy does not get there"
        time.sleep(0.05)
