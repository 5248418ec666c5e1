"""What-ifs: how they are written, and what they do to a fleet."""

from collections.abc import Callable
from dataclasses import replace

from tradewind.engine.profiles import PROFILES, Profile
from tradewind.lab.experiments.what_if.fleet import Fleet, FleetCell, profile_named
from tradewind.lab.experiments.what_if.paths import pair, seconds
from tradewind.lab.experiments.what_if.setup import AS_IT_IS, SetupError, parts

FORMS = (
    "add:SITE:COUNT[:HARDWARE]",
    "lose:SITE or lose:CELL",
    "policy:POLICY",
    "load:FACTOR",
    "slow:CELL:SPEED or slow:SITE:SPEED",
    "rtt:SITE-SITE:TIME",
)
MOST_ADDED = 10_000
MOST_FACTOR = 100.0


def changed(fleet: Fleet, what_if: str) -> Fleet:
    """The fleet with one what-if, or several joined by commas. Raises SetupError with what to write."""
    if what_if == AS_IT_IS:
        return fleet
    for part in parts(what_if):
        kind, _, rest = part.partition(":")
        if kind not in _KINDS or not rest:
            raise SetupError(f"--what-if {part}: write one of {'; '.join(FORMS)}")
        fleet = _KINDS[kind](fleet, rest, part)
    return fleet


def _add(fleet: Fleet, rest: str, part: str) -> Fleet:
    site, _, more = rest.partition(":")
    count, _, hardware = more.partition(":")
    if not count.isdecimal() or not 0 < int(count) <= MOST_ADDED:
        raise SetupError(f"--what-if {part}: write add:{site}:COUNT with a number of cells, e.g. add:{site}:1")
    like = [cell for cell in fleet.cells if cell.site == site]
    if not like and site not in {end for ends in fleet.rtts_s for end in ends}:
        raise SetupError(f"--what-if {part}: there is no site {site!r}; write one of {', '.join(fleet.sites)}")
    profile = profile_named(hardware) if hardware else _common(like, site, part)
    if profile is None:
        raise SetupError(f"--what-if {part}: no profile for {hardware!r}; known: {', '.join(PROFILES)}")
    seqs = (like or list(fleet.cells))[0].max_num_seqs
    taken = {cell.cell_id for cell in fleet.cells}
    names = [name for number in range(len(taken) + int(count)) if (name := f"{site}-added-{number}") not in taken]
    new = tuple(
        FleetCell(cell_id=name, site=site, profile=profile, max_num_seqs=seqs, number=fleet.next_number + index)
        for index, name in enumerate(names[: int(count)])
    )
    cells = tuple(sorted((*fleet.cells, *new), key=lambda cell: cell.cell_id))
    return replace(fleet, cells=cells, next_number=fleet.next_number + len(new))


def _common(like: list[FleetCell], site: str, part: str) -> Profile:
    profiles = {cell.profile.name: cell.profile for cell in like}
    if len(profiles) != 1:
        told = f"{site} has {' and '.join(profiles)}" if profiles else f"{site} has no cell to be like"
        raise SetupError(f"--what-if {part}: {told}; write e.g. {part}:h100")
    return next(iter(profiles.values()))


def _lose(fleet: Fleet, rest: str, part: str) -> Fleet:
    lost = _named(fleet, rest, part)
    cells = tuple(cell for cell in fleet.cells if cell.cell_id not in lost)
    is_site = rest in fleet.sites
    gateways = tuple(site for site in fleet.gateways if not (is_site and site == rest))
    if not cells:
        raise SetupError(f"--what-if {part}: no cell is left")
    if not gateways:
        raise SetupError(
            f"--what-if {part}: no gateway is left, since all are in {rest}; a second one elsewhere serves on"
        )
    return replace(fleet, cells=cells, gateways=gateways)


def _slow(fleet: Fleet, rest: str, part: str) -> Fleet:
    name, _, speed = rest.rpartition(":")
    factor = 1.0 / _factor(speed, part, most=MOST_FACTOR)
    slow = _named(fleet, name, part)
    return replace(
        fleet,
        cells=tuple(
            replace(cell, profile=_slowed(cell.profile, factor)) if cell.cell_id in slow else cell
            for cell in fleet.cells
        ),
    )


def _slowed(profile: Profile, factor: float) -> Profile:
    """The name stays: nobody tells the gateways, they must find out."""
    return replace(
        profile,
        a0_s=profile.a0_s * factor,
        w_s=profile.w_s * factor,
        b_s=profile.b_s * factor,
        c_s=profile.c_s * factor,
        d_s=profile.d_s * factor,
        e_s=profile.e_s * factor,
        moe_w_s=profile.moe_w_s * factor,
    )


def _policy(fleet: Fleet, rest: str, _part: str) -> Fleet:
    return replace(fleet, policy=rest)


def _load(fleet: Fleet, rest: str, part: str) -> Fleet:
    return replace(fleet, load=fleet.load * _factor(rest, part, most=MOST_FACTOR))


def _rtt(fleet: Fleet, rest: str, part: str) -> Fleet:
    name, _, time = rest.rpartition(":")
    ends = pair(name, sorted({end for ends in fleet.rtts_s for end in ends}))
    return replace(fleet, rtts_s=fleet.rtts_s | {ends: seconds(time, of=f"--what-if {part}")})


def _named(fleet: Fleet, name: str, part: str) -> set[str]:
    """The cells of a site, or the one cell of this name."""
    found = {cell.cell_id for cell in fleet.cells if name in (cell.cell_id, cell.site)}
    if not found:
        known = ", ".join([*fleet.sites, *(cell.cell_id for cell in fleet.cells)][:12])
        raise SetupError(f"--what-if {part}: there is no site or cell {name!r}; write one of {known}")
    return found


def _factor(written: str, part: str, *, most: float) -> float:
    try:
        factor = float(written)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor <= most:
        raise SetupError(f"--what-if {part}: {written!r} is no factor above 0 and up to {most:g}, such as 0.5")
    return factor


_KINDS: dict[str, Callable[[Fleet, str, str], Fleet]] = {
    "add": _add,
    "lose": _lose,
    "policy": _policy,
    "load": _load,
    "slow": _slow,
    "rtt": _rtt,
}
