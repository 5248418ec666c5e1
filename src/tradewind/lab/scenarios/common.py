"""What the scenarios share: a load with a script beside it, and the way from records to verdicts."""

from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tradewind.lab.client import LoadClient, Target, unique_text
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer, Sample
from tradewind.measure.record import Record
from tradewind.workload import arrivals, lengths
from tradewind.workload.plan import Plan, Planned, assemble
from tradewind.workload.streams import stream

Result = TypeVar("Result")
MISMATCH, BASELINE_MIXED = "mismatch", "baseline_mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[Result]):
    """A load that has ended: what clients saw, what the grid said, what the script returned."""

    records: Sequence[Record]
    observer: Observer
    result: Result


async def under_load(
    grid: LiveGrid,
    plan: Plan,
    script: Callable[[Observer], Awaitable[Result]],
    *,
    target: Target | None = None,
    every_s: float = 0.2,
    text_of: Callable[[Planned], str] = unique_text,
) -> Loaded[Result]:
    """Run a plan against the grid with a script beside it, which tells the time by the observer's clock."""
    client = LoadClient(target or grid.target(), text_of=text_of)
    observer = Observer(grid, every_s=every_s)
    async with observer.watching(), TaskGroup() as tasks:
        load = tasks.create_task(client.run(plan, start_s=observer.start_s))
        scripted = tasks.create_task(_awaited(script(observer)))
    return Loaded(records=await grid.join(load.result()), observer=observer, result=scripted.result())


async def _awaited(work: Awaitable[Result]) -> Result:
    return await work


def poisson_plan(*, seed: int, rate_per_s: float, for_s: float, mix: str = BASELINE_MIXED, prefix: str = "") -> Plan:
    """A seeded plan of Poisson arrivals over one of the mixes of workload.lengths."""
    drawn = stream(seed, "lengths")
    chosen = lengths.mismatch(drawn) if mix == MISMATCH else lengths.baseline_mixed(drawn)
    times = arrivals.poisson(stream(seed, "arrivals"), rate_per_s=rate_per_s, for_s=for_s)
    return assemble(times, chosen, prefix=prefix or f"{mix}-{seed}")


def success_ratio(records: Sequence[Record]) -> float | None:
    """Served in full over all; None without requests."""
    return sum(1 for record in records if record.ok) / len(records) if records else None


def failures_text(records: Iterable[Record], *, limit: int = 3) -> str:
    """The first failures, for a note."""
    failed = [record for record in records if not record.ok]
    shown = [
        f"{record.request_id} {record.failure.value} {record.status or ''} on {record.cell}: {record.detail[:60]}"
        for record in failed[:limit]
    ]
    return "; ".join(shown) + (f"; {len(failed) - limit} more" if len(failed) > limit else "")


def request_share(records: Sequence[Record], cell: str, begin_s: float, end_s: float) -> float | None:
    """Share of the requests sent within a span that the cell answered; None when there were none."""
    sent = [r for r in records if r.sent_s is not None and begin_s <= r.sent_s < end_s and r.cell is not None]
    return sum(1 for record in sent if record.cell == cell) / len(sent) if sent else None


def weight_share(samples: Iterable[Sample], cell: str) -> float | None:
    """Mean share of the weight that a cell had over some samples; None without samples."""
    shares = [sample.cells[cell].share for sample in samples if cell in sample.cells]
    return sum(shares) / len(shares) if shares else None


def moved_ratio(before: float | None, after: float | None) -> float | None:
    """|after / before - 1|; None when either is unknown or nothing was there before."""
    return abs(after / before - 1) if before and after is not None else None


def in_no_pool(cells: Mapping[str, object], cell: str) -> bool:
    """Whether Envoy was told to send a cell nothing."""
    seen = cells.get(cell)
    return seen is not None and getattr(seen, "weight", None) is None
