"""`routing: pick` when cells fail and when the picker does: retries elsewhere, and what the ladder costs (issue 3)."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, poisson_plan, success_ratio, under_load
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.workload import arrivals, lengths
from tradewind.workload.plan import Plan, assemble
from tradewind.workload.streams import stream

RETRIED_WITHIN_S = 0.050  # beside the round trip to the cell that failed
PICK_TIMEOUT_S = 0.050
CLOCK_S = 0.005  # of a timer in Envoy and of the client's own clock
WORD_S = 0.5  # until a fault is in force


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """How long, and how much; `rtt_s` is the path to `cell`."""

    cell: str = "east-1"
    rtt_s: float = 0.008
    rate_per_s: float = 20.0
    for_s: float = 20.0
    seed: int = 1


async def refusals_are_retried(grid: LiveGrid, options: RetryOptions) -> list[Check]:
    """A cell answers 503 to everything: nobody notices, and the second attempt begins at once."""
    fault = await grid.inject("refuse", cell=options.cell, params={"share": 1.0, "status": 503})
    await asyncio.sleep(WORD_S)
    plan = poisson_plan(
        seed=options.seed, rate_per_s=options.rate_per_s, for_s=options.for_s, prefix=f"retried-{options.seed}"
    )
    loaded = await under_load(grid, plan, _nothing)
    await grid.clear(fault)
    return retry_checks(loaded.records, rtt_s=options.rtt_s)


def retry_checks(records: Sequence[Record], *, rtt_s: float) -> list[Check]:
    """From arrival to the start of the attempt that was served, over requests that needed more than one."""
    retried = [record.reroute_s for record in records if (record.attempts or 1) > 1 and record.reroute_s is not None]
    note = f"{len(retried)} of {len(records)} requests met the cell"
    return [
        at_least("503 from a cell: success", success_ratio(records), 1.0, note=failures_text(records)),
        at_most(
            "503 from a cell: retried elsewhere, p99", percentile(retried, 0.99), RETRIED_WITHIN_S + rtt_s, unit="s",
            note=note,
        ),
    ]  # fmt: skip


async def _nothing(_observer: Observer) -> None:
    """No script beside the load."""


# --- the picker ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions:
    """`phase_s` each: healthy, killed, back, frozen, back, slow."""

    rate_per_s: float = 100.0
    phase_s: float = 10.0
    stop_s: float = 0.15  # of each `every_s` the slow picker does nothing
    every_s: float = 0.3
    prompt_tokens: int = 64
    output_tokens: int = 4
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A span of the load and what was wrong with the picker meanwhile."""

    name: str
    begin_s: float
    end_s: float


async def ladder(grid: LiveGrid, options: LadderOptions) -> list[Check]:
    """Kill, freeze and slow the gateway's process under load; a picker that is gone costs its timeout at most."""
    plan = _small_requests(options)
    loaded = await under_load(grid, plan, lambda observer: _break_picker(grid, observer, options), every_s=1.0)
    return ladder_checks(loaded.records, loaded.result)


def _small_requests(options: LadderOptions) -> Plan:
    times = arrivals.poisson(
        stream(options.seed, "arrivals"), rate_per_s=options.rate_per_s, for_s=6.5 * options.phase_s
    )
    drawn = lengths.fixed(prompt_tokens=options.prompt_tokens, output_tokens=options.output_tokens)
    return assemble(times, drawn, prefix=f"ladder-{options.seed}")


async def _break_picker(grid: LiveGrid, observer: Observer, options: LadderOptions) -> list[Phase]:
    phases: list[Phase] = []

    async def phase(name: str) -> None:
        begin_s = observer.now_s
        await asyncio.sleep(options.phase_s)
        phases.append(Phase(name=name, begin_s=begin_s, end_s=observer.now_s))

    await phase("healthy")
    await grid.crash(grid.worker)
    await phase("killed")
    await grid.start(grid.worker)
    await phase("started again")
    pid = grid.pid(grid.worker)
    assert pid is not None, "the gateway runs"
    os.kill(pid, signal.SIGSTOP)
    await phase("frozen")
    os.kill(pid, signal.SIGCONT)
    await phase("thawed")
    slowing = asyncio.create_task(_slow_down(pid, options))
    try:
        await phase("slow")
    finally:
        slowing.cancel()
        with suppress(asyncio.CancelledError):
            await slowing
        os.kill(pid, signal.SIGCONT)
    return phases


async def _slow_down(pid: int, options: LadderOptions) -> None:
    while True:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(options.stop_s)
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(options.every_s - options.stop_s)


def ladder_checks(records: Sequence[Record], phases: Sequence[Phase]) -> list[Check]:
    """Errors, and what each phase adds to the time to the response's headers, against the healthy one."""
    healthy_s = _headers_s(records, phases[0])
    base = percentile(healthy_s, 0.5)
    checks = [
        at_most("picker killed, frozen, slow: errors", sum(not r.ok for r in records), 0, unit="requests",
                note=failures_text(records) or f"{len(records)} requests"),
        reported("picker healthy: headers after p50", base, unit="s", note=f"{len(healthy_s)} requests"),
    ]  # fmt: skip
    for phase in phases[1:]:
        values = _headers_s(records, phase)
        middle, tail = percentile(values, 0.5), percentile(values, 0.99)
        added = None if middle is None or base is None else middle - base
        note = f"p99 {1e3 * tail:.0f} ms of {len(values)} requests" if tail is not None else ""
        checks.append(
            at_most(f"picker {phase.name}: delay added at p50", added, PICK_TIMEOUT_S + CLOCK_S, unit="s", note=note)
        )
    return checks


def _headers_s(records: Sequence[Record], phase: Phase) -> list[float]:
    return [
        record.headers_s - record.sent_s
        for record in records
        if record.ok
        and record.headers_s is not None
        and record.sent_s is not None
        and phase.begin_s <= record.sent_s < phase.end_s
    ]
