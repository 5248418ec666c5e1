"""Push -> ACK: from publishing a snapshot with new weights to Envoy's acceptance of every type."""

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.usage import p50, p95
from tests.support.envoy import free_port, running_envoy
from tradewind.gateway.ads import AdsServer
from tradewind.gateway.envoy import EnvoyConfig
from tradewind.lab.checks import Check, at_most, reported
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.xds.builder import SnapshotBuilder
from tradewind.xds.settings import XdsSettings

BOUND_MS = {9: 1.0, 1_000: 15.0}


async def bench(quick: bool) -> list[Check]:
    rows = []
    for cells, bound_ms in BOUND_MS.items():
        times_ms = await measure(cells, pushes=50 if quick else 200)
        rows.append(at_most(f"push -> ACK, {cells:,} cells, p95", p95(times_ms), bound_ms, unit="ms"))
        rows.append(reported(f"push -> ACK, {cells:,} cells, p50", p50(times_ms), unit="ms"))
    return rows


async def measure(cells: int, *, pushes: int) -> list[float]:
    """Milliseconds of each push, the build not included; both EDS and RDS change with every push."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        server = AdsServer(str(directory / "ads.sock"))
        await server.start()
        builder = SnapshotBuilder(XdsSettings(listen=f"127.0.0.1:{free_port()}"))
        server.publish(builder.build(routing(cells, 0)))
        config = EnvoyConfig(
            node_id="bench", site="east", admin=f"127.0.0.1:{free_port()}", socket_path=str(directory / "ads.sock")
        )
        with running_envoy(config, directory):
            await server.wait_acked(timeout_s=20)
            times_ms = []
            for number in range(pushes):
                snapshot = builder.build(routing(cells, number + 1))
                started_s = time.perf_counter()
                server.publish(snapshot)
                await server.wait_acked(timeout_s=20)
                times_ms.append((time.perf_counter() - started_s) * 1e3)
                await asyncio.sleep(0.02)  # pushes of a quiet second, not of a storm
        await server.stop()
    return times_ms


def routing(cells: int, number: int) -> Routing:
    """Weights that differ with every number."""
    endpoints = tuple(
        Endpoint(
            cell_id=f"cell-{index:05}",
            site=f"site-{index % 3}",
            address=f"127.0.{1 + index // 20_000}.1:{20_000 + index % 20_000}",
            weight=1 + (index * 7 + number * 13) % 134,
        )
        for index in range(cells)
    )
    return Routing(pools=(PoolRouting(model="demo-70b", endpoints=endpoints),))
