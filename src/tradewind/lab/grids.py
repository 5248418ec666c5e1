"""Grid configurations for the lab: so many sites of so many emulated cells, made from a few numbers."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from tradewind.config.schema import (
    AgentConfig,
    CellConfig,
    ControlConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    EmulationConfig,
    GateConfig,
    GatewayConfig,
    GridConfig,
    PickConfig,
    WanConfig,
)

ANY = "127.0.0.1:0"
MODEL = "demo-70b"

# Round-trip times between a gateway in the first site and each site, and their jitter; simulation.md's declared fleet
# has 8/22/38 ms with 1/2/4 ms.
WAN_MS = ((8.0, 1.0), (22.0, 2.0), (38.0, 4.0))
FAR_WAN_MS = ((32.0, 3.0), (120.0, 3.0), (218.0, 3.0))  # three regions, as in the GORGO paper


def emulated_grid(
    *,
    sites: Sequence[str] = ("east", "west", "south"),
    cells_per_site: int = 3,
    profile: str = "rtx-pro-6000",
    model: str = MODEL,
    baseline: str = "",
    policy: str = "",
    state_dir: str = "run",
    seed: int = 1,
    wan_ms: Sequence[tuple[float, float]] = WAN_MS,
    exporters: bool = True,
    dashboard: bool = False,
    scrape_s: float = 1.0,
    max_num_seqs: int = 256,
    gate: Literal["auto", "wasm", "native", "none"] = "auto",
    name: str = "lab",
) -> GridConfig:
    """One control, one gateway and one agent process for emulated cells SITE-0, SITE-1, ...; every port open.

    `policy` names what a picker decides by; "" goes by weights. `max_num_seqs` is each engine's; `gate` the
    gateway's mode of the first-token gate.
    """
    routed = {"routing": "pick", "pick": PickConfig(policy=policy)} if policy else {}
    gateway = GatewayConfig(site=sites[0], baseline=baseline, gate=GateConfig(mode=gate))
    cell_ids = [(site, f"{site}-{index}") for site in sites for index in range(cells_per_site)]
    return GridConfig(
        grid=name,
        state_dir=state_dir,
        sites=list(sites),
        models=[model],
        controls=[ControlConfig(site=sites[0])],
        gateways=[msgspec.structs.replace(gateway, **routed)],
        agents=[AgentConfig(scrape_s=scrape_s)],
        cells=[CellConfig(id=cell_id, site=site, url=f"http://{ANY}") for site, cell_id in cell_ids],
        emulation=EmulationConfig(
            seed=seed,
            engines=[
                EmulatedEngineConfig(cell=cell_id, profile=profile, model=model, max_num_seqs=max_num_seqs)
                for _site, cell_id in cell_ids
            ],
            dcgm=[EmulatedDcgmConfig(site=site) for site in sites] if exporters else [],
            wan=[
                WanConfig(a=sites[0], b=site, rtt_ms=rtt_ms, jitter_ms=jitter_ms)
                for site, (rtt_ms, jitter_ms) in zip(sites, wan_ms, strict=False)
            ],
        ),
        dashboard=ANY if dashboard else "",
    )
