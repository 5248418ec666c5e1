"""The live half: one policy on a grid of processes, and what its client saw."""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tradewind.config.schema import GridConfig
from tradewind.lab.client import LoadClient
from tradewind.lab.experiments.validate_grid.course import CAPTURE, live_grid, trace_of
from tradewind.lab.experiments.validate_grid.machine import Moment, busy_ratio, now
from tradewind.lab.experiments.validate_grid.sent import LiveRun, Machine, sent_of
from tradewind.lab.facts import machine_facts
from tradewind.lab.grid import LiveGrid
from tradewind.measure.record import Record
from tradewind.measure.statistics import percentile
from tradewind.workload.mooncake import Trace
from tradewind.workload.texts import Texts

_WATCHED_S = 2.0  # how long others are watched before the grid begins
_PREFIX = "v"


def live_run(policy: str, *, seed: int, for_s: float, capture: Path | None = None) -> LiveRun:
    """Start the grid, send the trace, end the grid; `capture`: where the picker's tape is put. Raises StartFailed."""
    trace = trace_of(seed, for_s=for_s)
    quiet = now()
    time.sleep(_WATCHED_S)
    before = now()
    with tempfile.TemporaryDirectory(prefix="tw-validate-") as folder:
        grid = live_grid(policy, seed=seed, state_dir=folder)
        records, begun, ended = asyncio.run(_under_load(grid, trace))
        if capture is not None:
            capture.write_bytes((Path(folder) / f"gateway-{grid.gateways[0].id}" / CAPTURE).read_bytes())
    late_ms = [1e3 * (record.sent_s - record.intended_s) for record in records if record.sent_s is not None]
    return LiveRun(
        policy=policy,
        seed=seed,
        for_s=for_s,
        commit=str(machine_facts()["commit"]),
        asked=len(records),
        failures=dict(Counter(record.failure.value for record in records if not record.ok)),
        machine=Machine(
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            cores=os.cpu_count() or 1,
            busy_before_ratio=busy_ratio(quiet, before),
            busy_ratio=busy_ratio(begun, ended),
            load_before=before.load,
            load_after=ended.load,
            late_p50_ms=percentile(late_ms, 0.5),
            late_p95_ms=percentile(late_ms, 0.95),
        ),
        sent=sent_of(records, trace, prefix=_PREFIX),
    )


async def _under_load(config: GridConfig, trace: Trace) -> tuple[Sequence[Record], Moment, Moment]:
    texts = Texts(trace, prefix=_PREFIX)
    async with LiveGrid(config) as grid:
        begun = now()
        records = await LoadClient(grid.target(), text_of=texts.text_of).run(texts.plan())
        ended = now()
        return await grid.join(records), begun, ended
