"""What other gateways have in flight: the newest word counts, by its age, and is forgotten."""

import math

from tradewind.gateway.pick.others import FORGOTTEN_S, Others
from tradewind.model.view import CellLoad, GatewayLoad


def load(gateway_id: str, age_s: float, **requests: int) -> GatewayLoad:
    cells = [CellLoad(cell_id=cell, requests=n, waiting_tokens=100 * n, decoding=n) for cell, n in requests.items()]
    return GatewayLoad(gateway_id=gateway_id, age_s=age_s, cells=tuple(cells))


def test_gateways_add_up_each_by_its_age() -> None:
    others = Others()
    others.take([load("g1", 0.0, a=4), load("g2", 0.5, a=2, b=1)], now_s=10.0)
    sums = others.sums(10.0)
    assert math.isclose(sums["a"].requests, 4 + 2 * math.exp(-1))
    assert math.isclose(sums["b"].prefill_tokens, 100 * math.exp(-1))


def test_the_newest_word_stands_whoever_brings_it() -> None:
    others = Others()
    others.take([load("g1", 0.1, a=4)], now_s=10.0)
    others.take([load("g1", 0.9, a=9)], now_s=10.1)  # another control, later to tell of an earlier time
    assert math.isclose(others.sums(10.1)["a"].requests, 4 * math.exp(-0.4))
    others.take([load("g1", 0.0)], now_s=10.2)  # it has nothing any more
    assert others.sums(10.2) == {}


def test_a_gateway_that_fell_silent_is_forgotten() -> None:
    others = Others()
    others.take([load("g1", 0.0, a=4)], now_s=0.0)
    assert others.sums(FORGOTTEN_S + 0.1) == {}
