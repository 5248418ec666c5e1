"""Two real vLLM in two sites, each behind a relay with WAN delay, under one `tradewind up`."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.contract.client import eventually
from tests.real_engine.vllm import RealEngine
from tests.support.emulator import free_ports
from tests.support.up import Up, running_up
from tradewind.config.schema import CellConfig, GatewayConfig, GridConfig

NEAR, FAR = "east-0", "west-0"
RTT_MS = {NEAR: 6.0, FAR: 40.0}
RELAY_S = 20.0


class Site:
    """The engines by cell, and the grid above them."""

    def __init__(self, engines: dict[str, RealEngine], up: Up) -> None:
        self.engines = engines
        self.up = up

    def restart(self, cell: str) -> None:
        """A new engine at the address of one that has been killed; blocks until it serves."""
        port = self.engines[cell].port
        self.engines[cell].close()
        self.engines[cell] = RealEngine(port=port)


@contextlib.contextmanager
def running_site(folder: Path) -> Iterator[Site]:
    """Blocks until the grid routes to both engines."""
    engines: dict[str, RealEngine] = {}
    with contextlib.ExitStack() as ended:
        ended.callback(_close_all, engines)
        ports = iter(free_ports(2 * len(RTT_MS)))
        for cell in RTT_MS:  # one after the other: a start takes all the CPU there is
            engines[cell] = RealEngine(port=next(ports))
        relays = dict(zip(RTT_MS, ports, strict=True))
        for cell, port in relays.items():
            ended.enter_context(_relay(port, engines[cell].port, rtt_ms=RTT_MS[cell]))
        yield Site(engines, ended.enter_context(running_up(_grid(engines, relays), folder)))


def _close_all(engines: dict[str, RealEngine]) -> None:
    for engine in engines.values():
        engine.close()


def _grid(engines: dict[str, RealEngine], relays: dict[str, int]) -> GridConfig:
    """Agents speak to the engines directly, the gateway through the relays."""
    return GridConfig(
        grid="real",
        sites=["east", "west"],
        gateways=[GatewayConfig(site="east", reach={cell: f"127.0.0.1:{port}" for cell, port in relays.items()})],
        cells=[
            CellConfig(id=cell, site=cell.partition("-")[0], url=f"http://127.0.0.1:{engine.port}")
            for cell, engine in engines.items()
        ],
        dashboard="",
    )


@contextlib.contextmanager
def _relay(listen: int, to: int, *, rtt_ms: float) -> Iterator[None]:
    addresses = ("--listen", f"127.0.0.1:{listen}", "--to", f"127.0.0.1:{to}")
    command = [sys.executable, "-m", "tradewind.cli.main", "relay", *addresses, "--rtt-ms", str(rtt_ms)]
    process = subprocess.Popen(command)
    try:
        eventually(lambda: _accepts(listen), within_s=RELAY_S, what="the relay listens")
        yield
    finally:
        process.terminate()
        process.wait()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False
