"""The faults that can be asked for: name, target, parameters, checked; and what they add up to on one engine."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tradewind.emulator.faults import (
    EngineFaults,
    ExporterFaults,
    MetricsFault,
    PathFault,
    Refusal,
)
from tradewind.emulator.plan import EmulationPlan
from tradewind.emulator.wan import GIVEN_UP_S
from tradewind.engine.board import Contention, Heat

Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[int, Meta(ge=1)]
Term = Literal["w", "b", "c", "d", "e", "a0", "ingest"]


class FaultError(Exception):
    """A fault that cannot be injected; the text says where and what to write."""


class _Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of one fault; unknown keys are refused."""


class NoParams(_Params, frozen=True, kw_only=True):
    """Takes none."""


class StartParams(_Params, frozen=True, kw_only=True):
    """Of restart and cold_start."""

    start_delay_s: NotNegative | None = None


class DrainParams(_Params, frozen=True, kw_only=True):
    """SIGTERM; `timeout_s` 0 cuts streams with an error event, more lets them finish."""

    timeout_s: NotNegative = 15.0


class SlowParams(_Params, frozen=True, kw_only=True):
    """Time of the chosen terms of the step law times `factor`."""

    factor: Positive
    terms: tuple[Term, ...] = ("w", "b", "c", "d", "e", "a0", "ingest")


class ThermalParams(_Params, frozen=True, kw_only=True):
    """A cooling failure."""

    heat_c: Annotated[float, Meta(ge=0, le=100)] = 45.0
    tau_s: Positive = 8.0
    floor: Annotated[float, Meta(gt=0, le=1)] = 0.35


class PcieParams(_Params, frozen=True, kw_only=True):
    """A busy host link."""

    a0: Annotated[float, Meta(ge=1)] = 4.0
    ingest: Annotated[float, Meta(ge=1)] = 2.0
    ramp_s: NotNegative = 3.0
    bytes_per_s: NotNegative = 20e9


class MaxModelLenParams(_Params, frozen=True, kw_only=True):
    """A smaller context; `advertise` false keeps the old value on /v1/models."""

    tokens: Tokens
    advertise: bool = True


class RefuseParams(_Params, frozen=True, kw_only=True):
    """Requests refused as for an unsupported dtype."""

    share: Share = 1.0
    status: Annotated[int, Meta(ge=400, le=599)] = 400
    min_prompt_tokens: Annotated[int, Meta(ge=0)] = 0
    max_prompt_tokens: Tokens = 1_000_000_000
    stream: bool | None = None
    message: str = Refusal().message


class MetricsParams(_Params, frozen=True, kw_only=True):
    """A broken /metrics page."""

    mode: Literal["500", "html", "truncated", "empty", "slow", "hang", "frozen"] = "500"
    delay_s: NotNegative = 5.0


class PartitionParams(_Params, frozen=True, kw_only=True):
    """No packet passes; after `reset_after_s` the gateway's side is reset, as its own kernel gives up. 0 = never."""

    reset_after_s: NotNegative = GIVEN_UP_S


class JitterParams(_Params, frozen=True, kw_only=True):
    """Another path than the configured one; what is not given stays."""

    jitter_ms: NotNegative | None = None
    rtt_ms: NotNegative | None = None
    mbit_per_s: NotNegative | None = None


Target = Literal["cell", "site", "path"]


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """What a fault takes."""

    targets: tuple[Target, ...]
    params: type[_Params]
    example: str


