"""The tuner on a live grid while its world changes and its control dies (issue 6, item 7).

Three cells far apart under an ART-like load: one is halved, the nearest path's RTT triples, control is killed and comes
back. What must hold: no request is lost, orders act within a view, history and weights survive, and the gateway keeps
the last order meanwhile.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tradewind.config.schema import GridConfig, TunerConfig
from tradewind.lab import watch
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import FAR_WAN_MS
from tradewind.lab.observe import Observer
from tradewind.lab.scenarios.common import failures_text, under_load
from tradewind.lab.scenarios.pick_policies import OURS, SLO_TTFT_S, far_course
from tradewind.measure.record import Record
from tradewind.measure.summary import summarise
from tradewind.runtime.ask import ask_async
from tradewind.workload.texts import Texts

VIEW_S = 0.1  # control's telemetry beat; an order goes out at once
LOOK_S = 0.005
ACTS_S = VIEW_S + 0.05  # a look at the gateway over HTTP takes its time too
FOLLOWED_S = 5.0  # at most, for the wait
SLOW_TERMS = ("w", "b", "c", "d", "e", "a0")
OTHER = {"rtt": 0.8, "queue": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerOptions:
    """When things happen, as shares of `for_s`."""

    for_s: float = 600.0
    tried: float = 0.05  # orders that are taken back, so that there is a history to lose
    halved: tuple[float, float] = (0.2, 0.55)
    tripled: tuple[float, float] = (0.4, 0.75)
    killed: float = 0.6
    down_s: float = 5.0
    ordered: float = 0.85
    seed: int = 1


def tuned_grid(config: GridConfig, tuner: TunerConfig | None = None) -> GridConfig:
    """The same grid with a tuner, the calibrator by default."""
    return replace(config, tuner=tuner or TunerConfig())


async def ten_minutes(grid: LiveGrid, options: TunerOptions, *, state_dir: str) -> list[Check]:
    """The whole course on the grid of `far_course`."""
    course = far_course(seed=options.seed, for_s=options.for_s, state_dir=state_dir)
    texts = Texts(course.trace, prefix="tuner")
    loaded = await under_load(
        grid, texts.plan(), lambda observer: _script(grid, observer, options), every_s=2.0, text_of=texts.text_of
    )
    return [*_served(loaded.records, options.for_s), *loaded.result, *await _told(grid)]


async def _script(grid: LiveGrid, observer: Observer, options: TunerOptions) -> list[Check]:
    found: dict[str, list[Check]] = {}

    async def until(share: float) -> None:
        await asyncio.sleep(max(0.0, share * options.for_s - observer.now_s))

    async def at(share: float, act: Callable[[], Awaitable[None]]) -> None:
        await until(share)
        await act()

    async def killed() -> None:
        found["killed"] = await control_killed(grid, down_s=options.down_s)

    async def tried() -> None:
        found["tried"] = await orders_act(grid)
        for order in ("thaw", "reset"):
            await _order(grid, order, None)

    async def ordered() -> None:
        found["ordered"] = await orders_act(grid)

    async def changes() -> None:
        found["changes"] = await _changes(grid, options, until)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(at(options.tried, tried))
        tasks.create_task(changes())
        tasks.create_task(at(options.killed, killed))
        tasks.create_task(at(options.ordered, ordered))
    return [check for name in ("tried", "changes", "killed", "ordered") for check in found[name]]


async def _changes(grid: LiveGrid, options: TunerOptions, until: Callable[[float], Awaitable[None]]) -> list[Check]:
    """Halve a cell and triple the nearest path, one inside the other, and see that the gateway has noticed."""
    near, halved = grid.cell_ids[0], grid.cell_ids[1]
    path = (grid.gateway.site, grid.gateway.site)
    await until(options.halved[0])
    before = await grid.cells()
    slow = await grid.inject("slow", cell=halved, params={"factor": 2.0, "terms": SLOW_TERMS})
    await until(options.tripled[0])
    tripled = await grid.inject("jitter", path=path, params={"rtt_ms": 3 * FAR_WAN_MS[0][0]})
    await until(options.halved[1])
    after = await grid.cells()
    await grid.clear(slow)
    await until(options.tripled[1])
    await grid.clear(tripled)
    was_s, is_s, learned = before[near].rtt_s, after[near].rtt_s, after[halved].picked
    ratio = is_s / was_s if was_s and is_s else None
    return [
        at_least("RTT of the nearest cell, over before, as the gateway sees it", ratio, 2.5),
        reported("slowness of the halved cell, as learned", learned.slowness if learned else None),
    ]


# --- what is checked -------------------------------------------------------------------------------------------------


async def control_killed(grid: LiveGrid, *, down_s: float) -> list[Check]:
    """kill -9 and a start later: the gateway keeps the order meanwhile; weights, flag and history are as before."""
    before, lines = await _tuner(grid), await _history(grid)
    order = await followed(grid)
    await grid.crash(grid.control)
    kept = []
    begin_s = time.monotonic()
    while time.monotonic() - begin_s < down_s:
        kept.append(await followed(grid) == order)
        await asyncio.sleep(min(0.25, down_s / 4))
    await grid.start(grid.control)
    after, again = await _tuner(grid), await _history(grid)
    back_s = await until_followed(grid, lambda order: order is not None and order["driver"] == after["driver"])
    lost = [line for line, now in zip(lines, again, strict=False) if line != now]
    same = (before["weights"], before["frozen"]) == (after["weights"], after["frozen"])
    return [
        at_least("control dead: looks at the gateway with the order in force", sum(kept) / len(kept), 1.0,
                 note=f"{len(kept)} looks"),
        at_most("control back: history lines lost or changed", len(lost) + max(0, len(lines) - len(again)), 0,
                note=f"{len(lines)} lines before, {len(again)} after"),
        at_least("control back: weights and frozen flag as before", float(same), 1.0, note=str(after["weights"])),
        at_most("control back: followed again after", back_s, FOLLOWED_S, unit="s"),
    ]  # fmt: skip


async def orders_act(grid: LiveGrid) -> list[Check]:
    """Weights that are set, and a freeze in the middle of a comparison, as the gateway sees them; then a thaw."""
    before = await _tuner(grid)
    set_s = await _ordered(
        grid, "set", {**OTHER, "reason": "lab"}, lambda order: order is not None and order["weights"] == OTHER
    )
    await _order(grid, "check", {"other": before["start"]})
    driver = before["driver"]
    await until_followed(grid, lambda order: order is not None and order["driver"] != driver)
    freeze_s = await _ordered(grid, "freeze", None, lambda order: order is not None and order["driver"] == driver)
    frozen, lines = await _tuner(grid), await _history(grid)
    checks = [
        at_most("set: in force at the gateway after", set_s, ACTS_S, unit="s"),
        at_most("freeze: the comparison is over at the gateway after", freeze_s, ACTS_S, unit="s"),
        at_least("freeze: frozen, at the weights that were set", float(frozen["frozen"] is True), 1.0,
                 note=str(frozen["weights"])),
        reported("history: lines", len(lines), note=", ".join(str(line["what"]) for line in lines[-6:])),
    ]  # fmt: skip
    assert frozen["weights"] == OTHER, frozen["weights"]
    return checks


async def followed(grid: LiveGrid) -> Mapping[str, object] | None:
    """The order that the first gateway's picks follow. Raises AskFailed."""
    order = (await pick_of(grid)).get("tuner")
    return order if isinstance(order, Mapping) else None


