"""Parts that die and come back under load: control, gateway, Envoy (issue 2, item 6); and a drain (item 7)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, poisson_plan, success_ratio, under_load
from tradewind.measure.record import Record

QUIET_AFTER_S = 0.25
WARM_S = 4.0


async def _outage(
    grid: LiveGrid,
    script: Callable[[Observer], Awaitable[None]],
    *,
    warm_s: float,
    for_s: float,
    rate_per_s: float,
    name: str,
) -> Sequence[Record]:
    """`script` beside a load that began `warm_s` before it and ends `for_s` after its begin."""
    plan = poisson_plan(seed=1, rate_per_s=rate_per_s, for_s=warm_s + for_s, prefix=name)

    async def after_warm_up(observer: Observer) -> None:
        await asyncio.sleep(warm_s)
        await script(observer)

    return (await under_load(grid, plan, after_warm_up)).records


async def control_restarts_empty(
    grid: LiveGrid, *, warm_s: float = WARM_S, down_s: float = 10.0, rate_per_s: float = 10.0, rest_s: float = 10.0
) -> list[Check]:
    """Control is killed and comes back without its memory."""

    async def script(_observer: Observer) -> None:
        await grid.crash(grid.control)
        await asyncio.sleep(down_s)
        grid.forget(grid.control)
        await grid.start(grid.control)

    records = await _outage(
        grid, script, warm_s=warm_s, for_s=down_s + rest_s, rate_per_s=rate_per_s, name="control-empty"
    )
    return [_all_served(f"control killed for {down_s:g} s, back empty", records)]


async def gateway_restarts_without_control(
    grid: LiveGrid, *, warm_s: float = WARM_S, down_s: float = 5.0, rate_per_s: float = 10.0, rest_s: float = 8.0
) -> list[Check]:
    """The gateway process is killed and restarted while no control lives; its Envoy goes on."""

    async def script(_observer: Observer) -> None:
        await grid.crash(grid.control)
        await grid.crash(grid.worker)
        await asyncio.sleep(down_s)
        await grid.start(grid.worker)

    records = await _outage(
        grid, script, warm_s=warm_s, for_s=down_s + rest_s, rate_per_s=rate_per_s, name="gateway-restart"
    )
    await grid.start(grid.control)
    return [_all_served("gateway killed and restarted with control dead", records)]


async def envoy_restarts_without_control(
    grid: LiveGrid, *, warm_s: float = WARM_S, rate_per_s: float = 10.0, rest_s: float = 8.0
) -> list[Check]:
    """Envoy is killed and restarted while no control lives: it gets its configuration from the gateway.

    Clients that arrive while no Envoy listens are refused: they are the restart itself, and counted apart.
    """
    span: list[float] = []

    async def script(observer: Observer) -> None:
        await grid.crash(grid.control)
        span.append(observer.now_s)
        await grid.crash(grid.envoy)
        await grid.start(grid.envoy)
        span.append(observer.now_s)

    records = await _outage(grid, script, warm_s=warm_s, for_s=rest_s, rate_per_s=rate_per_s, name="envoy-restart")
    await grid.start(grid.control)
    down_s, up_s = span
    on_it = [r for r in records if r.sent_s is not None and r.sent_s <= up_s and (r.end_s is None or r.end_s >= down_s)]
    lost = {record.request_id for record in on_it if not record.ok}
    others = [record for record in records if record.request_id not in lost]
    return [
        _all_served("Envoy restarted with control dead, beyond those in flight on it", others),
        reported("Envoy restarted: lost with it", len(lost), unit="requests", note=f"down {up_s - down_s:.2f} s"),
    ]


def _all_served(name: str, records: Sequence[Record]) -> Check:
    failed = [record for record in records if not record.ok]
    return at_most(f"{name}: failed", len(failed), 0, unit="requests", note=failures_text(failed))


async def drain(
    grid: LiveGrid, *, cell: str = "east-1", rate_per_s: float = 10.0, before_s: float = 10.0, rest_s: float = 15.0
) -> list[Check]:
    """An operator's drain: nothing new after a quarter of a second, and what is in flight ends well."""
    plan = poisson_plan(seed=1, rate_per_s=rate_per_s, for_s=before_s + rest_s, prefix="drain")

    async def script(observer: Observer) -> float:
        await asyncio.sleep(before_s)
        await grid.drain(cell)
        return observer.now_s

    loaded = await under_load(grid, plan, script)
    await grid.undrain(cell)
    at_s = loaded.result
    mine = [record for record in loaded.records if record.cell == cell and record.sent_s is not None]
    late = [record for record in mine if (record.sent_s or 0.0) > at_s + QUIET_AFTER_S]
    last_s = max((record.sent_s or 0.0 for record in mine), default=0.0)
    streams = [record for record in mine if (record.sent_s or 0.0) <= at_s <= (record.end_s or at_s)]
    return [
        at_most(f"drain: new requests after {1e3 * QUIET_AFTER_S:.0f} ms", len(late), 0, unit="requests"),
        reported("drain: last new request after", max(0.0, last_s - at_s), unit="s"),
        at_least("drain: streams in flight that finished", success_ratio(streams), 1.0, note=f"{len(streams)} streams"),
        at_least("drain: success of all", success_ratio(loaded.records), 1.0, note=failures_text(loaded.records)),
    ]
