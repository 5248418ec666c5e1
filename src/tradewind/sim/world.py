"""Lets the declared changes happen to cells, agents and paths."""

from collections.abc import Sequence
from functools import partial

from tradewind.sim.cell import SimCell
from tradewind.sim.faults import Change, Slow
from tradewind.sim.loop import EventLoop


class World:
    """Everything that goes wrong, or right again, in one run."""

    def __init__(self, cells: Sequence[SimCell], loop: EventLoop) -> None:
        self._cells = cells
        self._loop = loop

    def schedule(self, changes: Sequence[Change]) -> None:
        """They will happen when they say."""
        for change in changes:
            self._loop.at(change.at_s, partial(self._apply, change))

    def _apply(self, change: Change) -> None:
        cell = self._cells[change.cell]
        match change.effect:
            case Slow(slow=slow):
                cell.slow_down(slow)
            case other:
                raise ValueError(f"{other} cannot happen yet")
