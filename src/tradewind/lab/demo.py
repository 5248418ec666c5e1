"""The demo: nine emulated cells, real Envoy, a real trace, five faults; then again, round robin without the gate."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.live import Live

from tradewind.lab import watch
from tradewind.lab.checks import Check, all_hold
from tradewind.lab.client import LoadClient
from tradewind.lab.demo_checks import FaultRow, demo_checks, fault_rows
from tradewind.lab.demo_faults import DARK_SITE, KILL_BEGINS, KILLED, SMALL, SMALL_TOKENS, demo_faults
from tradewind.lab.demo_page import Trail, trail_of, write_page
from tradewind.lab.demo_why import Why, why_one_cell_won
from tradewind.lab.faults import run_schedule
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.lab.observe import Observer
from tradewind.lab.tables import cells_table, console_is_live
from tradewind.lab.up import Say, unless
from tradewind.measure.record import Record, write_records
from tradewind.measure.summary import Leak, Summary, leak, shares, summarise
from tradewind.runtime.supervise import signalled
from tradewind.workload.azure import replay, shipped_slice
from tradewind.workload.plan import Plan, with_burst

PICK, ROUND_ROBIN = "pick", "round-robin"
POLICY = "cost"
RATE_PER_S = 7.0
# Just before the kill, so that the engine that dies has requests without a token; short enough for every cell.
BURST_REQUESTS, BURST_TOKENS, BURST_OUTPUT, BURST_LEAD_S = 18, 800, 64, 0.3
SLO_TTFT_S = 1.5
LINE_EVERY_S = 5.0
LOG_WIDTH = 120
DRAW_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What `tradewind demo` was asked for."""

    duration_s: float = 90.0
    seed: int = 1
    baseline: bool = True
    keep: bool = False
    out: Path = Path("build/demo")
    rate_per_s: float = RATE_PER_S
    profile: str = "rtx-pro-6000"


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what happened, what was seen, what users saw."""

    name: str
    summary: Summary
    shares: dict[str, float]
    leak: Leak
    gate: str  # the first-token gate in force: wasm, native or none
    lost_before_token: int  # with the killed engine
    retried_from_killed: int  # and served elsewhere
    cut_after_tokens: int  # by the kill
    unexplained: list[str]  # failed, not refused as too long, and not such as a kill may end; see `gated`
    faults: list[FaultRow]
    trail: Trail
    why: Why | None  # why one request went where it went; None where nobody picks

    @property
    def gated(self) -> bool:
        """With a gate a kill may end only what had a token; without one, all that was in flight on the engine."""
        return self.gate not in ("", "none")

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.name}, gate: {self.gate}" if self.gated else f"{self.name}, no gate"


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the report shows."""

    holds: bool
    seed: int
    duration_s: float
    rate_per_s: float
    arms: list[Arm]
    checks: list[Check]
    report: str
    data: str


