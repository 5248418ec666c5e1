"""A policy of one's own: near cells that have little to do and know the prompt.

tradewind sim compare --scenario S2-D --policy examples/own_policy.py:NearAndIdle,least_request:N
"""

from tradewind.core.pick.ask import Ask, Choice
from tradewind.core.pick.cell import PickCell
from tradewind.core.pick.policies.ranking import least_by


class NearAndIdle:
    """The least of distance, prefill work that waits and own prefill, in seconds; a request in the batch counts too."""

    def __init__(self, batch_s: str = "0.02") -> None:
        self.batch_s = float(batch_s)  # own_policy.py:NearAndIdle:0.05 makes it 0.05

    def choose(self, ask: Ask) -> Choice:
        """`ask.cells` holds only cells that may serve the request; equals are drawn."""
        return least_by(ask, ask.cells, lambda cell: self.cost_s(ask, cell))

    def cost_s(self, ask: Ask, cell: PickCell) -> float:
        """What the request is likely to wait on this cell, roughly."""
        uncached = ask.prompt_tokens - ask.matched(cell)
        token_s = cell.rates.b_s * cell.work.slowness.factor  # of its GPU, and how it has been doing
        prefill_s = token_s * (cell.work.waiting_tokens + uncached)
        return ask.rtt_s(cell) + prefill_s + self.batch_s * ask.load(cell)
