"""From what the grid file wants and what Envoy accepts to the gate in force. Pure."""

from dataclasses import dataclass, replace
from typing import Literal

from tradewind.config.schema import GatewayConfig
from tradewind.xds.gate.filter import GATE_FILTER, wasm_code
from tradewind.xds.settings import GateModule

_BLAMED = (GATE_FILTER, "wasm", "dynamic module", "dynamic_module")

Running = Literal["wasm", "native", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether Envoy takes one form of the gate, and why not; `accepted` None: it was not asked."""

    accepted: bool | None = None
    why: str = "not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is known of the Envoy that will run."""

    envoy: str = ""  # its version, or why that is unknown
    wasm: Finding = Finding()
    native: Finding = Finding()
    library: str = ""  # of the native gate, as Envoy finds it


NO_FINDINGS = Findings()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChoice:
    """The gate in force, and why this one."""

    wanted: str = "none"
    mode: Running = "none"
    why: str = ""
    envoy: str = ""
    module: GateModule | None = None

    @property
    def missing(self) -> bool:
        """Wanted, and not there: streams that wait in an engine that dies are lost."""
        return self.mode == "none" and self.wanted != "none"


def choose(gateway: GatewayConfig, found: Findings) -> GateChoice:
    """The gate for this gateway. Never an error: an Envoy that takes none of them serves without."""
    wanted = gateway.gate.mode
    if wanted == "none":
        return GateChoice(why="the grid file says so", envoy=found.envoy)
    if gateway.envoy == "external":
        return _external(gateway, found)
    if wanted in ("auto", "wasm") and found.wasm.accepted:
        return _wasm(gateway, "Envoy accepts the module", found)
    if wanted in ("auto", "native") and found.native.accepted:
        instead = f"; wasm: {found.wasm.why}" if wanted == "auto" else ""
        module = GateModule(library=found.library, deaths=gateway.gate.deaths)
        why = "Envoy accepts the library" + instead
        return GateChoice(wanted=wanted, mode="native", why=why, envoy=found.envoy, module=module)
    reasons = [f"{name}: {finding.why}" for name, finding in _asked(wanted, found)]
    return GateChoice(wanted=wanted, mode="none", why="; ".join(reasons), envoy=found.envoy)


def _external(gateway: GatewayConfig, found: Findings) -> GateChoice:
    """An Envoy that cannot be asked beforehand: its owner must say, and what it refuses is withdrawn."""
    wanted = gateway.gate.mode
    if wanted == "wasm":
        return _wasm(gateway, "the grid file says that this Envoy takes it", found)
    why = "this Envoy is external and cannot be asked; gate: {mode: wasm} if it has the V8 runtime"
    return GateChoice(wanted=wanted, mode="none", why=why, envoy=found.envoy)


def _wasm(gateway: GatewayConfig, why: str, found: Findings) -> GateChoice:
    module = GateModule(code=wasm_code(), deaths=gateway.gate.deaths)
    return GateChoice(wanted=gateway.gate.mode, mode="wasm", why=why, envoy=found.envoy, module=module)


def _asked(wanted: str, found: Findings) -> list[tuple[str, Finding]]:
    named = {"wasm": found.wasm, "native": found.native}
    return [(name, finding) for name, finding in named.items() if wanted in ("auto", name)]


def rechosen(now: GateChoice, before: GatewayConfig, gateway: GatewayConfig, found: Findings) -> GateChoice:
    """After a change of the file while the gateway runs. A form that nobody asked Envoy about replaces no other.

    Without another mode the form stays as it is: one that was withdrawn does not come back.
    """
    if now.module is not None:
        now = replace(now, module=replace(now.module, deaths=gateway.gate.deaths))
    if gateway.gate.mode == before.gate.mode:
        return now
    chosen = choose(gateway, found)
    unasked = any(finding.accepted is None for _, finding in _asked(chosen.wanted, found))
    if not (chosen.missing and unasked) or gateway.envoy == "external":
        return chosen
    why = f"Envoy is asked about {chosen.wanted} when the gateway's process starts again"
    return replace(now, wanted=chosen.wanted, why=why)


def blames_gate(reason: str) -> bool:
    """Whether Envoy's reason for refusing clusters is the gate in them: its name, or the machinery that runs it."""
    return any(word in reason.lower() for word in _BLAMED)


def withdrawn(choice: GateChoice, reason: str) -> GateChoice:
    """Envoy refused clusters that hold the gate: serving comes first."""
    return GateChoice(wanted=choice.wanted, mode="none", why=f"Envoy refused it: {reason}", envoy=choice.envoy)
