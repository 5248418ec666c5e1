"""First tokens that are late since an engine hangs now and then: what a time limit and a hedge win and cost.

Both are off by default (issue 4). The arms run one after the other on the same requests and the same hangs.
"""

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tradewind.config.schema import FirstTokenConfig, GridConfig, HedgeConfig
from tradewind.lab.checks import Check, at_least, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, poisson_plan, success_ratio, under_load
from tradewind.measure.record import Record
from tradewind.measure.summary import percentiles
from tradewind.runtime.ask import AskFailed

HEADER, VALUE = "x-class", "live"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOptions:
    """Times in seconds. A hang is health-green: the engine answers its checks and generates nothing."""

    rate_per_s: float = 15.0
    for_s: float = 60.0
    hang_every_s: float = 4.0
    hang_s: float = 1.5
    seed: int = 1


ARMS: dict[str, FirstTokenConfig] = {
    "off": FirstTokenConfig(),
    "time limit": FirstTokenConfig(timeout_factor=5.0, timeout_min_s=0.5),
    "hedge": FirstTokenConfig(hedge=HedgeConfig(header=HEADER, value=VALUE, after_s=0.5)),
}


def late_grid(state_dir: str, first_token: FirstTokenConfig, *, cells: int = 4, seed: int = 1) -> GridConfig:
    """Fast cells in one site, whose first tokens come within a quarter of a second when nothing hangs."""
    grid = emulated_grid(
        sites=("east",), cells_per_site=cells, profile="fast", policy="cost", exporters=False, wan_ms=((2.0, 0.2),),
        seed=seed, state_dir=state_dir, name="late",
    )  # fmt: skip
    return replace(grid, gateways=[replace(gateway, first_token=first_token) for gateway in grid.gateways])


async def late(grid: LiveGrid, options: LateOptions, *, name: str) -> list[Check]:
    """One arm: the figures of its clients, and how many attempts they cost."""
    plan = poisson_plan(
        seed=options.seed, rate_per_s=options.rate_per_s, for_s=options.for_s, prefix=f"late-{name[:4].strip()}"
    )
    target = dataclasses.replace(grid.target(), headers=((HEADER, VALUE),))
    loaded = await under_load(grid, plan, lambda observer: _hang(grid, observer, options), target=target, every_s=1.0)
    return late_checks(loaded.records, name=name, hangs=loaded.result)


async def _hang(grid: LiveGrid, observer: Observer, options: LateOptions) -> int:
    """Let one engine after another hang; how many hangs there were."""
    rng, hangs = random.Random(f"hangs-{options.seed}"), 0
    for turn in range(1, int(options.for_s / options.hang_every_s)):
        await asyncio.sleep(max(0.0, turn * options.hang_every_s - observer.now_s))
        try:
            await grid.inject("hang", cell=rng.choice(grid.cell_ids), for_s=options.hang_s)
        except AskFailed:
            continue  # it hangs already
        hangs += 1
    return hangs


def late_checks(records: Sequence[Record], *, name: str, hangs: int) -> list[Check]:
    """Everybody is served in every arm; the rest is compared by people."""
    ttft = percentiles([record for record in records if record.ok], lambda record: record.ttft_s)
    attempts = [record.attempts for record in records if record.attempts is not None]
    again = sum(attempts) / len(attempts) - 1 if attempts else None
    note = f"{sum(1 for n in attempts if n > 1)} of {len(attempts)} requests, {hangs} hangs"
    label = f"late first tokens, {name}"
    return [
        at_least(f"{label}: success", success_ratio(records), 1.0, note=failures_text(records)),
        reported(f"{label}: TTFT p50", ttft.p50, unit="s"),
        reported(f"{label}: TTFT p95", ttft.p95, unit="s"),
        reported(f"{label}: TTFT p99", ttft.p99, unit="s"),
        reported(f"{label}: further attempts per request", again, note=note),
    ]
