"""Addresses of a grid file: every "ip:port" it names, where it names it, and whether it may be bound or reached."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tradewind.config.kv_endpoints import fault, rank_endpoints
from tradewind.config.schema import GridConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """One address that some process of the grid binds."""

    where: str  # path in the file
    address: str
    internal: bool = True  # False: meant for clients


def listens(grid: GridConfig) -> Iterator[Listen]:
    """Every address that a process of this grid binds, in file order; empty optional ones are left out."""
    for index, control in enumerate(grid.controls):
        yield Listen(where=f"$.controls[{index}].listen", address=control.listen)
        yield Listen(where=f"$.controls[{index}].admin", address=control.admin)
    for index, gateway in enumerate(grid.gateways):
        yield Listen(where=f"$.gateways[{index}].listen", address=gateway.listen, internal=False)
        yield Listen(where=f"$.gateways[{index}].admin", address=gateway.admin)
        yield Listen(where=f"$.gateways[{index}].envoy_admin", address=gateway.envoy_admin)
        if gateway.epp.listen:
            encrypted = bool(gateway.epp.tls_certificate)
            yield Listen(where=f"$.gateways[{index}].epp.listen", address=gateway.epp.listen, internal=not encrypted)
    for index, agent in enumerate(grid.agents):
        if agent.metrics:
            yield Listen(where=f"$.agents[{index}].metrics", address=agent.metrics)
    yield from _kv_events(grid)
    if grid.dashboard:
        yield Listen(where="$.dashboard", address=grid.dashboard)
    yield from _emulated(grid)


def _kv_events(grid: GridConfig) -> Iterator[Listen]:
    for index, cell in enumerate(grid.cells):
        section = cell.kv_events
        if section is None or not section.bind or fault(section):
            continue
        for address in (endpoint.removeprefix("tcp://") for endpoint in rank_endpoints(section)):
            if split_address(address):  # a name is refused elsewhere, and a file is no address
                yield Listen(where=f"$.cells[{index}].kv_events.endpoint", address=address)


def _emulated(grid: GridConfig) -> Iterator[Listen]:
    if grid.emulation is None:
        return
    yield Listen(where="$.emulation.api", address=grid.emulation.api)
    urls = {cell.id: (index, cell.url) for index, cell in enumerate(grid.cells)}
    for index, engine in enumerate(grid.emulation.engines):
        if engine.cell in urls:
            cell_index, url = urls[engine.cell]
            yield Listen(where=f"$.cells[{cell_index}].url", address=urlsplit(url).netloc)
        for site, address in sorted(engine.listen.items()):
            yield Listen(where=f"$.emulation.engines[{index}].listen.{site}", address=address)
        if engine.kv_events is not None:
            yield Listen(where=f"$.emulation.engines[{index}].kv_events.listen", address=engine.kv_events.listen)
    for index, exporter in enumerate(grid.emulation.dcgm):
        yield Listen(where=f"$.emulation.dcgm[{index}].listen", address=exporter.listen)


def split_address(address: str) -> tuple[str, int] | None:
    """("127.0.0.1", 7400) of "127.0.0.1:7400" or "[::1]:7400"; None when it is not an ip:port."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535 or not is_ip(host):
        return None
    return host, int(port)


def is_ip(host: str) -> bool:
    """Whether host is an IP address; names are not: an Envoy endpoint needs an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether host is a loopback IP address."""
    return is_ip(host) and ipaddress.ip_address(host).is_loopback
