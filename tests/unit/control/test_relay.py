"""What a gateway has placed goes to every other gateway, once, and only under the key of the grid."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.unit.control.test_grid import Bench
from tradewind.control.feed import KEEP_ALIVE_S, REFRESH_INTERVAL_S, Batch, Feed
from tradewind.control.gateways import LOAD_KEPT_S
from tradewind.control.prefixes import MAX_PROMPT_BLOCKS, MAX_WAITING_BLOCKS
from tradewind.model.view import GatewayReport, Placed, ViewDelta
from tradewind.wire.convert import delta_from_pb, report_to_pb
from tradewind.wire.pb import tradewind_pb2 as pb

KEY = 77  # that Bench draws
CELL = "cell-0000"


class Relay(Bench):
    """A grid of two cells with one open feed per gateway name."""

    def __init__(self, names: Sequence[str], stack: ExitStack) -> None:
        super().__init__(expected=frozenset({CELL, "cell-0001"}))
        self.beat(0)
        self.beat(1)
        self.grid.tick(self.now_s)
        assert self.grid.publishing
        self.feeds = {name: stack.enter_context(self.grid.feed()) for name in names}
        self.loop = stack.enter_context(asyncio.Runner())
        self._sequence = 0

    def said(self, name: str, *placed: Placed, key: int | None = KEY) -> None:
        self._sequence += 1
        report = GatewayReport(gateway_id=name, site="s", sequence=self._sequence, prefix_key=key, placed=tuple(placed))
        raw = report_to_pb(report).SerializeToString()
        self.grid.report(raw, self.now_s, feed=self.feeds.get(name))

    def batch(self, name: str) -> Batch | None:
        async def ready(feed: Feed) -> Batch | None:
            task = asyncio.ensure_future(feed.next())
            for _ in range(3):
                await asyncio.sleep(0)
            if task.done():
                return task.result()
            task.cancel()
            return None

        return self.loop.run(ready(self.feeds[name]))

    def told(self, name: str) -> ViewDelta | None:
        """The message that is due for this gateway now, read as a gateway reads it."""
        batch = self.batch(name)
        if batch is None:
            return None
        raw = self.grid.message(batch, self.now_s, gateway_id=self.feeds[name].gateway_id)
        return delta_from_pb(pb.ViewDelta.FromString(raw))

    def greet(self) -> None:
        """Every gateway has reported and has its full view."""
        for name in self.feeds:
            self.said(name, key=None)
            self.told(name)

    def count(self, name: str) -> int:
        return self.grid.counters[name]


@contextmanager
def relay(*names: str) -> Iterator[Relay]:
    with ExitStack() as stack:
        yield Relay(names, stack)


def prompt(first: int, blocks: int = 3, cell_id: str = CELL) -> Placed:
    return Placed(cell_id=cell_id, blocks=tuple((1 << 63) + first + number for number in range(blocks)))


def test_it_goes_to_the_others_once_in_order_with_the_key_and_never_back() -> None:
    with relay("g1", "g2", "g3") as at:
        at.greet()
        at.now_s += 2 * REFRESH_INTERVAL_S
        at.said("g1", prompt(0), prompt(10, cell_id="cell-0001"))
        at.said("g1", prompt(20))
        for name in ("g2", "g3"):
            told = at.told(name)
            assert told is not None
            assert told.placed == (prompt(0), prompt(10, cell_id="cell-0001"), prompt(20))
            assert told.prefix_key == KEY
        at.now_s += 2 * REFRESH_INTERVAL_S
        assert [at.told(name) for name in at.feeds] == [None, None, None]
        assert (at.count("prefixes_heard"), at.count("prefix_blocks_relayed")) == (3, 18)


def test_news_waits_for_the_next_refresh_and_goes_with_what_is_sent_before() -> None:
    with relay("g1", "g2") as at:
        at.greet()
        at.said("g1", prompt(0))
        assert at.told("g2") is None, "not a message per report"
        at.now_s += 1.5 * REFRESH_INTERVAL_S
        at.said("g1", prompt(10))
        told = at.told("g2")
        assert told is not None
        assert told.placed == (prompt(0), prompt(10))
        at.said("g1", prompt(20))
        at.grid.drain(CELL, reason="")  # goes out at once
        told = at.told("g2")
        assert told is not None
        assert [view.cell.cell_id for view in told.cells] == [CELL]
        assert told.placed == (prompt(20),)


def test_news_wakes_a_feed_that_sleeps_until_the_keep_alive() -> None:
    with relay("g1", "g2") as at:
        at.greet()
        at.now_s += 2 * REFRESH_INTERVAL_S

        async def slept() -> Batch:
            task = asyncio.ensure_future(at.feeds["g2"].next())
            await asyncio.sleep(0)
            assert not task.done()
            at.said("g1", prompt(0))
            async with asyncio.timeout(0.5 * KEEP_ALIVE_S):
                return await task

        assert at.loop.run(slept()).placed


def test_a_stream_whose_gateway_is_not_known_yet_gets_neither_key_nor_prompts() -> None:
    with relay("g1", "g2") as at:
        at.said("g1", key=None)
        at.said("g1", prompt(0))
        told = at.told("g2")
        assert told is not None
        assert (told.prefix_key, told.placed) == (None, ())


@pytest.mark.parametrize("key", [KEY + 1, None])
def test_another_key_is_dropped_and_counted(key: int | None) -> None:
    with relay("g1", "g2") as at:
        at.greet()
        at.said("g2")
        at.now_s += 2 * REFRESH_INTERVAL_S
        at.said("g1", prompt(0), prompt(10), key=key)
        assert at.told("g2") is None
        assert at.count("prefixes_of_other_keys") == 2
        shared = {status.report.gateway_id: status.prefixes_shared for status in at.grid.gateways()}
        assert shared == {"g1": False, "g2": True}


def test_what_makes_no_sense_is_dropped_and_counted() -> None:
    with relay("g1", "g2") as at:
        at.greet()
        at.now_s += 2 * REFRESH_INTERVAL_S
        strange = prompt(0, cell_id="never-heard-of")
        at.said("g1", prompt(0, blocks=0), prompt(0, blocks=MAX_PROMPT_BLOCKS + 1), strange, prompt(5))
        told = at.told("g2")
        assert told is not None
        assert told.placed == (prompt(5),)
        assert at.count("prefixes_invalid") == 3


def test_for_a_gateway_that_does_not_read_the_newest_are_kept() -> None:
    with relay("g1", "g2") as at:
        at.greet()
        for number in range(50):
            at.said("g1", prompt(10_000 * number, blocks=1_000))
        (waiting,) = (s.waiting_blocks for s in at.grid.gateways() if s.report.gateway_id == "g2")
        assert waiting == at.feeds["g2"].waiting_blocks == MAX_WAITING_BLOCKS // 1_000 * 1_000
        assert at.count("prefixes_untold") == 50 - waiting // 1_000
        at.now_s += 2 * REFRESH_INTERVAL_S
        told = at.told("g2")
        assert told is not None
        assert told.placed[-1] == prompt(490_000, blocks=1_000)
        assert at.feeds["g2"].waiting_blocks == 0


def test_a_new_key_drops_what_waits_under_the_old_one() -> None:
    with relay("g1", "g2", "g3") as at:
        at.greet()
        at.said("g1", prompt(0))
        for name in at.feeds:
            at.said(name, key=5)
        at.now_s += 2 * REFRESH_INTERVAL_S
        at.said("g1", prompt(10), key=5)
        told = at.told("g2")
        assert told is not None
        assert (told.prefix_key, told.placed) == (5, (prompt(10),))
        assert at.count("prefixes_of_other_keys") == 2  # one prompt, for two gateways


def test_gateways_that_are_gone_have_no_say() -> None:
    with relay("g1", "g2") as at:
        at.said("left", key=5)
        at.said("left-too", key=5)
        at.said("g1", key=6)
        told = at.told("g1")
        assert told is not None
        assert told.prefix_key == 5
        at.now_s += LOAD_KEPT_S
        at.said("g2", key=None)
        told = at.told("g2")
        assert told is not None
        assert told.prefix_key == 6, "of g1, which is connected and has said nothing since"


def test_reports_are_kept_without_what_was_placed() -> None:
    with relay("g1", "g2") as at:
        at.greet()
        at.said("g1", prompt(0))
        assert all(status.report.placed == () for status in at.grid.gateways())


def test_ten_thousand_prompts_in_one_report_do_not_stall() -> None:
    names = [f"g{number}" for number in range(20)]
    with relay(*names) as at:
        at.greet()
        many = tuple(prompt(10 * number, blocks=3) for number in range(10_000))
        raw = report_to_pb(GatewayReport(gateway_id="g0", site="s", sequence=9, prefix_key=KEY, placed=many))
        content = raw.SerializeToString()
        began_s = time.perf_counter()
        at.grid.report(content, at.now_s, feed=at.feeds["g0"])
        assert time.perf_counter() - began_s < 1.0  # 0.04 s on the machine it was written on
        at.now_s += 2 * REFRESH_INTERVAL_S
        told = at.told("g19")
        assert told is not None
        assert told.placed == many