SPECS: dict[str, FaultSpec] = {
    "kill": FaultSpec(("cell",), NoParams, '{"fault": "kill", "cell": "a1", "for_s": 10}'),
    "restart": FaultSpec(("cell",), StartParams, '{"fault": "restart", "cell": "a1"}'),
    "cold_start": FaultSpec(
        ("cell",), StartParams, '{"fault": "cold_start", "cell": "a1", "params": {"start_delay_s": 10}}'
    ),
    "drain": FaultSpec(("cell",), DrainParams, '{"fault": "drain", "cell": "a1", "params": {"timeout_s": 15}}'),
    "hang": FaultSpec(("cell",), NoParams, '{"fault": "hang", "cell": "a1", "for_s": 30}'),
    "slow": FaultSpec(
        ("cell",), SlowParams, '{"fault": "slow", "cell": "a1", "params": {"factor": 2.5, "terms": ["b", "e"]}}'
    ),
    "thermal": FaultSpec(("cell",), ThermalParams, '{"fault": "thermal", "cell": "a1", "params": {"tau_s": 8}}'),
    "pcie": FaultSpec(("cell",), PcieParams, '{"fault": "pcie", "cell": "a1", "params": {"a0": 4, "ramp_s": 3}}'),
    "max_model_len": FaultSpec(
        ("cell",),
        MaxModelLenParams,
        '{"fault": "max_model_len", "cell": "a1", "params": {"tokens": 1024, "advertise": false}}',
    ),
    "refuse": FaultSpec(
        ("cell",), RefuseParams, '{"fault": "refuse", "cell": "a1", "params": {"share": 0.5, "status": 400}}'
    ),
    "metrics_broken": FaultSpec(
        ("cell",), MetricsParams, '{"fault": "metrics_broken", "cell": "a1", "params": {"mode": "truncated"}}'
    ),
    "kv_events_silent": FaultSpec(("cell",), NoParams, '{"fault": "kv_events_silent", "cell": "a1", "for_s": 60}'),
    "exporter_dead": FaultSpec(("site", "cell"), NoParams, '{"fault": "exporter_dead", "site": "east"}'),
    "exporter_frozen": FaultSpec(("site",), NoParams, '{"fault": "exporter_frozen", "site": "east"}'),
    "exporter_sentinels": FaultSpec(("site",), NoParams, '{"fault": "exporter_sentinels", "site": "east"}'),
    "exporter_empty": FaultSpec(("site",), NoParams, '{"fault": "exporter_empty", "site": "east"}'),
    "jitter": FaultSpec(
        ("path",), JitterParams, '{"fault": "jitter", "path": ["east", "west"], "params": {"jitter_ms": 20}}'
    ),
    "partition": FaultSpec(("path",), PartitionParams, '{"fault": "partition", "path": ["east", "west"], "for_s": 20}'),
}

EXPORTER_MODE_OF = {
    "exporter_frozen": "frozen",
    "exporter_sentinels": "sentinels",
    "exporter_empty": "empty",
}


class FaultRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault as written in a request or a scenario. `path` is [gateway site, cell site], either way round."""

    fault: str
    cell: str | None = None
    site: str | None = None
    path: tuple[str, str] | None = None
    params: dict[str, object] = {}
    for_s: Positive | None = None  # clears itself after so long


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A checked fault. Exactly one target is set."""

    name: str
    cell: str | None = None
    site: str | None = None
    path: tuple[str, str] | None = None
    params: _Params
    for_s: float | None = None

    @property
    def target(self) -> str:
        """For people."""
        return self.cell or self.site or "/".join(self.path or ())


@dataclass(frozen=True, slots=True)
class Known:
    """What exists to be broken."""

    cells: tuple[str, ...]
    exporter_sites: tuple[str, ...]
    sites: tuple[str, ...]
    publishers: tuple[str, ...] = ()  # cells whose engines publish KV events


def known_in(plan: EmulationPlan) -> Known:
    """What a plan runs."""
    return Known(
        cells=tuple(engine.cell_id for engine in plan.engines),
        exporter_sites=tuple(exporter.site for exporter in plan.exporters),
        sites=plan.sites,
        publishers=tuple(engine.cell_id for engine in plan.engines if engine.kv_events is not None),
    )


def check(request: FaultRequest, known: Known) -> Fault:
    """Returns the checked fault; raises FaultError."""
    spec = SPECS.get(request.fault)
    if spec is None:
        raise FaultError(f"fault: {request.fault!r} is unknown; write one of {', '.join(sorted(SPECS))}, clear")
    given = [kind for kind in ("cell", "site", "path") if getattr(request, kind) is not None]
    if len(given) != 1 or given[0] not in spec.targets:
        wanted = " or ".join(spec.targets)
        raise FaultError(f"{request.fault}: needs exactly one target, {wanted}; write e.g. {spec.example}")
    _check_target(request, known)
    try:
        params = msgspec.convert(request.params, type=spec.params)
    except msgspec.ValidationError as error:
        raise FaultError(f"{request.fault}.params: {error}; write e.g. {spec.example}") from error
    return Fault(
        name=request.fault,
        cell=request.cell,
        site=request.site,
        path=request.path,
        params=params,
        for_s=request.for_s,
    )


