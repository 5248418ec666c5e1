"""How often a prefix was the deepest that any cell held: tells a hot prompt from a session.

Counts decay with a time constant of 30 s, so that a steady rate of r requests per second reads as 30 r.
"""

from collections import OrderedDict
from math import exp

DECAY_S = 30.0
MAX_BLOCKS = 65_536


class Heat:
    """A decayed count per block. Bounded: the block that was counted longest ago gives way."""

    def __init__(self, *, decay_s: float = DECAY_S, max_blocks: int = MAX_BLOCKS) -> None:
        self._decay_s = decay_s
        self._max_blocks = max_blocks
        self._counts: OrderedDict[int, tuple[float, float]] = OrderedDict()  # block -> (count, counted at)

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, block: int, now_s: float) -> None:
        """One more request whose deepest match was this block."""
        self._counts[block] = (self.read(block, now_s) + 1.0, now_s)
        self._counts.move_to_end(block)
        if len(self._counts) > self._max_blocks:
            self._counts.popitem(last=False)

    def read(self, block: int, now_s: float) -> float:
        """The decayed count; 0 for a block that was never counted, or so long ago that it was forgotten."""
        held = self._counts.get(block)
        if held is None:
            return 0.0
        count, at_s = held
        return count * exp(min(0.0, at_s - now_s) / self._decay_s)
