"""docs/reference/metrics.md lists exactly what running processes serve. TRADEWIND_REWRITE=1 writes it: `make docs`."""

import asyncio
import os
import urllib.request
from pathlib import Path

from msgspec.structs import replace

from tests.support.envoy import free_port
from tests.support.grid import small_grid, with_grid
from tradewind.cli.reference import metrics_page
from tradewind.config.schema import EppConfig, TunerConfig
from tradewind.lab.grid import LiveGrid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"


def test_the_metrics_page_is_up_to_date(tmp_path: Path) -> None:
    config = small_grid(tmp_path, sites=("east",), cells_per_site=2, exporters=True)
    agent = replace(config.agents[0], metrics=f"127.0.0.1:{free_port()}")
    epp = EppConfig(listen=f"127.0.0.1:{free_port()}")
    gateways = [replace(gateway, routing="pick", epp=epp) for gateway in config.gateways]
    config = replace(config, agents=[agent], gateways=gateways, tuner=TunerConfig())
    written = metrics_page(with_grid(config, pages))
    if os.environ.get("TRADEWIND_REWRITE"):
        PAGE.write_text(written)
    assert PAGE.read_text() == written, "run `make docs`"


async def pages(grid: LiveGrid) -> list[tuple[str, str]]:
    """The metrics page of each kind of process, after one request has gone through."""
    await asyncio.to_thread(ask, grid.gateway.listen)
    await grid.until(lambda cells: all(seen.weight for seen in cells.values()), within_s=20)
    addresses = {
        "agent": grid.grid.agents[0].metrics,
        "control": grid.grid.controls[0].admin,
        "gateway": grid.gateway.admin,
    }
    return [(name, await asyncio.to_thread(fetch, address)) for name, address in addresses.items()]


def ask(address: str) -> None:
    body = b'{"model":"demo-70b","messages":[{"role":"user","content":"hi"}],"max_tokens":2}'
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", body, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return str(response.read().decode())
