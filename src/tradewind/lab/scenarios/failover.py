"""kill -9 of an engine under load: who is lost, how soon the cell is out, how soon others serve (issue 2, item 3)."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, in_no_pool, poisson_plan, success_ratio, under_load
from tradewind.measure.record import Failure, Record
from tradewind.measure.statistics import percentile
from tradewind.measure.summary import percentiles

OUT_WITHIN_S = 0.5
REROUTE_P99_S = 1.247  # published_systems.md A, table 4
AFTERMATH_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When an engine died and when Envoy was told to leave it out, on the load's clock."""

    at_s: float
    out_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """How long, and how much."""

    cell: str = "south-1"
    rate_per_s: float = 10.0
    for_s: float = 60.0
    kill_at_s: float = 20.0
    seed: int = 1
    reroute_p99_s: float = REROUTE_P99_S


async def failover(grid: LiveGrid, options: FailoverOptions, *, name: str = "weights") -> list[Check]:
    """Kill the cell's engine in the middle of a load."""
    plan = poisson_plan(
        seed=options.seed, rate_per_s=options.rate_per_s, for_s=options.for_s, prefix=f"failover-{name}-{options.seed}"
    )

    async def script(observer: Observer) -> Kill:
        await asyncio.sleep(options.kill_at_s - observer.now_s)
        return await kill_engine(grid, observer, options.cell)

    loaded = await under_load(grid, plan, script)
    kill = loaded.result
    await grid.start_engine(options.cell)
    lost = lost_with_engine(loaded.records, options.cell, kill.at_s)
    return _checks(loaded.records, lost, kill, name=name, reroute_p99_s=options.reroute_p99_s)


async def kill_engine(grid: LiveGrid, observer: Observer, cell: str) -> Kill:
    """SIGKILL the engine's process and watch the gateway until the cell is in no pool."""
    pid = await grid.engine_pid(cell)
    assert pid is not None, f"{cell} has no engine to kill"
    os.kill(pid, signal.SIGKILL)
    at_s = observer.now_s
    deadline_s = time.monotonic() + 5.0
    while time.monotonic() < deadline_s:
        if in_no_pool(await grid.cells(), cell):
            return Kill(at_s=at_s, out_s=observer.now_s)
        await asyncio.sleep(0.01)
    return Kill(at_s=at_s, out_s=None)


def lost_with_engine(records: Sequence[Record], cell: str, at_s: float) -> list[Record]:
    """Failed requests that were in flight on the engine when it died: it had them, and they had not ended."""
    return [
        record
        for record in records
        if not record.ok
        and record.cell == cell
        and record.sent_s is not None
        and record.sent_s <= at_s
        and (record.end_s is None or record.end_s >= at_s)
    ]


def _checks(
    records: Sequence[Record], lost: Sequence[Record], kill: Kill, *, name: str, reroute_p99_s: float
) -> list[Check]:
    gone = {record.request_id for record in lost}
    others = [record for record in records if record.request_id not in gone]
    after = [r for r in records if r.sent_s is not None and kill.at_s <= r.sent_s < kill.at_s + AFTERMATH_S]
    rerouted = [record for record in records if record.ok and (record.attempts or 1) > 1]
    reroutes = [record.reroute_s for record in rerouted or after if record.reroute_s is not None]
    ttft = percentiles([record for record in after if record.ok], lambda record: record.ttft_s)
    cut = {kind: sum(1 for r in lost if r.failure is kind) for kind in (Failure.HEADERS_ONLY, Failure.BYTES_DELIVERED)}
    out_s = None if kill.out_s is None else kill.out_s - kill.at_s
    whom = f"{len(rerouted)} rerouted requests" if rerouted else f"{len(after)} requests after the kill, none rerouted"
    return [
        at_least(f"{name}: success of all not in flight on it", success_ratio(others), 1.0, note=failures_text(others)),
        reported(f"{name}: lost after headers only", cut[Failure.HEADERS_ONLY], unit="requests"),
        reported(f"{name}: lost after bytes were delivered", cut[Failure.BYTES_DELIVERED], unit="requests"),
        at_most(f"{name}: out of the set after", out_s, OUT_WITHIN_S, unit="s"),
        at_most(f"{name}: reroute p99", percentile(reroutes, 0.99), reroute_p99_s, unit="s", note=whom),
        reported(f"{name}: TTFT p99 in the 10 s after the kill", ttft.p99, unit="s", note=f"{ttft.count} requests"),
    ]
