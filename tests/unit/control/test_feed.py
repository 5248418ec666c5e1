"""What a gateway is told, and when: changes at once, telemetry paced, and never more waiting than there are cells."""

import asyncio
from collections.abc import Awaitable, Callable

from tradewind.control.feed import KEEP_ALIVE_S, LOADS_INTERVAL_S, REFRESH_INTERVAL_S, Batch, Feed


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def run(scenario: Callable[[Feed, Clock, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        clock, known = Clock(), ["a", "b"]
        feed = Feed(clock, known=lambda: known)
        await scenario(feed, clock, known)

    asyncio.run(main())


async def ready(feed: Feed) -> Batch | None:
    """The batch that is ready now, if any: `next` never has to wait for it."""
    task = asyncio.ensure_future(feed.next())
    for _ in range(3):
        await asyncio.sleep(0)
    if task.done():
        return task.result()
    task.cancel()
    return None


def test_the_first_batch_is_full_and_waits_for_release() -> None:
    async def scenario(feed: Feed, _clock: Clock, _known: list[str]) -> None:
        feed.changed("a")
        assert await ready(feed) is None
        feed.release()
        assert await ready(feed) == Batch(full=True, cell_ids=("a", "b"), removed=())
        assert await ready(feed) is None

    run(scenario)


def test_fc_06_an_empty_full_view_is_never_sent() -> None:
    async def scenario(feed: Feed, clock: Clock, known: list[str]) -> None:
        known.clear()
        feed.release()
        clock.now_s += 10 * KEEP_ALIVE_S
        assert await ready(feed) is None
        known.append("c")
        feed.changed("c")
        assert await ready(feed) == Batch(full=True, cell_ids=("c",), removed=())

    run(scenario)


def test_telemetry_is_paced_and_life_cycle_is_not() -> None:
    async def scenario(feed: Feed, clock: Clock, _known: list[str]) -> None:
        feed.release()
        await ready(feed)
        feed.refreshed("a")
        feed.refreshed("b")
        feed.refreshed("a")
        assert await ready(feed) is None
        feed.changed("b")
        assert await ready(feed) == Batch(full=False, cell_ids=("b",), removed=())
        clock.now_s += 1.5 * REFRESH_INTERVAL_S
        assert await ready(feed) == Batch(full=False, cell_ids=("a",), removed=())
        feed.refreshed("a")
        assert await ready(feed) is None

    run(scenario)


def test_a_slow_gateway_has_each_cell_waiting_at_most_once() -> None:
    async def scenario(feed: Feed, clock: Clock, known: list[str]) -> None:
        feed.release()
        await ready(feed)
        for number in range(10_000):
            cell_id = known[number % 2]
            feed.changed(cell_id)
            feed.refreshed(cell_id)
        assert feed.waiting == 2
        clock.now_s += 1.5 * REFRESH_INTERVAL_S
        assert await ready(feed) == Batch(full=False, cell_ids=("a", "b"), removed=())
        assert feed.waiting == 0

    run(scenario)


def test_removed_and_registered_again_is_not_removed() -> None:
    async def scenario(feed: Feed, _clock: Clock, _known: list[str]) -> None:
        feed.release()
        await ready(feed)
        feed.changed("a")
        feed.removed("a")
        feed.removed("b")
        feed.changed("b")
        assert await ready(feed) == Batch(full=False, cell_ids=("b",), removed=("a",))

    run(scenario)


def test_a_quiet_grid_still_says_that_control_lives() -> None:
    async def scenario(feed: Feed, clock: Clock, _known: list[str]) -> None:
        feed.release()
        await ready(feed)
        clock.now_s += KEEP_ALIVE_S
        assert await ready(feed) == Batch(full=False, cell_ids=(), removed=())

    run(scenario)


def test_other_gateways_work_goes_out_soon_with_no_cell() -> None:
    async def scenario(feed: Feed, clock: Clock, _known: list[str]) -> None:
        feed.release()
        await ready(feed)
        feed.loaded()
        assert await ready(feed) is None, "paced"
        clock.now_s += LOADS_INTERVAL_S
        assert await ready(feed) == Batch(full=False, cell_ids=(), removed=())
        clock.now_s += LOADS_INTERVAL_S
        assert await ready(feed) is None, "told once"

    run(scenario)


def test_any_message_tells_other_gateways_work() -> None:
    async def scenario(feed: Feed, clock: Clock, _known: list[str]) -> None:
        feed.release()
        await ready(feed)
        feed.loaded()
        feed.changed("a")
        assert await ready(feed) == Batch(full=False, cell_ids=("a",), removed=())
        clock.now_s += LOADS_INTERVAL_S
        assert await ready(feed) is None

    run(scenario)
