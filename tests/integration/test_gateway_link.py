"""The link between gateway and control: a bug in a report ends the process, it never leaves a gateway deaf."""

import asyncio
import random
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.fakes.views import ViewControl
from tradewind.gateway.link import REPORT_S, ControlLink
from tradewind.model.view import GatewayReport


def link_to(address: str, report: Callable[[], GatewayReport], hurry: Callable[[], float | None]) -> ControlLink:
    return ControlLink(
        control_id="a",
        address=address,
        make_report=report,
        on_delta=lambda delta: None,
        on_lost=lambda: None,
        hurry=hurry,
        rng=random.Random(1),
    )


@pytest.mark.parametrize("where", ["report", "hurry"])
def test_a_bug_is_raised_and_not_swallowed_with_the_stream(where: str) -> None:
    made = 0

    def report() -> GatewayReport:
        nonlocal made
        made += 1
        if where == "report" and made == 2:
            raise KeyError("a bug")
        return GatewayReport(gateway_id="gw", site="east", sequence=made)

    def hurry() -> float | None:
        if where == "hurry":
            raise KeyError("a bug")
        return None

    async def run(address: str) -> None:
        async with asyncio.timeout(20):
            await link_to(address, report, hurry).run()

    with ViewControl() as control, pytest.raises(KeyError, match="a bug"):
        asyncio.run(run(control.address))
    assert made == (2 if where == "report" else 1)


def test_news_in_a_hurry_does_not_wait_for_the_next_half_second() -> None:
    made: list[float] = []
    enough = asyncio.Event()

    def report() -> GatewayReport:
        made.append(time.monotonic())
        if len(made) == 5:
            enough.set()
        return GatewayReport(gateway_id="gw", site="east", sequence=len(made))

    async def run(address: str) -> None:
        link = asyncio.ensure_future(link_to(address, report, lambda: 0.0 if len(made) < 4 else None).run())
        async with asyncio.timeout(20):
            await enough.wait()
        link.cancel()

    with ViewControl() as control:
        asyncio.run(run(control.address))
    gaps = [after - before for before, after in pairwise(made)]
    assert sum(gap < REPORT_S / 2 for gap in gaps[:3]) >= 2, gaps  # one may be late on a busy machine
    assert gaps[3] >= REPORT_S * 0.9, "nothing is in a hurry any more"
