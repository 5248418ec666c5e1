"""Push -> ACK: from publishing a snapshot with new weights to Envoy's acceptance of every type.

Two kinds of push: shares within the tolerance of the endpoint set, as nearly every tick's (routes alone), and shares
beyond it (endpoint set and routes), as when a cell falls ill or joins.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.envoy import free_port, running_envoy
from tradewind.gateway.ads import AdsServer
from tradewind.gateway.envoy import EnvoyConfig
from tradewind.lab.checks import Check, at_most, reported
from tradewind.lab.instant.usage import cpu_s, p50, p95
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import XdsSettings

WeightOf = Callable[[int, int], int]  # of a cell's index and a push's number
BOUND_MS = {9: 1.0, 1_000: 15.0}


async def bench(quick: bool) -> list[Check]:
    rows = []
    for cells, bound_ms in BOUND_MS.items():
        for weight_of, what in ((small_change, "shares"), (large_change, "shares and endpoints")):
            times_ms, envoy_ms = await measure(cells, pushes=50 if quick else 200, weight_of=weight_of)
            name = f"push -> ACK of {what}, {cells:,} cells"
            rows.append(at_most(f"{name}, p95", p95(times_ms), bound_ms, unit="ms"))
            rows.append(reported(f"{name}, p50", p50(times_ms), unit="ms"))
            rows.append(reported(f"{name}, CPU of Envoy", envoy_ms, unit="ms"))
    return rows


async def measure(cells: int, *, pushes: int, weight_of: WeightOf) -> tuple[list[float], float]:
    """Milliseconds of each push, the build not included, and of Envoy's CPU for one."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = AdsServer(str(directory / "ads.sock"))
        await server.start()
        builder = SnapshotBuilder(XdsSettings(listen=f"127.0.0.1:{free_port()}"))
        server.publish(builder.build(routing(cells, 0, weight_of)))
        config = EnvoyConfig(
            node_id="bench", site="east", admin=f"127.0.0.1:{free_port()}", socket_path=str(directory / "ads.sock")
        )
        with running_envoy(config, directory) as envoy:
            await server.wait_acked(timeout_s=20)
            times_ms, before_s = [], cpu_s(envoy.process.pid)
            for number in range(pushes):
                snapshot = builder.build(routing(cells, number + 1, weight_of))
                started_s = time.perf_counter()
                server.publish(snapshot)
                await server.wait_acked(timeout_s=20)
                times_ms.append((time.perf_counter() - started_s) * 1e3)
                await asyncio.sleep(0.02)  # pushes of a quiet second, not of a storm
            envoy_ms = (cpu_s(envoy.process.pid) - before_s) * 1e3 / pushes
        await server.stop()
    return times_ms, envoy_ms


def small_change(index: int, number: int) -> int:
    """Weights of healthy cells that move by up to a tenth, as telemetry does."""
    return 121 + (index * 7 + number * 5) % 14


def large_change(index: int, number: int) -> int:
    """Weights anywhere in their range."""
    return 1 + (index * 7 + number * 13) % 134


def routing(cells: int, number: int, weight_of: WeightOf) -> Routing:
    """One pool with weights that differ with every number."""
    endpoints = tuple(
        Endpoint(
            cell_id=f"cell-{index:05}",
            site=f"site-{index % 3}",
            address=f"127.0.{1 + index // 20_000}.1:{20_000 + index % 20_000}",
            weight=weight_of(index, number),
        )
        for index in range(cells)
    )
    return Routing(pools=(PoolRouting(model="demo-70b", endpoints=endpoints),))
