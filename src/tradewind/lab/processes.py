"""Which processes a grid file asks for, and how each is started and asked whether it is ready."""

import sys
from pathlib import Path

from tradewind.config.schema import AgentConfig, ControlConfig, GatewayConfig, GridConfig
from tradewind.gateway.envoy import command, executable
from tradewind.gateway.files import bootstrap_path, gateway_dir, prepare
from tradewind.gateway.gate.probe import SEARCH_PATH, library_dir
from tradewind.runtime.readiness import http_ok
from tradewind.runtime.supervise import ProcessSpec

EMULATOR = "emulator"
DASHBOARD = "dashboard"

# Arithmetic libraries start a thread per core by default; no process of a grid has work for them.
QUIET = (("OMP_NUM_THREADS", "1"), ("OPENBLAS_NUM_THREADS", "1"), ("PYTHONUNBUFFERED", "1"))


def tradewind_argv(*arguments: str) -> tuple[str, ...]:
    """The command line of a Tradewind process under this interpreter."""
    return (sys.executable, "-m", "tradewind.cli.main", *arguments)


def process_specs(grid: GridConfig, path: Path) -> list[ProcessSpec]:
    """Every process of a settled grid whose resolved form lies at `path`, in start order."""
    specs = [emulator_spec(grid, path)] if grid.emulation else []
    specs += [control_spec(control, path) for control in grid.controls]
    specs += [agent_spec(agent, path) for agent in grid.agents if _has_cells(agent, grid)]
    for gateway in grid.gateways:
        specs.append(worker_spec(gateway, path))
        if gateway.envoy == "supervised":
            specs.append(envoy_spec(grid, gateway))
    return [*specs, dashboard_spec(grid, path)] if grid.dashboard else specs


def _has_cells(agent: AgentConfig, grid: GridConfig) -> bool:
    return bool(agent.cells or grid.cells)


def emulator_spec(grid: GridConfig, path: Path) -> ProcessSpec:
    """The emulated engines and exporters."""
    assert grid.emulation is not None
    return ProcessSpec(
        name=EMULATOR,
        argv=tradewind_argv("emulate", "-f", str(path)),
        env=QUIET,
        ready=http_ok(grid.emulation.api, "/health"),
    )


def control_spec(control: ControlConfig, path: Path) -> ProcessSpec:
    """One control."""
    return ProcessSpec(
        name=f"control-{control.id}",
        argv=tradewind_argv("control", "-f", str(path), "--id", control.id),
        env=QUIET,
        ready=http_ok(control.admin, "/healthz"),
    )


def agent_spec(agent: AgentConfig, path: Path) -> ProcessSpec:
    """One agent; it has no address of its own unless it serves metrics."""
    return ProcessSpec(
        name=f"agent-{agent.id}",
        argv=tradewind_argv("agent", "-f", str(path), "--id", agent.id),
        env=QUIET,
        ready=http_ok(agent.metrics, "/metrics") if agent.metrics else None,
    )


def worker_name(gateway: GatewayConfig) -> str:
    """The process that decides for one Envoy."""
    return f"gateway-{gateway.id}"


def envoy_name(gateway: GatewayConfig) -> str:
    """The Envoy of one gateway."""
    return f"envoy-{gateway.id}"


def worker_spec(gateway: GatewayConfig, path: Path) -> ProcessSpec:
    """One gateway without its Envoy, so that restarting it cuts no stream."""
    return ProcessSpec(
        name=worker_name(gateway),
        argv=tradewind_argv("gateway", "-f", str(path), "--id", gateway.id, "--no-envoy"),
        env=QUIET,
        ready=http_ok(gateway.admin, "/healthz"),
    )


def envoy_spec(grid: GridConfig, gateway: GatewayConfig) -> ProcessSpec:
    """The Envoy of one gateway; its bootstrap is written before each start.

    Its grace is short: by the time it is told to end, nobody decides for it any more.
    """
    path = str(bootstrap_path(grid, gateway.id))
    return ProcessSpec(
        name=envoy_name(gateway),
        argv=command(executable(), path, concurrency=gateway.envoy_concurrency),
        prepare=lambda: prepare(grid, gateway),  # the folder may be gone by the time that Envoy is started again
        env=((SEARCH_PATH, str(library_dir(gateway_dir(grid, gateway.id)))),),
        ready=http_ok(gateway.envoy_admin, "/ready"),
        after=(worker_name(gateway),),
        grace_s=2.0,
    )


def dashboard_spec(grid: GridConfig, path: Path) -> ProcessSpec:
    """The live page."""
    return ProcessSpec(
        name=DASHBOARD,
        argv=tradewind_argv("dashboard", "-f", str(path)),
        env=QUIET,
        ready=http_ok(grid.dashboard, "/healthz"),
    )
