"""Round trips between sites: from the grid file's emulated paths, from options, or asked for."""

import re
from collections.abc import Sequence

from tradewind.config.schema import GridConfig
from tradewind.lab.experiments.what_if.setup import SetupError, parts

SAME_SITE_S = 0.0005
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")

Rtts = dict[frozenset[str], float]


def seconds(written: str, *, of: str) -> float:
    """ "40ms" or "0.04s". Raises SetupError."""
    match = _TIME.fullmatch(written.strip())
    if match is None:
        raise SetupError(f"{of}: {written!r} is no time; write 40ms or 0.04s")
    return float(match[1]) / (1e3 if match[2] == "ms" else 1.0)


def pair(written: str, sites: Sequence[str]) -> frozenset[str]:
    """The two sites of "east-west"; a site's own name may hold a dash. Raises SetupError."""
    for place, character in enumerate(written):
        if character == "-" and written[:place] in sites and written[place + 1 :] in sites:
            return frozenset((written[:place], written[place + 1 :]))
    raise SetupError(f"{written!r} does not name two sites; write e.g. {'-'.join((*sites, *sites)[:2])}")


def round_trips(grid: GridConfig, written: str, *, sites: Sequence[str], froms: Sequence[str]) -> Rtts:
    """Between each of `froms`, the gateways' sites, and each site. Raises SetupError with what is missing."""
    found: Rtts = {frozenset((site,)): SAME_SITE_S for site in sites}
    for path in grid.emulation.wan if grid.emulation else ():
        if path.rtt_ms > 0:
            found[frozenset((path.a, path.b))] = path.rtt_ms / 1e3
    rest: float | None = None
    for part in parts(written):
        name, equals, time = part.rpartition("=")
        if equals:
            found[pair(name, sites)] = seconds(time, of=f"--rtt {part}")
        else:
            rest = seconds(part, of=f"--rtt {part}")
    wanted = {frozenset((here, there)) for here in froms for there in sites}
    missing = sorted("-".join(sorted(ends)) for ends in wanted - found.keys())
    if missing and rest is None:
        options = " ".join(f"--rtt {name}=40ms" for name in missing[:6])
        raise SetupError(f"the grid file does not say how far {', '.join(missing)} is; write {options}")
    return found | {ends: rest for ends in wanted - found.keys() if rest is not None}


def mean_jitter_s(grid: GridConfig) -> float | None:
    """Of the grid file's emulated paths between sites; None where it has none."""
    found = [path.jitter_ms / 1e3 for path in (grid.emulation.wan if grid.emulation else ()) if path.a != path.b]
    return sum(found) / len(found) if found and any(found) else None