def run_demo(options: DemoOptions, *, live: bool, say: Say) -> DemoResult:
    """Run the demo and write its report. Raises StartFailed, OSError, and KeyboardInterrupt when stopped half-way."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_Demo(options, live=live, say=say).run())


class _Demo:
    def __init__(self, options: DemoOptions, *, live: bool, say: Say) -> None:
        self.options = options
        self.console = Console(stderr=not live)
        if not self.console.is_terminal:
            self.console = Console(stderr=not live, width=LOG_WIDTH)
        self.live = live
        self.say = say
        self.arms: list[Arm] = []

    async def run(self) -> DemoResult:
        """All arms, the report, and with --keep the grid until a signal."""
        names = [PICK, ROUND_ROBIN] if self.options.baseline else [PICK]
        async with signalled() as stop:
            for name in names[1:] if self.options.keep else names:
                await self._stoppable(stop, self._whole_arm(name))
            if not self.options.keep:
                return self._finish()
            async with self._grid(PICK) as grid:
                await self._stoppable(stop, self._arm(PICK, grid))
                result = self._finish()
                self.say(f"The grid stays up until Ctrl-C. Live page: http://{grid.grid.dashboard}")
                self.say(curl_line(grid.gateway.listen))
                await stop.wait()
        return result

    async def _stoppable(self, stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
        if not await unless(stop, work):
            raise KeyboardInterrupt

    @asynccontextmanager
    async def _grid(self, name: str) -> AsyncIterator[LiveGrid]:
        state_dir = (self.options.out / f"state-{name}").absolute()
        shutil.rmtree(state_dir, ignore_errors=True)  # what an earlier demo remembered would be evidence from elsewhere
        config = emulated_grid(
            state_dir=str(state_dir),
            baseline="" if name == PICK else name,
            policy=POLICY if name == PICK else "",
            gate="auto" if name == PICK else "none",
            profile=self.options.profile,
            seed=self.options.seed,
            dashboard=True,
            name=f"demo-{name}",
        )
        self.say(f"starting nine cells in three sites, routing: {name}{'' if name == PICK else ', no gate'}")
        async with LiveGrid(config, say=self.say) as grid:
            yield grid

    async def _whole_arm(self, name: str) -> None:
        async with self._grid(name) as grid:
            await self._arm(name, grid)

    async def _arm(self, name: str, grid: LiveGrid) -> None:
        options = self.options
        plan = demo_plan(options, prefix=f"{name}-{options.seed}")
        self.say(f"live page: http://{grid.grid.dashboard}; {len(plan)} requests in {options.duration_s:g} s")
        client = LoadClient(grid.target(model=MODEL))
        dark = [cell.id for cell in grid.grid.cells if cell.site == DARK_SITE]
        faults = demo_faults(options.duration_s, dark_cells=dark)
        observer = Observer(grid)
        async with observer.watching(), self._showing(name, client, observer) as tell, asyncio.TaskGroup() as tasks:
            load = tasks.create_task(client.run(plan, start_s=observer.start_s))
            schedule = tasks.create_task(run_schedule(faults, grid, observer, say=tell))
        records = await grid.join(load.result())
        write_records(options.out / f"records-{name}.ndjson", records)
        why = await why_one_cell_won(grid.gateway, records) if name == PICK else None
        gate = watch.gate_mode(await watch.gateway_status(grid.gateway))
        rows = fault_rows(schedule.result(), records, observer)
        self.arms.append(_judge(name, records, rows, observer, why=why, gate=gate))

    @asynccontextmanager
    async def _showing(self, name: str, client: LoadClient, observer: Observer) -> AsyncIterator[Say]:
        """A table that redraws itself on a terminal, lines elsewhere."""
        if self.live and console_is_live(self.console):
            with Live(console=self.console, auto_refresh=False, transient=True) as live:
                task = asyncio.create_task(_redraw(name, client, observer, live))
                try:
                    yield live.console.print
                finally:
                    task.cancel()
            return
        task = asyncio.create_task(_lines(name, client, observer, self.say))
        try:
            yield self.say
        finally:
            task.cancel()

    def _finish(self) -> DemoResult:
        options = self.options
        arms = sorted(self.arms, key=lambda arm: arm.name != PICK)
        ours = arms[0]
        checks = demo_checks(ours.faults, ours.unexplained, ours.leak, ours.summary, gated=ours.gated)
        result = DemoResult(
            holds=all_hold(checks),
            seed=options.seed,
            duration_s=options.duration_s,
            rate_per_s=options.rate_per_s,
            arms=arms,
            checks=checks,
            report=str(options.out / "report.html"),
            data=str(options.out / "report.json"),
        )
        options.out.mkdir(parents=True, exist_ok=True)
        Path(result.data).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        write_page(Path(result.report), result)
        if self.live:
            from tradewind.lab.demo_text import summary_tables

            for table in summary_tables(result):
                self.console.print(table)
        return result


def demo_plan(options: DemoOptions, *, prefix: str) -> Plan:
    """The trace slice from a row that the seed chooses, replayed at the demo's rate; and a burst before the kill."""
    rows = shipped_slice()
    start = (options.seed * 619) % len(rows)
    plan = replay(rows, rate_per_s=options.rate_per_s, for_s=options.duration_s, prefix=prefix, start=start)
    return with_burst(
        plan,
        requests=BURST_REQUESTS,
        at_s=max(0.0, KILL_BEGINS * options.duration_s - BURST_LEAD_S),
        prompt_tokens=BURST_TOKENS,
        output_tokens=BURST_OUTPUT,
    )


def curl_line(address: str) -> str:
    """A first request for a newcomer."""
    body = f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"Where does the wind blow?"}}],"max_tokens":32}}'
    return f"curl http://{address}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"


def _judge(
    name: str, records: Sequence[Record], faults: list[FaultRow], observer: Observer, *, why: Why | None, gate: str
) -> Arm:
    for_s = max((record.end_s or 0.0 for record in records), default=0.0)
    killed = next(row for row in faults if row.target == KILLED)
    small = next(row for row in faults if row.target == SMALL)
    excused = set(killed.cut if gate not in ("", "none") else [*killed.lost, *killed.cut])
    unexplained = [
        f"{record.request_id}: {record.failure.value} {record.status} on {record.cell} at {record.intended_s:.1f} s"
        for record in records
        if not record.ok and record.request_id not in excused and record.status != 400
    ]
    return Arm(
        name=name,
        summary=summarise(records, slo_ttft_s=SLO_TTFT_S, for_s=for_s),
        shares=shares(records),
        leak=small.leak or leak((), longer_than=SMALL_TOKENS),
        gate=gate,
        lost_before_token=len(killed.lost),
        retried_from_killed=killed.retried,
        cut_after_tokens=len(killed.cut),
        unexplained=unexplained,
        faults=faults,
        trail=trail_of(records, observer),
        why=why,
    )


async def _redraw(name: str, client: LoadClient, observer: Observer, live: Live) -> None:
    while True:
        title = f"{name}: {_progress(client, observer)}"
        seen, width = observer.latest().values(), live.console.width
        live.update(cells_table(seen, title=title, served=observer.served(), width=width), refresh=True)
        await asyncio.sleep(DRAW_EVERY_S)


async def _lines(name: str, client: LoadClient, observer: Observer, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        weights = " ".join(f"{cell_id}={cell.weight or '-'}" for cell_id, cell in sorted(observer.latest().items()))
        say(f"{name} {_progress(client, observer)}; weights {weights}")


def _progress(client: LoadClient, observer: Observer) -> str:
    done = client.records
    failed = sum(1 for record in done if not record.ok)
    recent = sorted(record.ttft_s for record in done[-50:] if record.ttft_s is not None)
    median = f", TTFT p50 {1e3 * recent[len(recent) // 2]:.0f} ms" if recent else ""
    return f"{observer.now_s:5.1f} s, {len(done)} done, {client.open} open, {failed} failed{median}"