def engine_state(faults: Iterable[Fault], *, cell: str, site: str) -> EngineFaults:
    """What the faults in force, oldest first, add up to on the engine of `cell`."""
    state = EngineFaults()
    for fault in faults:
        if fault.cell == cell:
            state = _on_engine(state, fault)
        elif fault.path is not None and site in fault.path:
            gateway_site = fault.path[0] if fault.path[1] == site else fault.path[1]
            state = _on_path(state, fault, gateway_site)
    return state


def exporter_state(faults: Iterable[Fault], *, site: str, uuids_of: dict[str, tuple[str, ...]]) -> ExporterFaults:
    """What the faults in force add up to on the exporter of `site`; `uuids_of` has the GPUs of its cells."""
    mode = "ok"
    missing: list[str] = []
    for fault in faults:
        if fault.site == site:
            mode = EXPORTER_MODE_OF.get(fault.name, mode)
        elif fault.name == "exporter_dead" and fault.cell in uuids_of:
            missing.extend(uuids_of[fault.cell])
    return ExporterFaults(mode=mode, missing_gpus=tuple(missing))


def _check_target(request: FaultRequest, known: Known) -> None:
    if request.cell is not None and request.cell not in known.cells:
        raise FaultError(f"cell: {request.cell!r} is not emulated; write one of {', '.join(known.cells)}")
    if request.site is not None and request.site not in known.exporter_sites:
        sites = ", ".join(known.exporter_sites) or "none: there is no emulation.dcgm"
        raise FaultError(f"site: {request.site!r} has no exporter; write one of {sites}")
    if request.fault == "kv_events_silent" and request.cell not in known.publishers:
        cells = ", ".join(known.publishers) or "none: no engine has kv_events"
        raise FaultError(f"cell: {request.cell!r} publishes no KV events; write one of {cells}")
    for site in request.path or ():
        if site not in known.sites:
            raise FaultError(f"path: {site!r} is not a site; write two of {', '.join(known.sites)}")


def _on_engine(state: EngineFaults, fault: Fault) -> EngineFaults:
    replace = msgspec.structs.replace
    match fault.params:
        case SlowParams() as slow:
            terms = dict(state.slow)
            for term in slow.terms:
                terms[term] = terms.get(term, 1.0) * slow.factor
            return replace(state, slow=terms)
        case ThermalParams() as thermal:
            return replace(state, thermal=msgspec.convert(thermal, Heat, from_attributes=True))
        case PcieParams() as pcie:
            return replace(state, pcie=msgspec.convert(pcie, Contention, from_attributes=True))
        case MaxModelLenParams() as limit:
            return replace(state, max_model_len=limit.tokens, advertise_max_model_len=limit.advertise)
        case RefuseParams() as refuse:
            return replace(state, refuse=msgspec.convert(refuse, Refusal, from_attributes=True))
        case MetricsParams() as metrics:
            return replace(state, metrics=msgspec.convert(metrics, MetricsFault, from_attributes=True))
        case DrainParams() as drain:
            return replace(state, shutdown_timeout_s=drain.timeout_s)
        case _:
            return replace(state, **{fault.name: True}) if fault.name in ("hang", "kv_events_silent") else state


def _on_path(state: EngineFaults, fault: Fault, gateway_site: str) -> EngineFaults:
    path = state.paths.get(gateway_site, PathFault())
    if isinstance(fault.params, JitterParams):
        given = {key: value for key, value in msgspec.structs.asdict(fault.params).items() if value is not None}
        path = msgspec.structs.replace(path, **given)
    else:
        params = fault.params if isinstance(fault.params, PartitionParams) else PartitionParams()
        path = msgspec.structs.replace(path, cut=True, reset_after_s=params.reset_after_s)
    return msgspec.structs.replace(state, paths=state.paths | {gateway_site: path})
