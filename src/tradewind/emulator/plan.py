"""From a grid's configuration to what each emulator process is told; errors say where and what to write."""

import random
from dataclasses import dataclass
from importlib.util import find_spec

from tradewind.config.schema import (
    CellConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    EmulatedKvEventsConfig,
    EmulationConfig,
    GridConfig,
    WanConfig,
)
from tradewind.emulator.wan import Wan
from tradewind.engine.profiles import PROFILES

BLOCK_SIZE_TOKENS = 16  # vLLM's default on GPUs


class EmulationError(Exception):
    """The emulation section cannot be run; the text says where and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One emulated engine."""

    cell_id: str
    site: str
    address: str  # "ip:port" without WAN delay
    paths: dict[str, tuple[str, Wan]]  # gateway site -> (address, path)
    profile: str
    names: tuple[str, ...]  # served model names, the first one is the base
    max_model_len: int
    max_num_seqs: int
    max_num_queued_reqs: int
    start_delay_s: float
    seed: int
    slot: int
    gpu_uuids: tuple[str, ...]
    kv_capacity_tokens: int
    kv_events: EmulatedKvEventsConfig | None = None
    block_size_tokens: int = BLOCK_SIZE_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """One emulated DCGM exporter."""

    site: str
    address: str
    new_names: bool
    interval_s: float
    gpus: tuple["ExporterGpu", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterGpu:
    """One GPU on an exporter's page."""

    index: int
    uuid: str
    profile: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationPlan:
    """Everything the supervisor starts."""

    api: str
    engines: tuple[EngineSettings, ...]
    exporters: tuple[ExporterSettings, ...]
    sites: tuple[str, ...]
    scenario: str = ""


def build_plan(config: GridConfig) -> EmulationPlan:
    """Checks the emulation section; raises EmulationError."""
    emulation = config.emulation
    if emulation is None:
        raise EmulationError("emulation: missing; add the section with at least one entry under emulation.engines")
    cells = {cell.id: cell for cell in config.cells}
    engines = tuple(_engine_settings(engine, cells, emulation, slot) for slot, engine in enumerate(emulation.engines))
    _check_unique(engines)
    exporters = tuple(_exporter_settings(index, dcgm, engines) for index, dcgm in enumerate(emulation.dcgm))
    sites = sorted({*config.sites, *(engine.site for engine in engines), *(g.site for g in config.gateways)})
    return EmulationPlan(
        api=emulation.api, engines=engines, exporters=exporters, sites=tuple(sites), scenario=emulation.scenario
    )


def _engine_settings(
    engine: EmulatedEngineConfig, cells: dict[str, CellConfig], emulation: EmulationConfig, slot: int
) -> EngineSettings:
    where = f"emulation.engines[{slot}]"
    cell = cells.get(engine.cell)
    if cell is None:
        raise EmulationError(
            f"{where}.cell: {engine.cell!r} is not in cells; known: {', '.join(sorted(cells)) or 'none'}"
        )
    profile = PROFILES.get(engine.profile)
    if profile is None:
        raise EmulationError(
            f"{where}.profile: {engine.profile!r} is unknown; write one of {', '.join(sorted(PROFILES))}"
        )
    for name, value in (("max_model_len", engine.max_model_len), ("max_num_seqs", engine.max_num_seqs)):
        if value < 1:
            raise EmulationError(f"{where}.{name}: {value} is too small; write a number of at least 1")
    if engine.kv_events is not None and find_spec("zmq") is None:
        raise EmulationError(f"{where}.kv_events: needs pyzmq: install tradewind[kv-events], or leave kv_events out")
    capacity_tokens = engine.kv_capacity_tokens or profile.kv_capacity_tokens
    uuids = tuple(uuid.strip() for uuid in engine.gpu_uuid.split(",") if uuid.strip())
    return EngineSettings(
        cell_id=cell.id,
        site=cell.site,
        address=_address_of(cell, where),
        paths={
            site: (address, _wan(site, cell.site, emulation.wan)) for site, address in sorted(engine.listen.items())
        },
        profile=engine.profile,
        names=(engine.model, *engine.aliases),
        # vLLM starts with no longer a context than its KV cache holds; one block is for the token after a full one.
        max_model_len=min(engine.max_model_len, (capacity_tokens // BLOCK_SIZE_TOKENS - 1) * BLOCK_SIZE_TOKENS),
        max_num_seqs=engine.max_num_seqs,
        max_num_queued_reqs=engine.max_num_queued_reqs,
        start_delay_s=engine.start_delay_s,
        seed=random.Random(f"{emulation.seed}/{cell.id}").getrandbits(32),
        slot=slot,
        kv_capacity_tokens=capacity_tokens,
        kv_events=engine.kv_events,
        gpu_uuids=uuids or _made_up_uuids(cell, profile.gpu.count),
    )


def _made_up_uuids(cell: CellConfig, count: int) -> tuple[str, ...]:
    """The cell's own list if it has one, else one per GPU, the same in every run."""
    if cell.gpu_uuids:
        return tuple(cell.gpu_uuids)
    draw = random.Random(f"gpu/{cell.id}")
    digits = [f"{draw.getrandbits(128):032x}" for _ in range(count)]
    return tuple(f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits)


def _exporter_settings(
    position: int, dcgm: EmulatedDcgmConfig, engines: tuple[EngineSettings, ...]
) -> ExporterSettings:
    mine = [engine for engine in engines if engine.site == dcgm.site]
    if not mine:
        raise EmulationError(f"emulation.dcgm[{position}].site: no emulated engine is in site {dcgm.site!r}")
    if dcgm.interval_s <= 0:
        raise EmulationError(f"emulation.dcgm[{position}].interval_s: write a number of seconds above 0")
    boards = [(uuid, engine) for engine in mine for uuid in engine.gpu_uuids]
    return ExporterSettings(
        site=dcgm.site,
        address=dcgm.listen,
        new_names=dcgm.names == "new",
        interval_s=dcgm.interval_s,
        gpus=tuple(
            ExporterGpu(index=index, uuid=uuid, profile=engine.profile, slot=engine.slot)
            for index, (uuid, engine) in enumerate(boards)
        ),
    )


def _wan(gateway_site: str, cell_site: str, wans: list[WanConfig]) -> Wan:
    for wan in wans:
        if {wan.a, wan.b} == {gateway_site, cell_site} and (wan.a != wan.b) == (gateway_site != cell_site):
            return Wan(rtt_s=wan.rtt_ms / 1e3, jitter_s=wan.jitter_ms / 1e3, bytes_per_s=wan.mbit_per_s * 1e6 / 8)
    return Wan()


def _address_of(cell: CellConfig, where: str) -> str:
    scheme, _, rest = cell.url.partition("://")
    address = rest.partition("/")[0]
    if scheme != "http" or ":" not in address:
        raise EmulationError(f"{where}: cell {cell.id!r} needs url: http://ip:port, not {cell.url!r}")
    return address


def _check_unique(engines: tuple[EngineSettings, ...]) -> None:
    seen: dict[str, str] = {}
    for engine in engines:
        events = [engine.kv_events.listen] if engine.kv_events is not None else []
        for address in (engine.address, *(address for address, _ in engine.paths.values()), *events):
            if address in seen and not address.endswith(":0"):
                raise EmulationError(
                    f"emulation.engines: {engine.cell_id} and {seen[address]} both listen on {address}"
                )
            seen[address] = engine.cell_id
