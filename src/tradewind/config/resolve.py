"""Settle what a grid file leaves open (port 0, WAN addresses, GPU ids) and write one file that every process reads."""

import random
import socket
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from tradewind.config.addresses import listens, split_address
from tradewind.config.check import check, known_sites
from tradewind.config.load import load
from tradewind.config.schema import (
    AgentConfig,
    CellConfig,
    ControlConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    EmulatedKvEventsConfig,
    EmulationConfig,
    EppConfig,
    GatewayConfig,
    GridConfig,
    KvEventsConfig,
    PickConfig,
)
from tradewind.core.pick.policies.own import path_of
from tradewind.engine.profiles import PROFILES

Item = TypeVar("Item", ControlConfig, GatewayConfig, AgentConfig, CellConfig)

RESOLVED_NAME = "grid.resolved.json"

# Below the kernel's range for outgoing connections, so that no client socket takes a settled port before its server.
FIRST_PORT, LAST_PORT = 20_000, 31_999
MAX_ATTEMPTS = 5_000


def load_checked(path: Path | str) -> GridConfig:
    """Load and check a grid file; its relative paths become absolute, relative to the file. Raises ConfigError."""
    grid = load(path)
    base = Path(path).resolve().parent
    return absolute(check(grid, source=str(path), base=base), base)


def absolute(grid: GridConfig, base: Path) -> GridConfig:
    """Grid with `state_dir`, the scenario file and files of policies as absolute paths."""
    emulation = grid.emulation
    if emulation is not None and emulation.scenario:
        emulation = replace(emulation, scenario=str(base / emulation.scenario))
    gateways = [replace(item, pick=_absolute_policy(item.pick, base)) for item in grid.gateways]
    return replace(grid, state_dir=str(base / grid.state_dir), emulation=emulation, gateways=gateways)


def _absolute_policy(pick: PickConfig, base: Path) -> PickConfig:
    path = path_of(pick.policy)
    return replace(pick, policy=str(base / path) + pick.policy.removeprefix(path)) if path else pick


def resolved_path(grid: GridConfig) -> Path:
    """Where the resolved file of a grid lies."""
    return Path(grid.state_dir) / RESOLVED_NAME


def write_resolved(grid: GridConfig) -> Path:
    """Write the resolved file into state_dir, in one step, and return its path. Raises OSError."""
    path = resolved_path(grid)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(grid), indent=1))
    draft.replace(path)
    return path


def resolve(grid: GridConfig, *, keep: GridConfig | None = None, rng: random.Random | None = None) -> GridConfig:
    """Settle every open address of a checked grid.

    `keep` is an earlier resolved grid of the same file: what it settled stays, so that a reload moves no port.
    Raises OSError when no free port is found.
    """
    ports = _Ports(grid, rng or random.Random())
    old = keep or GridConfig()
    emulation = _settle_emulation(grid, old.emulation, ports)
    cells = [_settle_cell(cell, emulation, _by_id(old.cells).get(cell.id), ports) for cell in grid.cells]
    controls = [
        replace(
            item,
            listen=ports.settle(item.listen, before.listen if before else ""),
            admin=ports.settle(item.admin, before.admin if before else ""),
        )
        for item in grid.controls
        for before in [_by_id(old.controls).get(item.id)]
    ]
    gateways = [_settle_gateway(item, emulation, _by_id(old.gateways).get(item.id), ports) for item in grid.gateways]
    agents = [
        replace(item, metrics=ports.settle(item.metrics, before.metrics if before else "") if item.metrics else "")
        for item in grid.agents
        for before in [_by_id(old.agents).get(item.id)]
    ]
    return replace(
        grid,
        sites=known_sites(grid),
        controls=controls,
        gateways=gateways,
        agents=agents,
        cells=cells,
        emulation=emulation,
        dashboard=ports.settle(grid.dashboard, old.dashboard) if grid.dashboard else "",
    )


class _Ports:
    """Hands out ports that are free now and that nobody else in the grid has."""

    def __init__(self, grid: GridConfig, rng: random.Random) -> None:
        split = [split_address(listen.address) for listen in listens(grid)]
        self._taken = {item[1] for item in split if item}
        self._rng = rng

    def settle(self, address: str, before: str = "") -> str:
        """The address itself, or with port 0 the one settled before, or a free port on the same host."""
        split = split_address(address)
        if split is None or split[1] != 0:
            return address
        host = address.rpartition(":")[0]
        if before.startswith(f"{host}:") and not before.endswith(":0"):
            self._taken.add(int(before.rpartition(":")[2]))
            return before
        return f"{host}:{self._free(split[0])}"

    def _free(self, host: str) -> int:
        for _attempt in range(MAX_ATTEMPTS):
            port = self._rng.randint(FIRST_PORT, LAST_PORT)
            if port not in self._taken and _can_bind(host, port):
                self._taken.add(port)
                return port
        raise OSError(f"no free port on {host} between {FIRST_PORT} and {LAST_PORT}")


