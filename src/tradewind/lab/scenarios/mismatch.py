"""One of nine cells refuses long prompts, and nothing says so: how many leak before it gets none (issue 2, item 2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import MISMATCH, failures_text, poisson_plan, under_load
from tradewind.measure.record import Record
from tradewind.measure.summary import HTTP_BAD_REQUEST, Leak, leak
from tradewind.workload.plan import Planned

LIMIT_TOKENS = 1_024
SKIP_FIRST = 20
LEAK_BOUND = 0.0043  # published_systems.md A, table 6
BACK_WITHIN_S = 30.0
KNOWN_WITHIN_S = 30.0
BACK_SHARE = 0.8  # of what the other cells have on average: "has its share back"
TOO_MANY_TOKENS = 1_000_000  # more output than any cell allows: the client's own fault


@dataclass(frozen=True, slots=True, kw_only=True)
class MismatchOptions:
    """How long, and how much."""

    cell: str = "west-1"
    rate_per_s: float = 10.0
    for_s: float = 120.0
    seed: int = 1
    advertise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakRun:
    """One load with the fault in force from before its first request to after its last."""

    counted: Leak  # what the bound is about
    in_all: Leak
    others: Sequence[Record]  # failed for any other reason than a refusal


async def leak_of(grid: LiveGrid, options: MismatchOptions, *, name: str) -> LeakRun:
    """Load a grid whose cell refuses long prompts, then end the fault."""
    fault = await grid.inject(
        "max_model_len", cell=options.cell, params={"tokens": LIMIT_TOKENS, "advertise": options.advertise}
    )
    if options.advertise:
        await until_known(grid, options.cell, LIMIT_TOKENS)
    plan = poisson_plan(
        seed=options.seed,
        rate_per_s=options.rate_per_s,
        for_s=options.for_s,
        mix=MISMATCH,
        prefix=f"{name}-{options.seed}",
    )
    loaded = await under_load(grid, plan, _nothing)
    await grid.clear(fault)
    records = loaded.records
    return LeakRun(
        counted=leak(records, longer_than=LIMIT_TOKENS, skip_first=SKIP_FIRST),
        in_all=leak(records, longer_than=LIMIT_TOKENS),
        others=[record for record in records if not record.ok and record.status != HTTP_BAD_REQUEST],
    )


async def until_known(grid: LiveGrid, cell: str, tokens: int, *, within_s: float = KNOWN_WITHIN_S) -> None:
    """Wait until the agent has read the cell's new limit and control has heard of it. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while await grid.max_model_len(cell) != tokens:  # noqa: ASYNC110 (it is learned in other processes)
            await asyncio.sleep(0.1)


async def _nothing(_observer: Observer) -> None:
    """No script beside the load."""


def leak_checks(runs: Sequence[LeakRun], *, name: str, bound: float | None) -> list[Check]:
    """The leak over all runs together: one run is a matter of one or two requests. `bound` None: reported only."""
    leaked = sum(run.counted.leaked for run in runs)
    long = sum(run.counted.long_prompts for run in runs)
    ratio = leaked / long if long else None
    each = " ".join(f"{run.counted.leaked}/{run.counted.long_prompts}" for run in runs)
    in_all = " ".join(f"{run.in_all.leaked}/{run.in_all.long_prompts}" for run in runs)
    note = f"counted {each}; of all {in_all}"
    label = f"{name}: leak after the first {SKIP_FIRST} long prompts"
    if bound is None:
        return [reported(label, ratio, note=note)]
    others = [record for run in runs for record in run.others]
    why = failures_text(others)
    return [
        at_most(label, ratio, bound, note=note),
        at_most(f"{name}: other failures", len(others), 0, unit="requests", note=why),
    ]


async def share_returns(grid: LiveGrid, options: MismatchOptions) -> list[Check]:
    """After the fault's end, under load that brings long prompts: seconds until the cell has its share back."""
    plan = poisson_plan(
        seed=options.seed + 1,
        rate_per_s=options.rate_per_s,
        for_s=BACK_WITHIN_S + 10,
        mix=MISMATCH,
        prefix=f"back-{options.seed}",
    )

    loaded = await under_load(grid, plan, _nothing)
    fair = BACK_SHARE / len(grid.cell_ids)
    sample = loaded.observer.first_sample(0.0, lambda cells: cells[options.cell].share >= fair)
    took_s = None if sample is None else sample.at_s
    return [
        at_most(f"the cell has {100 * BACK_SHARE:.0f} % of a fair share back after", took_s, BACK_WITHIN_S, unit="s")
    ]


async def client_errors_move_nothing(
    grid: LiveGrid, *, rate_per_s: float = 5.0, for_s: float = 20.0, good_s: float = 5.0
) -> list[Check]:
    """The same 400 from every cell is the client's: no verdict, no cell out of the pool, no share moved.

    Before and after the errors there is only good traffic for `good_s`.
    """
    good = poisson_plan(seed=5, rate_per_s=rate_per_s, for_s=for_s, prefix="good")
    bad = tuple(
        Planned(
            request_id=f"bad-{i}",
            at_s=good_s + i / 20,
            prompt_tokens=500,
            output_tokens=TOO_MANY_TOKENS,
            kind="bad",
        )
        for i in range(min(100, int(20 * (for_s - 2 * good_s))))
    )

    loaded = await under_load(grid, (*good, *bad), _nothing)
    refused = [record for record in loaded.records if record.kind == "bad" and record.status == 400]
    verdicts = [event for event in loaded.observer.events if _convicts(event.name)]
    lowest = min(
        (cell.share * len(sample.cells) for sample in loaded.observer.samples for cell in sample.cells.values()),
        default=None,
    )
    return [
        at_least("the client's own 400s were answered as such", len(refused) / len(bad), 1.0),
        at_most("verdicts from the client's own 400s", len(verdicts), 0, note="; ".join(e.name for e in verdicts[:3])),
        at_least("lowest share of any cell meanwhile, of a fair one", lowest, 0.5),
    ]


def _convicts(name: str) -> bool:
    """Whether an event says that a cell was found guilty; the end of an earlier verdict does not."""
    return name.startswith(("verdict.", "capability.")) and not name.endswith((".cleared", ".enough"))
