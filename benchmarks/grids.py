"""Synthetic views: healthy cells with full telemetry that moves."""

from dataclasses import replace

from tests.support.synthetic_agents import beat, telemetry
from tradewind.model.cell import CellState
from tradewind.model.view import CellView


def cell_views(cells: int, sequence: int, *, pools: int = 1) -> tuple[CellView, ...]:
    """A view of READY cells at one moment, spread over `pools` models, sorted by cell id."""
    reading = telemetry(sequence)
    views = []
    for number in range(cells):
        heartbeat = beat(number, "bench", sequence, reading=reading)
        model = f"model-{number % pools:02}"
        capabilities = replace(heartbeat.cell.capabilities, models=(model,))
        cell = replace(heartbeat.cell, capabilities=capabilities)
        view = CellView(
            cell=cell, state=CellState.READY, incarnation="bench", sequence=sequence, telemetry=heartbeat.telemetry
        )
        views.append(view)
    return tuple(sorted(views, key=lambda view: view.cell.cell_id))
