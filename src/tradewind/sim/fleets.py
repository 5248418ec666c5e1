"""Fleets of any size: equal cells in three sites, documents and requests in proportion to the cells."""

import random
from dataclasses import replace

from tradewind.engine.profiles import PROFILES
from tradewind.sim.scenario import CellSpec, Scenario
from tradewind.sim.scenarios import scenario_named
from tradewind.workload.classes import DocumentShape, over_documents
from tradewind.workload.mooncake import Trace

SITES, RTTS_S = ("a-near", "b-middle", "c-far"), (0.008, 0.022, 0.038)
DOCUMENTS_PER_CELL = 4
SHAPE = DocumentShape(  # 2,048 prompt tokens in the mean, three quarters of them a document
    documents=1, document_tokens=(1_536, 300), question_tokens=(512, 150), output_tokens=64
)
WARM_UP_S = 10.0


def fleet(cells: int, *, rate_per_cell: float, for_s: float, disturbance: str) -> Scenario:
    """So many RTX PRO 6000 behind one gateway, site by site."""
    limits = scenario_named("S2").cells[0].limits
    sites = [SITES[cell * len(SITES) // cells] for cell in range(cells)]
    shape = replace(SHAPE, documents=DOCUMENTS_PER_CELL * cells)

    def load(rng: random.Random) -> Trace:
        return over_documents(rng, shape, rate_per_s=rate_per_cell * cells, for_s=for_s)

    return Scenario(
        name=f"fleet-{cells}",
        title=f"{cells} x RTX PRO 6000, RTT 8/22/38 ms, {rate_per_cell:g}/s and {DOCUMENTS_PER_CELL} documents a cell",
        cells=tuple(
            CellSpec(cell_id=f"{site}-{number:04}", site=site, profile=PROFILES["rtx-pro-6000"], limits=limits)
            for number, site in enumerate(sites)
        ),
        rtts_s=(tuple(RTTS_S[SITES.index(site)] for site in sites),),
        load=load,
        for_s=for_s,
        disturbance=disturbance,
        warm_up_ratio=min(0.4, WARM_UP_S / for_s),
    )
