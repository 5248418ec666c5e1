"""`tradewind`: the command line. Commands import what they need when they run, so that --help is quick."""

import os
import sys

import typer

from tradewind.cli import asking, demo, doctor, epp, explain, files, lab, load, processes, replay, sim, tuner, workload
from tradewind.cli.options import EXIT_FAILED, os_text, say

app = typer.Typer(
    name="tradewind",
    help="Route LLM inference across sites: unmodified engines behind an unmodified Envoy.",
    epilog="First steps: tradewind demo, or tradewind up -f examples/three-sites.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _register() -> None:
    """Every command with an example, in the order in which a newcomer meets them."""
    for command, example in (
        (demo.demo, "tradewind demo --keep"),
        (processes.up, "tradewind up -f grid.yaml"),
        (asking.status, "tradewind status -f grid.yaml --json"),
        (asking.top, "tradewind top -f grid.yaml"),
        (explain.explain, "tradewind explain 7d1f2a54-0c1e-9f6b-8a53-3b5c1f0e2d11 -f grid.yaml"),
        (replay.replay, "tradewind replay run/gateway-gateway/picks.ndjson"),
        (asking.drain, "tradewind drain east-0 --reason 'driver update'"),
        (asking.undrain, "tradewind undrain east-0"),
        (files.validate, "tradewind validate -f grid.yaml"),
        (doctor.doctor, "tradewind doctor -f grid.yaml"),
        (processes.agent, "tradewind agent --dry-run http://127.0.0.1:8000"),
        (processes.control, "tradewind control -f grid.yaml --id control"),
        (processes.gateway, "tradewind gateway -f grid.yaml --id gateway"),
        (processes.emulate, "tradewind emulate -f grid.yaml"),
        (processes.relay, "tradewind relay --listen 127.0.0.1:9000 --to 127.0.0.1:8000 --rtt-ms 40"),
        (load.load, "tradewind load http://127.0.0.1:8080 --class baseline_mixed --rate 10 --for 60"),
        (files.bootstrap, "tradewind bootstrap -f grid.yaml --id gateway > envoy.json"),
        (epp.epp_conformance, "tradewind epp-conformance --target 127.0.0.1:9002 --model demo"),
        (files.version, "tradewind version --json"),
    ):
        app.command(epilog=f"Example: {example}")(command)
    app.add_typer(tuner.app, name="tuner", no_args_is_help=True)
    app.add_typer(lab.app, name="lab", no_args_is_help=True)
    app.command(hidden=True, epilog="Example: tradewind dashboard -f grid.yaml")(processes.dashboard)
    app.add_typer(sim.app, name="sim")
    app.add_typer(workload.app, name="workload")


_register()


def main() -> None:
    """Entry point of the `tradewind` script."""
    # A process with open channels may lose a child before its exec to gRPC's fork handlers (grpc/grpc#43055).
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        app()
    except OSError as error:  # stdout on a full disk, say, outside of what `explained` holds
        say(f"error: {os_text(error)}")
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
