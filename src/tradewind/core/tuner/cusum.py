"""Whether first tokens still come as expected: a two-sided CUSUM against a reference of its own, per grid and cell."""

from collections import OrderedDict
from math import exp, sqrt
from typing import NamedTuple

from tradewind.core.numbers import clip
from tradewind.core.tuner.settings import CusumSettings


class Shift(NamedTuple):
    """An alarm."""

    ratio: float  # of the latest blocks against the reference: 2 = twice as long as expected before
    after: int  # observations since the change began, as the CUSUM sees it
    cell_id: str | None = None


class Cusum:
    """Of one stream of logarithms. After an alarm it has to be made anew: the reference is another one."""

    def __init__(self, settings: CusumSettings, block: int) -> None:
        self._settings = settings
        self._block = block
        self._blocks_wanted = max(2, settings.reference // settings.block)  # of a cell, too: its blocks are shorter
        self._sum, self._count = 0.0, 0
        self._blocks, self._mean, self._squares = 0, 0.0, 0.0  # of the reference
        self._high, self._low = _Side(), _Side()

    @property
    def ready(self) -> bool:
        """Whether the reference is complete."""
        return self._blocks >= self._blocks_wanted

    def add(self, value: float) -> Shift | None:
        """One observation; says so when the mean has changed."""
        self._sum += value
        self._count += 1
        if self._count < self._block:
            return None
        mean, self._sum, self._count = self._sum / self._count, 0.0, 0
        if not self.ready:
            self._learn(mean)
            return None
        return self._judge(mean)

    def _learn(self, mean: float) -> None:
        self._blocks += 1
        step = mean - self._mean
        self._mean += step / self._blocks
        self._squares += step * (mean - self._mean)

    def _judge(self, mean: float) -> Shift | None:
        s = self._settings
        deviation = sqrt(self._squares / (self._blocks - 1))
        z = clip((mean - self._mean) / max(deviation, 1e-6), -s.clip, s.clip)
        for side, signed in ((self._high, z), (self._low, -z)):
            side.add(signed - s.k, mean)
            if side.value > s.h:
                ratio = exp(clip(side.total / side.blocks - self._mean, -50.0, 50.0))
                return Shift(ratio, side.blocks * self._block)
        return None


class _Side:
    """One sum that starts again whenever it falls to 0."""

    def __init__(self) -> None:
        self.value, self.total, self.blocks = 0.0, 0.0, 0

    def add(self, step: float, mean: float) -> None:
        self.value = max(0.0, self.value + step)
        if self.value > 0.0:
            self.total += mean
            self.blocks += 1
        else:
            self.total, self.blocks = 0.0, 0


class Watch:
    """The fleet's CUSUM and one per cell."""

    def __init__(self, settings: CusumSettings) -> None:
        self._settings = settings
        self.restart()

    def restart(self) -> None:
        """All references anew."""
        self._fleet = Cusum(self._settings, self._settings.block)
        self._cells: OrderedDict[str, Cusum] = OrderedDict()

    def add(self, cell_id: str, value: float) -> Shift | None:
        """The logarithm of a time to the first token over the expected one."""
        cell = self._cells.get(cell_id)
        if cell is None:
            if len(self._cells) >= self._settings.cells:
                self._cells.popitem(last=False)
            cell = self._cells[cell_id] = Cusum(self._settings, self._settings.cell_block)
        self._cells.move_to_end(cell_id)
        own = cell.add(value)
        shift = self._fleet.add(value)
        return own._replace(cell_id=cell_id) if own is not None else shift
