"""What control costs under many agents: CPU, memory, and the size of a heartbeat on the wire."""

import asyncio

from tests.support.control_load import measure
from tradewind.lab.checks import Check, reported


def bench(quick: bool) -> list[Check]:
    rows = []
    for cells in (100, 1_000):
        line = asyncio.run(measure(cells=cells, streams=10, hz=2.0, gateways=1, seconds=5.0 if quick else 15.0))
        what = f"control, {cells:,} agents at 2 Hz, one gateway"
        rows.append(reported(f"{what}: CPU", line["cpu_ratio"] * 100, unit="% of a core"))
        rows.append(reported(f"{what}: memory", line["rss_bytes"] / 1e6, unit="MB"))
        size = line["beat_bytes"]
    rows.append(reported("heartbeat with all signals", size, unit="bytes"))
    return rows
