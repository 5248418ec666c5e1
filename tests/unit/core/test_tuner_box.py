"""Where weights may be."""

import pytest

from tradewind.core.tuner.box import AS_TESTED, PUBLISHED, SHIPPED
from tradewind.model.tuning import PHYSICS, Weights


@pytest.mark.parametrize("box", [SHIPPED, AS_TESTED, PUBLISHED])
def test_clipping_ends_inside_and_leaves_what_is_inside(box: object) -> None:
    for weights in (Weights(9, 0.01), Weights(1e-9, 1e9), Weights(2, 0.2), PHYSICS, Weights(1, 0.3)):
        clipped = box.clipped(weights)  # type: ignore[attr-defined]
        assert box.problem(clipped) == ""  # type: ignore[attr-defined]
        assert box.clipped(clipped) == clipped  # type: ignore[attr-defined]


def test_a_ratio_beyond_the_cliff_costs_the_rtt_weight() -> None:
    assert SHIPPED.clipped(Weights(2.0, 0.2)) == pytest.approx(Weights(0.8, 0.2))
    assert "4 times the queue weight" in SHIPPED.problem(Weights(2.0, 0.2))
    assert "between 0.05 and 2, not nan" in SHIPPED.problem(Weights(float("nan"), 1.0))
