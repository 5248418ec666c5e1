"""The link between gateway and control: a bug in a report ends the process, it never leaves a gateway deaf."""

import asyncio
import random
import time
from itertools import pairwise

import pytest

from tests.fakes.views import ViewControl
from tradewind.gateway.link import REPORT_S, ControlLink
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
            hurry=lambda: None,
            rng=random.Random(1),
        )
        async with asyncio.timeout(20):
            await link.run()

    with ViewControl() as control, pytest.raises(KeyError, match="a bug"):
        asyncio.run(run(control.address))
    assert made == 2


@pytest.mark.parametrize("broken", [False, True])
def test_news_in_a_hurry_does_not_wait_for_the_next_half_second(broken: bool) -> None:
    made: list[float] = []
    enough = asyncio.Event()

    def report() -> GatewayReport:
        made.append(time.monotonic())
        if len(made) == 5:
            enough.set()
        return GatewayReport(gateway_id="gw", site="east", sequence=len(made))

    def hurry() -> float | None:
        if broken:
            raise KeyError("a bug")
        return 0.0 if len(made) < 4 else None

    async def run(address: str) -> None:
        link = ControlLink(
            control_id="a",
            address=address,
            make_report=report,
            on_delta=lambda delta: None,
            on_lost=lambda: None,
            hurry=hurry,
            rng=random.Random(1),
        )
        runs, waits = asyncio.ensure_future(link.run()), asyncio.ensure_future(enough.wait())
        async with asyncio.timeout(20):
            done, _ = await asyncio.wait((runs, waits), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
        runs.cancel()

    with ViewControl() as control:
        if broken:
            with pytest.raises(KeyError, match="a bug"):
                asyncio.run(run(control.address))
            return
        asyncio.run(run(control.address))
    gaps = [after - before for before, after in pairwise(made)]
    assert sum(gap < REPORT_S / 2 for gap in gaps[:3]) >= 2, gaps  # one may be late on a busy machine
    assert gaps[3] >= REPORT_S * 0.9, "nothing is in a hurry any more"
