"""The grid of a grid file as the simulator takes it, and what had to be assumed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tradewind.config.check import known_sites
from tradewind.config.schema import CellConfig, EmulatedEngineConfig, GatewayConfig, GridConfig
from tradewind.engine.profiles import PROFILES, Profile
from tradewind.lab.experiments.what_if.paths import SAME_SITE_S, Rtts, mean_jitter_s, round_trips
from tradewind.lab.experiments.what_if.setup import Setup, SetupError, parts
from tradewind.sim.wan import PRIVATE

_BOARDS = (("h200", "h200"), ("h100", "h100"), ("l40s", "2xl40s"), ("rtx pro 6000", "rtx-pro-6000"))
_SCORING = {"recipe": "weights", "published": "published:10", "published-v2": "published:8"}
MAX_NUM_SEQS = 256  # vLLM's default


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCell:
    """One cell; `number` names its stream of chance, whatever cells come or go beside it."""

    cell_id: str
    site: str
    profile: Profile
    max_num_seqs: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What a what-if changes."""

    cells: tuple[FleetCell, ...]
    gateways: tuple[str, ...]  # the site of each
    rtts_s: Rtts
    jitter_s: float
    policy: str
    load: float = 1.0  # times the arrivals
    next_number: int

    @property
    def sites(self) -> list[str]:
        """Those with cells, sorted."""
        return sorted({cell.site for cell in self.cells})


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A fleet, and in words what the grid file did not say."""

    fleet: Fleet
    assumed: tuple[str, ...]


def fleet_of(grid: GridConfig, setup: Setup) -> Described:
    """The fleet of a checked grid file. Raises SetupError with what to write."""
    engines = {engine.cell: engine for engine in grid.emulation.engines} if grid.emulation else {}
    chosen = _of_model(grid.cells, engines, setup.model)
    if not chosen:
        raise SetupError(f"{setup.grid} has no cells to simulate")
    profiles = _profiles(chosen, engines, setup.hardware)
    cells = tuple(
        FleetCell(
            cell_id=cell.id,
            site=cell.site,
            profile=profiles[cell.id],
            max_num_seqs=engines[cell.id].max_num_seqs if cell.id in engines else MAX_NUM_SEQS,
            number=number,
        )
        for number, cell in enumerate(sorted(chosen, key=lambda cell: cell.id))
    )
    sites = known_sites(grid)
    gateways = tuple(gateway.site or sites[0] for gateway in grid.gateways)
    jitter_s = mean_jitter_s(grid)
    fleet = Fleet(
        cells=cells,
        gateways=gateways,
        rtts_s=round_trips(grid, setup.rtt, sites=sites, froms=sorted(set(gateways))),
        jitter_s=PRIVATE.jitter_s if jitter_s is None else jitter_s,
        policy=setup.policy or _policy(grid.gateways),
        next_number=len(cells),
    )
    return Described(fleet=fleet, assumed=tuple(_assumed(grid, fleet, given_jitter=jitter_s is not None)))


def profile_named(text: str) -> Profile | None:
    """By a profile's name, or the name of a board as an exporter or an operator writes it."""
    plain = " ".join(text.lower().replace("-", " ").replace("_", " ").split())
    exact = PROFILES.get(text.lower())
    return exact or next((PROFILES[name] for board, name in _BOARDS if board in plain), None)


def _of_model(cells: Sequence[CellConfig], engines: dict[str, EmulatedEngineConfig], model: str) -> list[CellConfig]:
    """One pool is simulated; which cells serve what, a grid file says of emulated ones only."""
    served = sorted({engine.model for engine in engines.values()})
    if not model and len(served) > 1:
        raise SetupError(f"the grid serves {', '.join(served)}, and one pool is simulated; write --model {served[0]}")
    names = {cell_id: {engine.model, *engine.aliases} for cell_id, engine in engines.items()}
    if model and engines and not any(model in known for known in names.values()):
        raise SetupError(f"no emulated engine serves {model!r}; write --model with one of {', '.join(served)}")
    return [cell for cell in cells if not model or model in names.get(cell.id, {model})]


def _profiles(
    cells: Sequence[CellConfig], engines: dict[str, EmulatedEngineConfig], written: str
) -> dict[str, Profile]:
    """By option, else by the emulated engine, else by the cell's hardware."""
    told, rest = _told(written, {cell.id for cell in cells} | {cell.site for cell in cells})
    found: dict[str, Profile] = {}
    unknown: list[str] = []
    for cell in cells:
        engine = engines.get(cell.id)
        by_file = PROFILES[engine.profile] if engine else profile_named(cell.hardware) if cell.hardware else None
        profile = told.get(cell.id) or told.get(cell.site) or by_file or rest
        if profile is None:
            unknown.append(cell.id)
        else:
            found[cell.id] = profile
    if unknown:
        write = f"--hardware {unknown[0]}=h100, --hardware SITE=h100 or --hardware h100 for all of them"
        known = ", ".join(PROFILES)
        raise SetupError(
            f"the grid file does not say what {', '.join(unknown[:8])} runs on; write {write}; known: {known}"
        )
    return found


def _told(written: str, names: set[str]) -> tuple[dict[str, Profile], Profile | None]:
    told: dict[str, Profile] = {}
    rest: Profile | None = None
    for part in parts(written):
        name, equals, board = part.rpartition("=")
        profile = profile_named(board)
        if profile is None:
            raise SetupError(f"--hardware {part}: no profile for {board!r}; known: {', '.join(PROFILES)}")
        if not equals:
            rest = profile
        elif name in names:
            told[name] = profile
        else:
            raise SetupError(f"--hardware {part}: there is no cell or site {name!r}")
    return told, rest


def _policy(gateways: Sequence[GatewayConfig]) -> str:
    """As it is written in the lab. Raises SetupError where gateways decide differently."""
    found = list(dict.fromkeys(_policy_of(gateway) for gateway in gateways))
    if len(found) != 1:
        raise SetupError(f"the gateways decide by {' and '.join(found)}; write --policy with one for all")
    return found[0]


def _policy_of(gateway: GatewayConfig) -> str:
    if gateway.routing == "pick":
        return gateway.pick.policy
    if not gateway.baseline:
        return _SCORING[gateway.scoring]
    base, _, option = gateway.baseline.partition(":")
    return f"envoy_{base.replace('-', '_')}" + (f":{option}" if option else "")


def _assumed(grid: GridConfig, fleet: Fleet, *, given_jitter: bool) -> Iterator[str]:
    profiles = {cell.profile.name: cell.profile for cell in fleet.cells}
    for name, profile in profiles.items():
        count = sum(1 for cell in fleet.cells if cell.profile.name == name)
        yield f"{count} cells as profile {name}: {profile.source}; {profile.kv_capacity_tokens:,} tokens of KV cache"
    same = fleet.rtts_s.get(frozenset((fleet.gateways[0],)))
    if same == SAME_SITE_S:
        yield f"{1e3 * SAME_SITE_S:g} ms within a site"
    jitter = "as the grid file says on the whole" if given_jitter else "assumed"
    wander = f"round trips wander by {100 * PRIVATE.wander_ratio:g} %"
    yield f"jitter {1e3 * fleet.jitter_s:.2g} ms a message ({jitter}); {wander}; bandwidth is no limit"
    if any(cell.capacity for cell in grid.cells):
        yield "`capacity` is what weights begin with, and not simulated: the profile says how fast a cell is"
    if any(gateway.residency for gateway in grid.gateways):
        yield "residency rules are not simulated: every request may go anywhere"
    if len(fleet.gateways) > 1:
        yield f"requests come to the {len(fleet.gateways)} gateways in equal parts"
