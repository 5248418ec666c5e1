"""What other gateways have in flight, put together from what every control says of them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tradewind.core.pick.cell import OthersLoad
from tradewind.core.pick.settings import OTHERS_DECAY_S
from tradewind.model.view import CellLoad, GatewayLoad

FORGOTTEN_S = 5.0
MAX_GATEWAYS = 256


class _Told(NamedTuple):
    at_s: float  # when it was true, by this gateway's clock
    cells: tuple[CellLoad, ...]


class Others:
    """The newest word on each gateway; two controls may tell of the same one."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def take(self, loads: Sequence[GatewayLoad], now_s: float) -> None:
        """One message's loads; what is older than what is known of a gateway is left."""
        for load in loads:
            at_s = now_s - max(0.0, load.age_s)
            known = self._told.get(load.gateway_id)
            if (known is None or at_s > known.at_s) and (known is not None or len(self._told) < MAX_GATEWAYS):
                self._told[load.gateway_id] = _Told(at_s, load.cells)

    def sums(self, now_s: float) -> dict[str, OthersLoad]:
        """Per cell, over all gateways, each by the age of its word."""
        self._told = {name: told for name, told in self._told.items() if now_s - told.at_s < FORGOTTEN_S}
        sums: dict[str, OthersLoad] = {}
        for told in self._told.values():
            fresh = math.exp(-max(0.0, now_s - told.at_s) / OTHERS_DECAY_S)
            for cell in told.cells:
                sofar = sums.get(cell.cell_id, OthersLoad())
                sums[cell.cell_id] = OthersLoad(
                    sofar.requests + fresh * cell.requests,
                    sofar.prefill_tokens + fresh * cell.waiting_tokens,
                    sofar.decoding + fresh * cell.decoding,
                )
        return sums
