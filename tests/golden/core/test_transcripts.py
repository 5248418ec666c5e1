"""Scenario transcripts: what the scorer did. TRADEWIND_REWRITE=1 writes them anew, to be read as diffs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.core.test_verdicts import client_errors, mixed, refuses_long, serves
from tests.unit.core.world import World, world
from tradewind.core.alerts import HW_THERMAL
from tradewind.model.cell import CellState

HERE = Path(__file__).parent


def transcript(grid: World) -> str:
    """Pushes, events and probes in order of time."""
    lines = [(item.at_s, 0, f"event {item.name} {item.cell_id or '-'} {item.detail}") for item in grid.events]
    for at_s, weights in grid.pushes:
        lines.append((at_s, 1, "push " + " ".join(f"{cell}={weight}" for cell, weight in sorted(weights.items()))))
    lines += [(at_s, 2, f"probe {order.cell_id} {order.prompt_bytes} bytes") for at_s, order in grid.probes]
    return "".join(f"{at_s:8.2f} {text.rstrip()}\n" for at_s, _, text in sorted(lines))


def mismatch() -> World:
    """One cell of nine refuses long prompts from 10 s to 60 s."""
    grid = world(seed=3, sizes=mixed).run(10.0)
    grid.cell(4).answer = refuses_long
    grid.run(60.0)
    grid.cell(4).answer = serves
    return grid.run(90.0)


def common_errors() -> World:
    """Fifty requests in 2.5 s that every cell refuses."""
    grid = world(seed=4).run(20.0)
    client_errors(grid, count=50, size=2000)
    return grid.run(60.0)


def drip() -> World:
    """Two client errors a second for half a minute."""
    grid = world(seed=5).run(20.0)
    client_errors(grid, count=60, size=2000, spacing_s=0.5)
    return grid.run(70.0)


def mismatch_without_probes() -> World:
    """As mismatch, with nobody to send probes: statistics convict, a canary asks for the way back."""
    grid = world(seed=3, sizes=mixed, probes_work=False)
    grid.run(10.0)
    grid.cell(4).answer = refuses_long
    return grid.run(60.0)


def throttle_then_restart() -> World:
    """One cell gets hot and is drained; another is restarted and warms up."""
    grid = world(seed=6).run(20.0)
    grid.cell(2).throttle_bits = HW_THERMAL
    grid.run(30.0)
    grid.cell(2).throttle_bits = 0
    grid.cell(7).state = CellState.FAULTED
    grid.run(40.0)
    grid.cell(7).state = CellState.READY
    return grid.run(100.0)


@pytest.mark.parametrize("scenario", [mismatch, common_errors, drip, mismatch_without_probes, throttle_then_restart])
def test_a_scenario_goes_as_it_went(scenario: Callable[[], World]) -> None:
    told, path = transcript(scenario()), HERE / f"{scenario.__name__}.txt"
    if os.environ.get("TRADEWIND_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
