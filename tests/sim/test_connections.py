"""A new connection takes its round trips, a pooled one does not."""

from dataclasses import replace

import pytest

from tests.sim.policies import in_turn
from tradewind.sim.grid import SimGrid
from tradewind.sim.scenarios import scenario_named
from tradewind.sim.wan import WanProfile
from tradewind.workload.mooncake import Trace, TracedRequest


def ttfts(*, connect_rtts: float, at_s: tuple[float, ...]) -> list[float]:
    """Of requests to one cell behind 100 ms."""
    base = scenario_named("S2")
    requests = tuple(TracedRequest(at_s=when_s, prompt_tokens=64, output_tokens=2) for when_s in at_s)
    block_tokens = base.cells[0].limits.block_size_tokens
    scenario = replace(
        base,
        cells=base.cells[:1],
        rtts_s=((0.1,),),
        load=lambda _rng: Trace(requests=requests, block_tokens=block_tokens),
        for_s=60.0,
        wan=WanProfile(connect_rtts=connect_rtts),
    )
    found = [record.ttft_s for record in SimGrid(scenario, in_turn([]), seed=1).run().records]
    assert all(found)
    return [ttft_s for ttft_s in found if ttft_s is not None]


def test_a_connection_opens_in_a_round_trip_and_is_used_again_for_four_seconds() -> None:
    at_s = (1.0, 3.0, 20.0)  # the first opens one, the second finds it idle, the third finds it closed
    with_it, without = ttfts(connect_rtts=1.0, at_s=at_s), ttfts(connect_rtts=0.0, at_s=at_s)
    assert [late - soon for late, soon in zip(with_it, without, strict=True)] == pytest.approx([0.1, 0.0, 0.1])
