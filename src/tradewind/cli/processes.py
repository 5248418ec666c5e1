"""Commands that run one process of a grid in the foreground."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.options import (
    DEFAULT_FILE,
    EXIT_USAGE,
    MAX_MS,
    FileOption,
    IdOption,
    JsonOption,
    explained,
    fail,
    pick_id,
    print_json,
    say,
    show,
)


def control(file: FileOption = DEFAULT_FILE, control_id: IdOption = "") -> None:
    """Run one control process: registry, life cycle, grid views."""
    with explained():
        from tradewind.control.main import run
        from tradewind.lab.locate import settled

        grid, _path = settled(file)
        chosen = pick_id([item.id for item in grid.controls], control_id, noun="control")
        raise typer.Exit(run(grid, chosen))


def agent(
    file: FileOption = DEFAULT_FILE,
    agent_id: IdOption = "",
    dry_run: Annotated[
        str, typer.Option("--dry-run", metavar="URL", help="Print what an agent sees of one engine, and exit.")
    ] = "",
    dcgm: Annotated[str, typer.Option("--dcgm", metavar="URL", help="With --dry-run: a GPU exporter's page.")] = "",
    kv_events: Annotated[
        str,
        typer.Option("--kv-events", metavar="ENDPOINT", help="With --dry-run: where the engine publishes KV events."),
    ] = "",
    kv_bind: Annotated[
        bool, typer.Option("--kv-bind", help="With --kv-events: the engine connects to it, so wait there.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one agent: it watches the engines of its cells and reports them to every control."""
    with explained(as_json=as_json):
        if dry_run:
            raise typer.Exit(_look(dry_run, dcgm, kv_events, kv_bind=kv_bind, as_json=as_json))
        if dcgm or kv_events or kv_bind or as_json:
            fail("--dcgm, --kv-events, --kv-bind and --json go with --dry-run URL", code=EXIT_USAGE)
        from tradewind.agent.main import run
        from tradewind.lab.locate import settled
        from tradewind.runtime.log import setup_logging

        setup_logging("agent")

        grid, _path = settled(file)
        chosen = pick_id([item.id for item in grid.agents], agent_id, noun="agent")
        raise typer.Exit(run(grid, chosen))


def _look(url: str, dcgm: str, endpoint: str, *, kv_bind: bool, as_json: bool) -> int:
    from tradewind.agent.dry_run import dry_run
    from tradewind.config.schema import KvEventsConfig

    try:
        kv_events = KvEventsConfig(endpoint=endpoint, bind=kv_bind) if endpoint else None
        report = dry_run(url, dcgm_url=dcgm, kv_events=kv_events)
    except ValueError as error:
        fail(str(error), code=EXIT_USAGE)
    if as_json:
        print_json(report.as_dict())
    else:
        show(report.as_table())
    return 0 if report.reachable else 1


def gateway(
    file: FileOption = DEFAULT_FILE,
    gateway_id: IdOption = "",
    no_envoy: Annotated[bool, typer.Option("--no-envoy", help="Decide only; somebody else owns the Envoy.")] = False,
) -> None:
    """Run one gateway and its Envoy: measure paths, score cells, configure Envoy."""
    with explained():
        from tradewind.gateway.main import run
        from tradewind.lab.locate import settled

        grid, path = settled(file)
        chosen = pick_id([item.id for item in grid.gateways], gateway_id, noun="gateway")
        section = next(item for item in grid.gateways if item.id == chosen)
        if no_envoy or section.envoy == "external":
            raise typer.Exit(run(grid, chosen, grid_file=path))
        from tradewind.lab.up import run_gateway

        raise typer.Exit(run_gateway(grid, path, section, say=say))


def emulate(file: FileOption = DEFAULT_FILE) -> None:
    """Run the emulated engines, exporters and WAN paths of a grid file."""
    with explained():
        from tradewind.emulator.main import run
        from tradewind.emulator.plan import EmulationError
        from tradewind.lab.locate import settled
        from tradewind.runtime.log import setup_logging

        setup_logging("emulator")
        grid, _path = settled(file)
        try:
            raise typer.Exit(run(grid))
        except EmulationError as error:
            fail(f"{file}: {error}", code=EXIT_USAGE)


def relay(
    listen: Annotated[str, typer.Option("--listen", help="Where to accept, ip:port.")],
    to: Annotated[str, typer.Option("--to", help="Where to connect, ip:port.")],
    rtt_ms: Annotated[float, typer.Option("--rtt-ms", min=0, max=MAX_MS)] = 0.0,
    jitter_ms: Annotated[float, typer.Option("--jitter-ms", min=0, max=MAX_MS)] = 0.0,
    mbit_per_s: Annotated[float, typer.Option("--mbit-per-s", min=0, max=1e6, help="0 = no limit.")] = 0.0,
) -> None:
    """Put WAN delay, jitter and bandwidth in front of a real engine's port."""
    with explained():
        from tradewind.config.addresses import split_address
        from tradewind.emulator.relay import run_relay
        from tradewind.emulator.wan import Wan

        for option, address in (("--listen", listen), ("--to", to)):
            if split_address(address) is None:
                fail(f"{option} {address}: write ip:port, e.g. 127.0.0.1:8000", code=EXIT_USAGE)
        run_relay(listen, to, Wan(rtt_s=rtt_ms / 1e3, jitter_s=jitter_ms / 1e3, bytes_per_s=mbit_per_s * 1e6 / 8))


def dashboard(file: FileOption = DEFAULT_FILE) -> None:
    """Serve the live page of a running grid; `up` starts it by itself."""
    with explained():
        from tradewind.dashboard.main import run
        from tradewind.lab.locate import settled

        grid, _path = settled(file)
        if not grid.dashboard:
            fail("the file has dashboard: ''; write an address, e.g. dashboard: 127.0.0.1:7500", code=EXIT_USAGE)
        raise typer.Exit(run(grid))


def up(
    file: FileOption = DEFAULT_FILE,
    as_json: JsonOption = False,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Turn scoring off: round-robin, least-request[:N] or random.")
    ] = "",
) -> None:
    """Run a whole grid on this machine: control, agents, gateways with their Envoys, emulation, live page."""
    with explained(as_json=as_json):
        from tradewind.lab.up import Places, run_up

        def ready(places: Places) -> None:
            print_json(places) if as_json else print(welcome(places.gateways, places.models, places.dashboard, file))

        raise typer.Exit(run_up(file, say=say, ready=ready, baseline=baseline))


def welcome(gateways: dict[str, str], models: list[str], dashboard: str, file: Path) -> str:
    """What a person wants to know of a grid that has just come up."""
    address = next(iter(gateways.values()), "http://...")
    model = models[0] if models else "MODEL"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Where does the wind blow?"}]})
    lines = [f"The grid is up. Clients speak to {', '.join(gateways.values())}; try:", ""]
    lines += [f"  curl {address}/v1/chat/completions -H 'content-type: application/json' -d '{body}'", ""]
    lines += [f"Live page: {dashboard}"] if dashboard else []
    of = "" if file == DEFAULT_FILE else f" -f {shlex.quote(str(file))}"
    return "\n".join([*lines, f"Ask with `tradewind status{of}` or `tradewind top{of}`; Ctrl-C ends everything."])
