"""kill -9 of an engine under load: who is lost, how soon the cell is out, how soon others serve."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.lab import watch
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, in_no_pool, poisson_plan, success_ratio, under_load
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.measure.summary import lost_with_cell, percentiles, retried_from
from tradewind.workload.plan import Plan, with_burst

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
    """How long, and how much. A burst shortly before the kill sees to it that requests wait in the engine that dies."""

    cell: str = "south-1"
    rate_per_s: float = 10.0
    for_s: float = 60.0
    kill_at_s: float = 20.0
    burst_requests: int = 0  # in the whole grid
    burst_tokens: int = 1_000  # of each prompt
    burst_lead_s: float = 0.3
    seed: int = 1
    reroute_p99_s: float = REROUTE_P99_S


async def failover(grid: LiveGrid, options: FailoverOptions, *, name: str = "weights") -> list[Check]:
    """Kill the cell's engine in the middle of a load."""
    gate = watch.gate_mode(await watch.gateway_status(grid.gateway))

    async def script(observer: Observer) -> Kill:
        await asyncio.sleep(options.kill_at_s - observer.now_s)
        return await kill_engine(grid, observer, options.cell)

    prefix = f"failover-{name}-{options.seed}".replace(", ", "-").replace(" ", "-")  # part of request ids
    loaded = await under_load(grid, failover_plan(options, prefix=prefix), script)
    await grid.start_engine(options.cell)
    return failover_checks(loaded.records, loaded.result, options, name=name, gate=gate)


def failover_plan(options: FailoverOptions, *, prefix: str) -> Plan:
    """The steady load, and the burst before the kill."""
    plan = poisson_plan(seed=options.seed, rate_per_s=options.rate_per_s, for_s=options.for_s, prefix=prefix)
    at_s = options.kill_at_s - options.burst_lead_s
    return with_burst(plan, requests=options.burst_requests, at_s=at_s, prompt_tokens=options.burst_tokens)


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


def failover_checks(
    records: Sequence[Record], kill: Kill, options: FailoverOptions, *, name: str, gate: str
) -> list[Check]:
    """`gate`: the mode in force. With one, only a stream that had its first token may end with the engine."""
    gated = gate not in ("", "none")
    lost, cut = lost_with_cell(records, options.cell, kill.at_s)
    excused = {record.request_id for record in (cut if gated else [*lost, *cut])}
    others = [record for record in records if record.request_id not in excused]
    after = [r for r in records if r.sent_s is not None and kill.at_s <= r.sent_s < kill.at_s + AFTERMATH_S]
    ttft = percentiles([record for record in after if record.ok], lambda record: record.ttft_s)
    waiting = [r for r in retried_from(records, options.cell) if (r.sent_s or 0.0) <= kill.at_s]
    out_s = None if kill.out_s is None else kill.out_s - kill.at_s
    whose = "all that had no token of it" if gated else "all not in flight on it"
    unserved = f"{name}: lost before a token"
    note = f"gate: {gate or 'unknown'}; {len(waiting)} retried that it had when it died; {failures_text(lost)}".strip(
        "; "
    )
    return [
        at_least(f"{name}: success of {whose}", success_ratio(others), 1.0, note=failures_text(others)),
        at_most(unserved, len(lost), 0, unit="requests", note=note)
        if gated
        else reported(unserved, len(lost), unit="requests", note=note),
        reported(f"{name}: cut after tokens", len(cut), unit="requests"),
        at_most(f"{name}: out of the set after", out_s, OUT_WITHIN_S, unit="s"),
        _reroute(records, after, kill, options, name=name),
        reported(f"{name}: TTFT p99 in the 10 s after the kill", ttft.p99, unit="s", note=f"{ttft.count} requests"),
    ]


def _reroute(
    records: Sequence[Record], after: Sequence[Record], kill: Kill, options: FailoverOptions, *, name: str
) -> Check:
    """From the kill, or from the arrival after it, to the start of the attempt that is served."""
    rerouted = [record for record in retried_from(records, options.cell) if record.ok]
    whom = f"{len(rerouted)} rerouted requests" if rerouted else f"{len(after)} requests after the kill, none rerouted"
    took = [
        max(0.0, record.attempt_s - max(record.sent_s, kill.at_s))
        for record in rerouted or after
        if record.ok and record.attempt_s is not None and record.sent_s is not None
    ]
    return at_most(f"{name}: reroute p99", percentile(took, 0.99), options.reroute_p99_s, unit="s", note=whom)
