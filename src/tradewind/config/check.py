"""Does a typed grid file make sense? Every problem is found in one pass, each with what to write."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tradewind.config.addresses import Listen, is_ip, is_loopback, listens, split_address
from tradewind.config.check_gate import gate_problems
from tradewind.config.check_kv import kv_problems
from tradewind.config.check_pick import pick_problems
from tradewind.config.check_tuner import tuner_problems
from tradewind.config.check_values import value_problems
from tradewind.config.errors import ConfigError, Problem
from tradewind.config.schema import GridConfig
from tradewind.core.pick.policies.own import path_of
from tradewind.engine.profiles import PROFILES

Checks = Iterator[Problem]

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # ids become file names and metric labels

NVML_URL = "nvml:"  # in place of an exporter's address: the agent reads its own host's GPUs


def check(grid: GridConfig, *, source: str = "grid.yaml", base: Path = Path()) -> GridConfig:
    """Return grid when it makes sense; raise ConfigError with every problem otherwise.

    `base` is the folder of the grid file: files that it names are looked for there.
    """
    problems = [problem for rule in RULES for problem in rule(grid)]
    problems.extend(_scenario(grid, base))
    problems.extend(_policy_files(grid, base))
    if problems:
        raise ConfigError(source, problems)
    return grid


def _ids(grid: GridConfig) -> Checks:
    for section, ids in (
        ("controls", [item.id for item in grid.controls]),
        ("gateways", [item.id for item in grid.gateways]),
        ("agents", [item.id for item in grid.agents]),
        ("cells", [item.id for item in grid.cells]),
    ):
        for index, name in enumerate(ids):
            where = f"$.{section}[{index}].id"
            if not ID.fullmatch(name):
                write = "letters, digits, '.', '_' and '-', e.g. east-0"
                yield Problem(where=where, what=f"{name!r} is not an id", write=write)
            if name in ids[:index]:
                what = f"{name!r} is already the id of $.{section}[{ids.index(name)}]"
                yield Problem(where=where, what=what, write="an id of its own")


def _sites(grid: GridConfig) -> Checks:
    known = known_sites(grid)
    for index, site in enumerate(grid.sites):
        if site in grid.sites[:index]:
            yield Problem(where=f"$.sites[{index}]", what=f"site {site!r} is listed twice", write="each site once")
    for where, site in _site_uses(grid):
        if site not in known:
            yield _unknown(where, "site", site, known)


def known_sites(grid: GridConfig) -> list[str]:
    """The sites of the file: `sites` where given, else those its cells and gateways name; sorted."""
    named = [cell.site for cell in grid.cells] + [gateway.site for gateway in grid.gateways if gateway.site]
    return list(grid.sites) or sorted(set(named))


def _site_uses(grid: GridConfig) -> Iterator[tuple[str, str]]:
    yield from ((f"$.cells[{index}].site", cell.site) for index, cell in enumerate(grid.cells))
    yield from ((f"$.controls[{index}].site", item.site) for index, item in enumerate(grid.controls) if item.site)
    yield from ((f"$.gateways[{index}].site", item.site) for index, item in enumerate(grid.gateways) if item.site)
    if grid.emulation is None:
        return
    yield from ((f"$.emulation.dcgm[{index}].site", item.site) for index, item in enumerate(grid.emulation.dcgm))
    for index, path in enumerate(grid.emulation.wan):
        yield f"$.emulation.wan[{index}].a", path.a
        yield f"$.emulation.wan[{index}].b", path.b
    for index, engine in enumerate(grid.emulation.engines):
        yield from ((f"$.emulation.engines[{index}].listen", site) for site in sorted(engine.listen))


def _cell_references(grid: GridConfig) -> Checks:
    known = [cell.id for cell in grid.cells]
    for where, cell_id in _cell_uses(grid):
        if cell_id not in known:
            yield _unknown(where, "cell", cell_id, known)


def _cell_uses(grid: GridConfig) -> Iterator[tuple[str, str]]:
    for index, agent in enumerate(grid.agents):
        yield from ((f"$.agents[{index}].cells[{at}]", cell_id) for at, cell_id in enumerate(agent.cells))
    for index, gateway in enumerate(grid.gateways):
        yield from ((f"$.gateways[{index}].reach", cell_id) for cell_id in sorted(gateway.reach))
    if grid.emulation is not None:
        yield from ((f"$.emulation.engines[{i}].cell", engine.cell) for i, engine in enumerate(grid.emulation.engines))


def _owners(grid: GridConfig) -> Checks:
    """Control refuses a second live agent of one cell; a cell without an agent is never seen."""
    for index, cell in enumerate(grid.cells):
        owners = [agent.id for agent in grid.agents if not agent.cells or cell.id in agent.cells]
        if len(owners) > 1:
            what = f"cell {cell.id!r} is owned by agents {', '.join(owners)}"
            yield Problem(where=f"$.cells[{index}]", what=what, write=f"{cell.id} in the cells of one agent only")
        if grid.agents and not owners:
            what = f"no agent owns cell {cell.id!r}"
            yield Problem(where=f"$.cells[{index}]", what=what, write=f"{cell.id} in the cells of an agent")


def _emulated_once(grid: GridConfig) -> Checks:
    engines = grid.emulation.engines if grid.emulation else []
    names = [engine.cell for engine in engines]
    for index, engine in enumerate(engines):
        if engine.cell in names[:index]:
            what = f"cell {engine.cell!r} already has an emulated engine"
            yield Problem(where=f"$.emulation.engines[{index}].cell", what=what, write="one engine for each cell")
        if engine.profile not in PROFILES:
            yield _unknown(f"$.emulation.engines[{index}].profile", "profile", engine.profile, PROFILES)


def _urls(grid: GridConfig) -> Checks:
    emulated = {engine.cell for engine in grid.emulation.engines} if grid.emulation else set()
    for index, cell in enumerate(grid.cells):
        if cell.url.endswith(":0") and cell.id not in emulated:
            what = f"{cell.url!r}: only an emulated engine may have port 0"
            yield Problem(where=f"$.cells[{index}].url", what=what, write="the engine's port")
        reached_elsewhere = bool(grid.gateways) and all(cell.id in gateway.reach for gateway in grid.gateways)
        yield from _engine_url(f"$.cells[{index}].url", cell.url, name_allowed=reached_elsewhere)
        for key, url in (("metrics_url", cell.metrics_url), ("dcgm_url", cell.dcgm_url)):
            if url and not (key == "dcgm_url" and url == NVML_URL) and _url_fault(url):
                write = "http://127.0.0.1:9400/metrics"
                yield Problem(where=f"$.cells[{index}].{key}", what=f"{url!r} {_url_fault(url)}", write=write)


def _engine_url(where: str, url: str, *, name_allowed: bool) -> Checks:
    write = "http://127.0.0.1:8000"
    fault = _url_fault(url)
    if fault:
        yield Problem(where=where, what=f"{url!r} {fault}", write=write)
        return
    parts = urlsplit(url)
    if parts.path.rstrip("/") or parts.query or parts.fragment or parts.username:
        yield Problem(where=where, what=f"{url!r} holds more than scheme, host and port", write=write)
    if not is_ip(parts.hostname or "") and not name_allowed:
        what = f"{parts.hostname!r} is a name, and Envoy's endpoints are addresses"
        yield Problem(where=where, what=what, write=f"the address, e.g. {write}, or reach: in every gateway")


def _url_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme not in {"http", "https"}:
        return "does not begin with http:// or https://"
    if not parts.hostname:
        return "has no host"
    return "" if port is not None or parts.path else "has no port"


def _addresses(grid: GridConfig) -> Checks:
    for listen in listens(grid):
        if split_address(listen.address) is None and not listen.where.endswith(".url"):
            yield _not_an_address(listen.where, listen.address)
    for index, gateway in enumerate(grid.gateways):
        for cell_id, address in sorted(gateway.reach.items()):
            if not _usable(address):
                yield _not_an_address(f"$.gateways[{index}].reach.{cell_id}", address)


def _not_an_address(where: str, address: str) -> Problem:
    return Problem(where=where, what=f"{address!r} is not ip:port", write="ip:port, e.g. 127.0.0.1:7400")


def _usable(address: str) -> bool:
    split = split_address(address)
    return split is not None and split[1] != 0


def _port_clashes(grid: GridConfig) -> Checks:
    bound: list[tuple[str, int, Listen]] = []
    for listen in listens(grid):
        split = split_address(listen.address)
        if split is None or split[1] == 0:
            continue
        host, port = split
        clash = next((other for at, number, other in bound if number == port and _overlap(at, host)), None)
        if clash is not None:
            what = f"{listen.address} is already taken by {clash.where}"
            yield Problem(where=listen.where, what=what, write="another port, or port 0 for any free one")
        bound.append((host, port, listen))


def _overlap(one: str, other: str) -> bool:
    return one == other or any(ipaddress.ip_address(host).is_unspecified for host in (one, other))


def _loopback(grid: GridConfig) -> Checks:
    """Traffic between parts is not encrypted: off loopback it needs a word from the operator."""
    if grid.plaintext:
        return
    for listen in listens(grid):
        split = split_address(listen.address)
        if split is not None and listen.internal and not is_loopback(split[0]):
            what = f"{listen.address} is not loopback, and this traffic is not encrypted"
            yield Problem(where=listen.where, what=what, write="127.0.0.1, or plaintext: true at the top of the file")


def _baselines(grid: GridConfig) -> Checks:
    for index, gateway in enumerate(grid.gateways):
        if not baseline_ok(gateway.baseline):
            what = f"{gateway.baseline!r} is not a baseline"
            write = "round-robin, least-request, least-request:N (N from 2), random, or '' for none"
            yield Problem(where=f"$.gateways[{index}].baseline", what=what, write=write)


def baseline_ok(baseline: str) -> bool:
    """Whether `--baseline` may be this: "", round-robin, least-request, least-request:N with N >= 2, random."""
    name, colon, count = baseline.partition(":")
    if colon:
        return name == "least-request" and count.isascii() and count.isdigit() and 2 <= int(count) <= 10_000
    return name in {"", "round-robin", "least-request", "random"}


def _pick(grid: GridConfig) -> Checks:
    yield from pick_problems(grid, sites=known_sites(grid))


def _gate(grid: GridConfig) -> Checks:
    yield from gate_problems(grid)


def _tuner(grid: GridConfig) -> Checks:
    yield from tuner_problems(grid)


def _kv(grid: GridConfig) -> Checks:
    yield from kv_problems(grid)


def _values(grid: GridConfig) -> Checks:
    yield from value_problems(grid)


def _time_to_live(grid: GridConfig) -> Checks:
    """A TTL at or below the heartbeat interval calls every cell silent between two beats."""
    slowest_s = max((agent.interval_s for agent in grid.agents), default=0.0)
    for index, control in enumerate(grid.controls):
        if control.heartbeat_ttl_s <= slowest_s:
            what = f"{control.heartbeat_ttl_s:g} s is not longer than an agent's interval_s of {slowest_s:g} s"
            write = f"at least {1.5 * slowest_s:g}"
            yield Problem(where=f"$.controls[{index}].heartbeat_ttl_s", what=what, write=write)


def _models(grid: GridConfig) -> Checks:
    for index, model in enumerate(grid.models):
        if model in grid.models[:index]:
            yield Problem(where=f"$.models[{index}]", what=f"model {model!r} is listed twice", write="each name once")
    engines = grid.emulation.engines if grid.emulation else []
    stands_for = {(alias, engine.model) for engine in engines for alias in engine.aliases}
    for index, engine in enumerate(engines):
        for at, alias in enumerate(engine.aliases):
            if (engine.model, alias) in stands_for:  # also true when an engine's alias is its own model
                where = f"$.emulation.engines[{index}].aliases[{at}]"
                what = f"{alias!r} and {engine.model!r} are aliases of each other"
                yield Problem(where=where, what=what, write="an alias that is no model's own name")


def _wan(grid: GridConfig) -> Checks:
    paths = [frozenset((path.a, path.b)) for path in grid.emulation.wan] if grid.emulation else []
    for index, path in enumerate(paths):
        if path in paths[:index]:
            what = f"the path {' - '.join(sorted(path))} is given twice"
            write = "each pair of sites once; it holds both ways"
            yield Problem(where=f"$.emulation.wan[{index}]", what=what, write=write)


def _scenario(grid: GridConfig, base: Path) -> Checks:
    name = grid.emulation.scenario if grid.emulation else ""
    if name and not (base / name).is_file():
        what = f"there is no file {str(base / name)!r}"
        yield Problem(where="$.emulation.scenario", what=what, write="a path relative to the grid file")


def _policy_files(grid: GridConfig, base: Path) -> Checks:
    for index, gateway in enumerate(grid.gateways):
        path = path_of(gateway.pick.policy) if grid.allow_policy_files else ""
        if path and not (base / path).is_file():
            what = f"there is no file {str(base / path)!r}"
            write = "file.py:Name with a path relative to the grid file"
            yield Problem(where=f"$.gateways[{index}].pick.policy", what=what, write=write)


def _unknown(where: str, noun: str, name: str, known: Iterable[str]) -> Problem:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    write = close[0] if close else f"one of {', '.join(names[:8])}" if names else f"the {noun} into the file"
    return Problem(where=where, what=f"there is no {noun} {name!r}", write=write)


RULES: tuple[Callable[[GridConfig], Checks], ...] = (
    _ids,
    _sites,
    _cell_references,
    _owners,
    _emulated_once,
    _urls,
    _addresses,
    _port_clashes,
    _loopback,
    _baselines,
    _pick,
    _gate,
    _tuner,
    _kv,
    _values,
    _time_to_live,
    _models,
    _wan,
)
