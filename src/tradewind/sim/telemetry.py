"""The grid view as gateways get it: newest scrape of each cell, with its age, at each heartbeat."""

from collections.abc import Sequence

from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import CellView, GridView, ViewVersion
from tradewind.sim.cell import SimCell
from tradewind.sim.scenario import CellSpec

MODEL = "sim"


class Feed:
    """Scrapes cells and composes views; it never shows a live value that an agent could not have."""

    def __init__(self, cells: Sequence[SimCell]) -> None:
        self._cells = cells
        self._described = [described(cell.spec, number) for number, cell in enumerate(cells)]
        self._readings: list[tuple[EngineReading, float]] = []
        self._counter = 0

    def scrape(self, now_s: float) -> None:
        """Every agent reads its engine."""
        self._readings = [(cell.reading(), now_s) for cell in self._cells]

    def view(self, now_s: float) -> GridView:
        """What control tells now. `scrape` must have run before."""
        self._counter += 1
        version = ViewVersion(control_id="sim", incarnation="sim", counter=self._counter)
        return GridView(
            version=version,
            cells=tuple(
                CellView(
                    cell=cell,
                    state=CellState.READY,
                    incarnation="sim",
                    sequence=self._counter,
                    telemetry=Telemetry(engine=reading, engine_age_s=now_s - at_s),
                )
                for cell, (reading, at_s) in zip(self._described, self._readings, strict=True)
            ),
        )


def described(spec: CellSpec, number: int) -> Cell:
    """The cell as its agent registers it."""
    return Cell(
        cell_id=spec.cell_id,
        site=spec.site,
        address=f"10.0.{number // 250}.{number % 250 + 1}:8000",
        capabilities=Capabilities(
            models=(MODEL,),
            kv_capacity_tokens=spec.kv_capacity_tokens,
            block_size_tokens=spec.limits.block_size_tokens,
            engine="vllm",
            hardware=spec.profile.name,
        ),
    )
