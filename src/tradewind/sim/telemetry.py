"""The grid view as gateways get it: agents read, control's own registry judges, and all of it takes its time."""

from collections.abc import Sequence

from tradewind.core.registry import Registry
from tradewind.model.cell import Capabilities, Cell
from tradewind.model.routing import Event
from tradewind.model.view import GatewayReport, GridView, ViewVersion
from tradewind.sim.agents import SimAgent
from tradewind.sim.cell import SimCell
from tradewind.sim.scenario import CellSpec

MODEL = "sim"


class Feed:
    """All agents and one control; it never shows a live value that an agent could not have."""

    def __init__(self, cells: Sequence[SimCell], *, scrape_s: float, kv_events: bool) -> None:
        self.events: list[Event] = []  # of control, of the whole run
        self.agents = [
            SimAgent(cell, described(cell.spec, number), scrape_s=scrape_s, kv_events=kv_events)
            for number, cell in enumerate(cells)
        ]
        self._registry = Registry(expected=[cell.spec.cell_id for cell in cells])
        self._counter = 0

    def scrape(self, now_s: float) -> None:
        """Every agent that has power reads its engine and its exporter."""
        for agent in self.agents:
            if not agent.silent:
                agent.scrape(now_s)

    def beat(self, now_s: float) -> None:
        """Every agent that control can hear sends a heartbeat."""
        for agent in self.agents:
            self._beat(agent, now_s)

    def beat_one(self, number: int, now_s: float) -> None:
        """Something has changed that does not wait for the next heartbeat."""
        self._beat(self.agents[number], now_s)

    @property
    def some_silent(self) -> bool:
        """Only then do gateways' reports count for anything."""
        return any(agent.silent for agent in self.agents)

    def report(self, report: GatewayReport, now_s: float) -> None:
        """What a gateway knows of its paths."""
        self.events += self._registry.on_report(report, now_s)

    def view(self, now_s: float) -> GridView:
        """What control tells now. `scrape` and `beat` must have run before."""
        self._counter += 1
        self.events += self._registry.on_tick(now_s)
        version = ViewVersion(control_id="sim", incarnation="sim", counter=self._counter)
        return GridView(version=version, cells=self._registry.view(now_s))

    def _beat(self, agent: SimAgent, now_s: float) -> None:
        if not agent.silent:
            self.events += self._registry.on_heartbeat(agent.heartbeat(now_s), now_s)


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