def _can_bind(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _by_id(items: list[Item]) -> dict[str, Item]:
    return {item.id: item for item in items}


def _settle_emulation(grid: GridConfig, old: EmulationConfig | None, ports: _Ports) -> EmulationConfig | None:
    if grid.emulation is None:
        return None
    before = old or EmulationConfig()
    sites = sorted({gateway.site for gateway in grid.gateways})
    engines = {engine.cell: engine for engine in before.engines}
    exporters = {exporter.site: exporter for exporter in before.dcgm}
    return replace(
        grid.emulation,
        api=ports.settle(grid.emulation.api, before.api),
        engines=[_settle_engine(item, sites, engines.get(item.cell), ports) for item in grid.emulation.engines],
        dcgm=[_settle_exporter(item, exporters.get(item.site), ports) for item in grid.emulation.dcgm],
    )


def _settle_engine(
    engine: EmulatedEngineConfig, sites: list[str], old: EmulatedEngineConfig | None, ports: _Ports
) -> EmulatedEngineConfig:
    """One door for each gateway site, so that each path can have its own delay."""
    before = old.listen if old else {}
    doors = {site: engine.listen.get(site, "127.0.0.1:0") for site in sorted({*sites, *engine.listen})}
    listen = {site: ports.settle(address, before.get(site, "")) for site, address in doors.items()}
    uuids = engine.gpu_uuid or ",".join(_made_up_uuids(engine))
    return replace(engine, listen=listen, gpu_uuid=uuids, kv_events=_settle_kv_events(engine, old, ports))


def _settle_kv_events(
    engine: EmulatedEngineConfig, old: EmulatedEngineConfig | None, ports: _Ports
) -> EmulatedKvEventsConfig | None:
    if engine.kv_events is None:
        return None
    before = old.kv_events if old else None
    return replace(
        engine.kv_events, listen=ports.settle(engine.kv_events.listen, before.listen if before is not None else "")
    )


def _made_up_uuids(engine: EmulatedEngineConfig) -> list[str]:
    """One for each GPU of the profile, the same in every run."""
    count = PROFILES[engine.profile].gpu.count
    return [f"GPU-{engine.cell}" + (f"-{index}" if count > 1 else "") for index in range(count)]


def _settle_exporter(exporter: EmulatedDcgmConfig, old: EmulatedDcgmConfig | None, ports: _Ports) -> EmulatedDcgmConfig:
    return replace(exporter, listen=ports.settle(exporter.listen, old.listen if old else ""))


def _settle_cell(
    cell: CellConfig, emulation: EmulationConfig | None, old: CellConfig | None, ports: _Ports
) -> CellConfig:
    engine = next((item for item in emulation.engines if item.cell == cell.id), None) if emulation else None
    if emulation is None or engine is None:
        return cell
    scheme, _, address = cell.url.rstrip("/").partition("://")
    before = old.url.partition("://")[2] if old else ""
    exporter = next((item.listen for item in emulation.dcgm if item.site == cell.site), "")
    return replace(
        cell,
        url=f"{scheme}://{ports.settle(address, before)}",
        dcgm_url=cell.dcgm_url or (f"http://{exporter}/metrics" if exporter else ""),
        gpu_uuids=cell.gpu_uuids or engine.gpu_uuid.split(","),
        kv_events=cell.kv_events or _heard_at(engine.kv_events),
        hardware=cell.hardware or engine.profile,
    )


def _heard_at(published: EmulatedKvEventsConfig | None) -> KvEventsConfig | None:
    return KvEventsConfig(endpoint=f"tcp://{published.listen}", topic=published.topic) if published else None


def _settle_epp(gateway: GatewayConfig, before: GatewayConfig, ports: _Ports) -> EppConfig:
    listen = gateway.epp.listen
    return replace(gateway.epp, listen=ports.settle(listen, before.epp.listen) if listen else "")


def _settle_gateway(
    gateway: GatewayConfig, emulation: EmulationConfig | None, old: GatewayConfig | None, ports: _Ports
) -> GatewayConfig:
    doors = {engine.cell: engine.listen[gateway.site] for engine in emulation.engines} if emulation else {}
    before = old or GatewayConfig()
    return replace(
        gateway,
        listen=ports.settle(gateway.listen, before.listen),
        admin=ports.settle(gateway.admin, before.admin),
        envoy_admin=ports.settle(gateway.envoy_admin, before.envoy_admin),
        epp=_settle_epp(gateway, before, ports),
        reach=dict(sorted({**doors, **gateway.reach}.items())),
    )
