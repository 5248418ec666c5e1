"""The link between gateway and control: a bug in a report ends the process, it never leaves a gateway deaf."""

import asyncio
import random

import pytest

from tests.fakes.views import ViewControl
from tradewind.gateway.link import ControlLink
from tradewind.model.view import GatewayReport


def test_a_bug_in_a_report_is_raised_and_not_swallowed_with_the_stream() -> None:
    made = 0

    def report() -> GatewayReport:
        nonlocal made
        made += 1
        if made == 2:
            raise KeyError("a bug")
        return GatewayReport(gateway_id="gw", site="east", sequence=made)

    async def run(address: str) -> None:
        link = ControlLink(
            control_id="a",
            address=address,
            make_report=report,
            on_delta=lambda delta: None,
            on_lost=lambda: None,
            rng=random.Random(1),
        )
        async with asyncio.timeout(20):
            await link.run()

    with ViewControl() as control, pytest.raises(KeyError, match="a bug"):
        asyncio.run(run(control.address))
    assert made == 2