async def pick_of(grid: LiveGrid) -> Mapping[str, Any]:
    """The picker of the first gateway, as its status has it. Raises AskFailed."""
    pick = (await watch.gateway_status(grid.gateway)).get("pick")
    assert isinstance(pick, Mapping), "the gateway picks"
    return pick


async def until_followed(grid: LiveGrid, holds: Callable[[Mapping[str, object] | None], bool]) -> float:
    """Seconds until the gateway follows an order that is as wanted. Raises TimeoutError."""
    begin_s = time.monotonic()
    while not holds(await followed(grid)):
        if time.monotonic() - begin_s > FOLLOWED_S:
            raise TimeoutError(f"the gateway does not follow the order within {FOLLOWED_S:g} s")
        await asyncio.sleep(LOOK_S)
    return time.monotonic() - begin_s


async def _ordered(
    grid: LiveGrid, order: str, body: object, holds: Callable[[Mapping[str, object] | None], bool]
) -> float:
    """Give an order; seconds from then until the gateway does as it says."""
    begin_s = time.monotonic()
    giving = asyncio.create_task(_order(grid, order, body))  # its answer waits for the disk, the order does not
    await until_followed(grid, holds)
    took_s = time.monotonic() - begin_s
    await giving
    return took_s


async def _order(grid: LiveGrid, order: str, body: object) -> None:
    await ask_async(grid.grid.controls[0].admin, f"/v1/tuner/{order}", method="POST", body=body)


async def _tuner(grid: LiveGrid) -> Mapping[str, object]:
    found = await ask_async(grid.grid.controls[0].admin, "/v1/tuner")
    assert isinstance(found, Mapping)
    return found


async def _history(grid: LiveGrid) -> list[Mapping[str, object]]:
    found = await ask_async(grid.grid.controls[0].admin, "/v1/tuner/history")
    assert isinstance(found, Mapping)
    return list(found["events"])


def _served(records: Sequence[Record], for_s: float) -> list[Check]:
    failed = [record for record in records if not record.ok]
    figures = summarise(records, slo_ttft_s=SLO_TTFT_S, for_s=for_s)
    return [
        at_most("tuner live: requests lost", len(failed), 0, unit="requests",
                note=failures_text(failed) or f"{len(records)} requests"),
        reported("tuner live: TTFT p95", figures.ttft_s.p95, unit="s"),
        reported("tuner live: E2E p95", figures.e2e_s.p95, unit="s"),
    ]  # fmt: skip


async def _told(grid: LiveGrid) -> list[Check]:
    """What the tuner heard and did."""
    tuner, did = await _tuner(grid), Counter(str(line["what"]) for line in await _history(grid))
    heard, worst = tuner["samples"], tuner["learn_worst_s"]
    assert isinstance(heard, int)
    assert isinstance(worst, float)
    note = ", ".join(f"{count} {what}" for what, count in did.items())
    return [
        reported("tuner live: requests heard since control's last start", heard, note=note),
        reported("tuner live: longest step of the tuner since then", worst, unit="s"),
    ]


def far_tuned(state_dir: str, *, seed: int = 1, for_s: float = 600.0) -> GridConfig:
    """The far grid with the calibrator."""
    return tuned_grid(far_course(seed=seed, for_s=for_s, state_dir=state_dir).grid(OURS))
