"""Four engines, one of which is killed every two seconds; two gateways before them, one with the gate, one without."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp
from msgspec.structs import replace

from tradewind.config.schema import GateConfig, GatewayConfig, GridConfig
from tradewind.gateway.envoy import EnvoyAdmin
from tradewind.lab import watch
from tradewind.lab.checks import Check, at_least, at_most, reported
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import MODEL, emulated_grid
from tradewind.lab.processes import envoy_name
from tradewind.lab.soak.client import Answer, End, ask, draw
from tradewind.runtime.ask import AskFailed
from tradewind.xds.settings import LISTENER_NAME

GATED, PLAIN = "gated", "no-gate"
ACTIVE = f"http.{LISTENER_NAME}.downstream_rq_active"
SETTLE_S = 3.0
TRIED = 4  # engines for a request: with a kill every two seconds, some wait in a second one that dies
NEVER = (End.LOST, End.ERROR_STATUS, End.ERROR_EVENT, End.WRONG)  # with the gate


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """Times in seconds; `connections` are those of each gateway."""

    for_s: float = 300.0
    kill_every_s: float = 2.0
    down_s: float = 0.7
    connections: int = 10
    pause_s: float = 0.15  # mean, between two requests of a connection
    output_tokens: int = 16
    cancel_share: float = 0.05
    request_timeout_s: float = 60.0
    seed: int = 1


@dataclass(slots=True)
class Arm:
    """One gateway's half of the soak."""

    gateway: GatewayConfig
    answers: list[Answer] = field(default_factory=list)
    rss_mb: tuple[float, float] = (0.0, 0.0)  # of its Envoy, before and after
    active: int | None = None  # requests that Envoy still has when all clients are gone
    in_flight: int | None = None  # that the picker still books then

    @property
    def ends(self) -> Counter[End]:
        """How many of each end."""
        return Counter(answer.end for answer in self.answers)


def soak_grid(state_dir: str, *, engines: int = 4, seed: int = 1) -> GridConfig:
    """Engines that run four sequences at once, so that many a request waits when its engine is killed."""
    grid = emulated_grid(
        sites=("east",), cells_per_site=engines, profile="fast", policy="cost", exporters=False, max_num_seqs=4,
        wan_ms=((2.0, 0.2),), seed=seed, state_dir=state_dir, name="soak",
    )  # fmt: skip
    (gateway,) = grid.gateways
    gate = GateConfig(deaths=TRIED)
    arms = [replace(gateway, id=GATED, gate=gate), replace(gateway, id=PLAIN, gate=GateConfig(mode="none"))]
    return replace(grid, gateways=arms)


async def soak(grid: LiveGrid, options: SoakOptions, *, say: Callable[[str], None] = lambda _line: None) -> list[Check]:
    """Run both arms on the same engines under the same kills."""
    arms = [Arm(gateway) for gateway in grid.grid.gateways]
    before = [_rss_mb(grid, arm) for arm in arms]
    until_s = time.monotonic() + options.for_s
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        async with asyncio.TaskGroup() as tasks:
            killer = tasks.create_task(_kill(grid, options, until_s, say, arms))
            for arm in arms:
                for index in range(options.connections):
                    rng = random.Random(f"{options.seed}-{index}")
                    tasks.create_task(_ask_again_and_again(session, arm, index, options, rng, until_s))
        await asyncio.sleep(SETTLE_S)
        for arm, rss_mb in zip(arms, before, strict=True):
            arm.rss_mb = (rss_mb, _rss_mb(grid, arm))
            arm.active = (await EnvoyAdmin(arm.gateway.envoy_admin, session).stats([ACTIVE])).get(ACTIVE)
            arm.in_flight = _booked(await watch.gateway_status(arm.gateway))
    return soak_checks(arms, kills=killer.result())


async def _ask_again_and_again(
    session: aiohttp.ClientSession, arm: Arm, index: int, options: SoakOptions, rng: random.Random, until_s: float
) -> None:
    for turn in itertools.count():
        if time.monotonic() >= until_s:
            return
        request = draw(
            rng,
            f"{arm.gateway.id}-{options.seed}-{index}-{turn}",
            output_tokens=options.output_tokens,
            cancel_share=options.cancel_share,
        )
        address = arm.gateway.listen
        arm.answers.append(await ask(session, address, MODEL, request, timeout_s=options.request_timeout_s))
        await asyncio.sleep(rng.expovariate(1 / options.pause_s))


async def _kill(
    grid: LiveGrid, options: SoakOptions, until_s: float, say: Callable[[str], None], arms: Sequence[Arm]
) -> int:
    """Kill an engine that lives, again and again; how many kills it came to."""
    rng, kills, said_s = random.Random(f"kills-{options.seed}"), 0, time.monotonic()
    while time.monotonic() + options.kill_every_s < until_s:
        await asyncio.sleep(options.kill_every_s)
        try:
            await grid.inject("kill", cell=rng.choice(grid.cell_ids), for_s=options.down_s)
        except AskFailed:
            continue  # it is down already
        kills += 1
        if time.monotonic() - said_s >= 10.0:
            said_s = time.monotonic()
            say(f"{until_s - said_s:.0f} s to go, {kills} kills; " + "; ".join(_short(arm) for arm in arms))
    return kills


def _short(arm: Arm) -> str:
    ends = arm.ends
    return f"{arm.gateway.id}: {len(arm.answers)} done, {ends[End.LOST]} lost, {ends[End.CUT]} cut"


def _rss_mb(grid: LiveGrid, arm: Arm) -> float:
    pid = grid.pid(envoy_name(arm.gateway))
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6


def _booked(status: watch.Json) -> int | None:
    """Requests that the picker believes to be in flight."""
    pick = status.get("pick")
    cells = pick.get("cells") if isinstance(pick, dict) else None
    return sum(int(cell["in_flight"]) for cell in cells) if isinstance(cells, list) else None


def soak_checks(arms: Sequence[Arm], *, kills: int) -> list[Check]:
    """The promise for the arm with the gate, the same figures of the other beside it."""
    checks = [reported("engines killed", kills, unit="kills")]
    for arm in arms:
        checks += _rows(arm, bound=arm.gateway.id == GATED)
    return checks


def _rows(arm: Arm, *, bound: bool) -> list[Check]:
    name, ends = arm.gateway.id, arm.ends

    def none_of(label: str, number: int | None, note: str = "") -> Check:
        label = f"{name}: {label}"
        if bound:
            return at_most(label, number, 0, unit="requests", note=note)
        return reported(label, number, unit="requests", note=note)

    before, after = arm.rss_mb
    return [
        at_least(f"{name}: served in full", ends[End.OK], 1, unit="requests", note=f"of {len(arm.answers)}"),
        *(none_of(end.value, ends[end], _examples(arm.answers, end)) for end in NEVER),
        *(reported(f"{name}: {end.value}", ends[end], unit="requests") for end in (End.CUT, End.CANCELLED)),
        none_of("still active in Envoy at the end", arm.active),
        none_of("still booked by the picker at the end", arm.in_flight),
        reported(f"{name}: Envoy's memory", after, unit="MB", note=f"{before:.0f} MB before"),
    ]


def _examples(answers: Sequence[Answer], end: End) -> str:
    chosen = [answer for answer in answers if answer.end is end][:2]
    return "; ".join(f"{answer.request_id} {answer.status or ''} {answer.detail[:80]}" for answer in chosen)
