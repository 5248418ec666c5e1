"""From a fit to a proposal: the default unless it is shown otherwise, in bounded steps, inside the box."""

import pytest

from tradewind.core.tuner.box import AS_TESTED, SHIPPED
from tradewind.core.tuner.fit import Fit, Ratio
from tradewind.core.tuner.propose import leaves_physics, propose
from tradewind.core.tuner.settings import ProposalSettings
from tradewind.model.tuning import PHYSICS, Weights

SETTINGS = ProposalSettings()
SURE = Ratio(1.0, 0.05)


def asked(rtt: Ratio | None, queue: Ratio | None, now: Weights = PHYSICS, *, homewards: bool = False) -> Weights | None:
    fitted = Fit(requests=1_500, prefill_t=30.0, prefill=1.0, rtt=rtt, queue=queue)
    proposal = propose(fitted, now, AS_TESTED, SETTINGS, homewards=homewards)
    return None if proposal is None else proposal.weights


@pytest.mark.parametrize(
    ("ratio", "now", "wanted"),
    [
        (Ratio(2.3, 0.05), 1.0, None),  # inside the dead band: counts as 1
        (Ratio(0.45, 0.02), 1.0, None),
        (Ratio(2.3, 0.05), 10.0, 1.0),
        (Ratio(4.0, 0.2), 1.0, 4.0),
        (Ratio(4.0, 0.9), 1.0, None),  # might be inside
        (Ratio(4.0, 0.2), 4.5, None),  # near enough
        (Ratio(0.1, 0.1), 1.0, 0.3),  # not identified, and surely below the band: never 0
        (Ratio(-5.0, 1.0), 1.0, 0.3),
        (Ratio(0.2, 0.15), 1.0, None),  # not identified, and perhaps 1 after all
        (Ratio(9.0, 4.0), 10.0, None),  # nothing is known against 10
        (Ratio(3.0, 8.0), 10.0, 1.0),  # cannot tell even 10 from 0
        (Ratio(0.5, 0.4), 0.1, 1.0),
        (Ratio(9.9, 0.1), 0.1, 1.05),  # a step at most
        (None, 10.0, 1.0),
        (None, 0.1, 1.0),
        (None, 2.0, None),
    ],
)
def test_one_weight(ratio: Ratio | None, now: float, wanted: float | None) -> None:
    rtt, queue = asked(ratio, SURE, Weights(now, 1.0)), asked(SURE, ratio, Weights(1.0, now))
    if wanted is None:
        assert (rtt, queue) == (None, None)
    else:
        assert rtt == pytest.approx(Weights(wanted, 1.0))
        assert queue == pytest.approx(Weights(1.0, wanted))


def test_both_weights_move_at_once_and_the_box_has_the_last_word() -> None:
    fitted = Fit(requests=900, prefill_t=9.0, prefill=1.0, rtt=Ratio(8.0, 0.1), queue=Ratio(0.05, 0.01))
    proposal = propose(fitted, PHYSICS, SHIPPED, SETTINGS, homewards=False)
    assert proposal is not None
    assert proposal.weights == pytest.approx(Weights(0.8, 0.2))  # four times the queue weight at most
    assert "rtt 8.00 +- 0.20, 1 -> 0.8; queue 0.05 +- 0.02, 1 -> 0.2" in proposal.reason
    assert dict(proposal.figures)["queue_ratio"] == 0.05


def test_only_the_way_back_is_open_when_it_is_barred() -> None:
    four, tenth = Ratio(4.0, 0.1), Ratio(1.0, 0.1)
    assert asked(four, tenth, Weights(1.0, 10.0)) == Weights(4.0, 1.0)
    assert asked(four, tenth, Weights(1.0, 10.0), homewards=True) == Weights(1.0, 1.0)
    assert asked(four, SURE, homewards=True) is None
    assert asked(SURE, Ratio(0.1, 0.01), Weights(1.0, 5.0), homewards=True) == Weights(1.0, 1.0)  # and not beyond


def test_leaving_is_going_elsewhere_than_to_the_default_in_any_weight() -> None:
    assert leaves_physics(Weights(1.0, 0.3), PHYSICS)
    assert leaves_physics(Weights(1.0, 3.0), Weights(10.0, 1.0))
    assert leaves_physics(Weights(0.5, 1.0), Weights(10.0, 1.0))
    assert not leaves_physics(Weights(2.0, 1.0), Weights(10.0, 0.1))
