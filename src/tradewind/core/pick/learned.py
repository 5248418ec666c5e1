"""What a picker goes by for each cell, for people: its slowness, and how fast it is thought to prefill."""

from collections.abc import Iterable
from typing import NamedTuple

from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.rates import CHUNK_TOKENS


class LearnedRate(NamedTuple):
    """Of one cell, as one gateway goes by it now. Before any first token: what its hardware class should do."""

    slowness_ratio: float  # time to first token over what its class takes
    prefill_tokens_per_s: float  # of a cold prompt of one step, on a cell that does nothing else
    first_tokens: int  # that have taught it


def learned_rate(cell: PickCell) -> LearnedRate:
    """Table of classes x slow correction of the class x slowness of the cell."""
    rates, slowness = cell.rates, cell.work.slowness
    prefill_s = slowness.factor * rates.prefill_s(CHUNK_TOKENS, CHUNK_TOKENS, rates.a0_s)
    return LearnedRate(slowness.factor, CHUNK_TOKENS / prefill_s, slowness.first_tokens)


def learned_rates(cells: Iterable[PickCell]) -> dict[str, LearnedRate]:
    """By cell id."""
    return {cell.cell_id: learned_rate(cell) for cell in cells}
