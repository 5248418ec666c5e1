"""Lets the declared changes happen to cells, agents and paths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tradewind.engine.sequence import SequenceRequest
from tradewind.sim.agents import SimAgent
from tradewind.sim.carrier import Attempts, Carrier, Way
from tradewind.sim.cell import SimCell
from tradewind.sim.faults import (
    Change,
    Contended,
    Cut,
    Detour,
    Emptied,
    Engine,
    Exporter,
    Foreign,
    Heated,
    Host,
    Limit,
    Noise,
    Slow,
)
from tradewind.sim.gateway import SimGateway
from tradewind.sim.loop import EventLoop

NOTICE_S = 0.010  # an agent sees a connection on its own host break, and looks again


@dataclass(kw_only=True)
class World:
    """Everything that goes wrong, or right again, in one run."""

    cells: Sequence[SimCell]
    agents: Sequence[SimAgent]
    gateways: Sequence[SimGateway]
    attempts: Attempts
    loop: EventLoop
    foreign: int = 0  # requests that came past all gateways
    beat: Callable[[int], None]  # a heartbeat about this cell does not wait for its time

    def schedule(self, changes: Sequence[Change]) -> None:
        """They will happen when they say."""
        noisy = any(isinstance(change.effect, Noise) for change in changes)
        for gateway in self.gateways:
            gateway.noisy = noisy
        for change in changes:
            self.loop.at(change.at_s, partial(self._apply, change))

    def _apply(self, change: Change) -> None:  # noqa: C901 (one case for each effect)
        cell, agent = self.cells[change.cell], self.agents[change.cell]
        match change.effect:
            case Slow(slow=slow):
                cell.slow_down(slow)
            case Heated(heat=heat):
                cell.stress(heat=heat, contention=cell.board.contention)
            case Contended(contention=contention):
                cell.stress(heat=cell.board.heat, contention=contention)
            case Limit(tokens=tokens):
                cell.limit_tokens = tokens
            case Emptied():
                cell.engine.reset_prefix_cache()
            case Noise(deviation_s=deviation_s):
                for _, way in self._ways(change.cell):
                    way.noise_s = deviation_s
            case Detour(factor=factor):
                for _, way in self._ways(change.cell):
                    way.path.factor = factor
            case Foreign(prompt_tokens=prompt, output_tokens=output):
                number = self.attempts.number()
                self.foreign += 1
                cell.submit(SequenceRequest(seq_id=number, prompt_tokens=prompt, output_tokens=output))
            case Exporter(mode=mode):
                agent.exporter = mode
                if mode == "dead":
                    self.loop.at(self.loop.now_s + NOTICE_S, partial(self._exporter_lost, change.cell))
            case Engine(up=True, load_s=load_s):
                cell.start(load_s=load_s, changed=partial(self.beat, change.cell))
            case Engine():
                self._kill(change.cell)
            case Cut(on=on):
                self._cut(change.cell, on=on)
            case Host(up=up, load_s=load_s):
                self._power(change.cell, up=up, load_s=load_s)

    def _ways(self, cell: int) -> list[tuple[Carrier, Way]]:
        return [(gateway.carrier, gateway.ways[cell]) for gateway in self.gateways]

    def _exporter_lost(self, cell: int) -> None:
        self.agents[cell].exporter_lost()
        self.beat(cell)

    def _kill(self, cell: int) -> None:
        self._drop(cell)
        self.loop.at(self.loop.now_s + NOTICE_S, partial(self.beat, cell))
        for gateway in self.gateways:
            way = gateway.ways[cell]
            self.loop.at(self.loop.now_s + way.path.rtt_s(self.loop.now_s) / 2, partial(gateway.lost, way))

    def _drop(self, cell: int) -> None:
        """The engine's process is gone, with all that was inside."""
        self.agents[cell].engine_ended()
        for sequence in self.cells[cell].kill():
            carried = self.attempts.open.pop(sequence.request.seq_id, None)
            if carried is not None:
                carrier, attempt = carried
                carrier.died(attempt)

    def _cut(self, cell: int, *, on: bool) -> None:
        self.agents[cell].silent = on
        for carrier, way in self._ways(cell):
            if on:
                carrier.cut(way)
            else:
                carrier.heal(way)

    def _power(self, cell: int, *, up: bool, load_s: float) -> None:
        if up:
            self.agents[cell].restart()
            self._cut(cell, on=False)
            self.cells[cell].start(load_s=load_s, changed=partial(self.beat, cell))
            self.beat(cell)
        else:
            self._cut(cell, on=True)
            self._drop(cell)
