"""The tuner in control: fed in a thread of its own, ordered about, restored, and never the end of control."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.fakes.tuner import EACH, FakeTuner
from tests.support.polling import until
from tests.unit.gateway.test_following import samples
from tradewind.control.events import EventRing
from tradewind.control.rows_tuner import event_row, tuner_row
from tradewind.control.saver import Saver
from tradewind.control.store import Saved
from tradewind.control.tuning import LEARN_AT_ONCE, MAX_WAITING, OrderRefused, TunerPlan, Tuning
from tradewind.core.tuner.box import SHIPPED
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, Weights

EMPTY = Saved(cells={}, drains={})
UNIX_S = 1_700_000_000.0


class Bench:
    """A Tuning with a fake tuner and a file; its loop runs while `driven`."""

    def __init__(self, path: Path, *, saved: Saved = EMPTY, make: Callable[[str], Tuner] | None = None) -> None:
        self.tuners: list[FakeTuner] = []
        self.ring = EventRing(lambda: UNIX_S)
        plan = TunerPlan(kind="fake", make=make or self._make, start=PHYSICS, box=SHIPPED)
        self.tuning = Tuning(plan, driver="c", events=self.ring, clock=lambda: 100.0, unix_clock=lambda: UNIX_S)
        self.saver = Saver(path, incarnation="i", snapshot=lambda: self.tuning.saved(EMPTY))
        self.orders = 0
        self.tuning.start(saved, self.saver, on_order=self._ordered)

    def _make(self, driver: str) -> Tuner:
        self.tuners.append(FakeTuner(driver))
        return self.tuners[-1]

    def _ordered(self) -> None:
        self.orders += 1

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.ring.after(0, limit=100)]

    def hear(self, count: int) -> None:
        order = self.tuning.order
        assert order is not None
        self.tuning.hear([fresh(1)[0]._replace(driver=order.driver)] * count, 100.0)


ONE = samples(1)[0].moved(-3.0)  # ends with the report


def fresh(count: int) -> list[Sample]:
    return [ONE] * count


def driven(bench: Bench, script: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await bench.saver.load()
        work = [asyncio.create_task(bench.tuning.run()), asyncio.create_task(bench.saver.run())]
        try:
            await script()
        finally:
            for task in work:  # as control ends: the saver last
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


async def learned(bench: Bench, count: int) -> None:
    await until(lambda: bench.tuning.counters.samples >= count and not bench.tuning._waiting)
    await bench.tuning._do(tuple)  # the thread is done with what came before


def test_samples_become_orders_and_history(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        bench.hear(EACH)
        await learned(bench, EACH)
        assert bench.tuning.order is not None
        assert bench.tuning.order.child == Weights(0.5, 0.5)
        bench.hear(EACH)
        await learned(bench, 2 * EACH)

    driven(bench, script)
    tuning = bench.tuning
    assert tuning.order is not None
    assert (tuning.order.driver, tuning.order.weights, tuning.order.child) == ("c.1", Weights(0.5, 0.5), None)
    lines = list(tuning.history)
    assert [(row.what, row.child is None, row.figures) for row in lines] == [
        ("proposed", False, {}),
        ("accepted", True, {"z": 2.5}),
    ]
    assert [row.sequence for row in lines] == [1, 2]
    assert lines[0].at_unix_s == UNIX_S
    assert bench.orders == 3, "the first, the child, the new parent"
    assert tuner_row(tuning, now_s=100.0).events == {"accepted": 1, "proposed": 1}
    assert "tuner.accepted" in bench.names
    assert all(sample.finished_s == 100.0 for sample in bench.tuners[0].learned), "on this clock"


def test_what_follows_another_driver_or_makes_no_sense_teaches_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")
    one = fresh(1)[0]._replace(driver="c.1")
    bad = [
        one._replace(finished_s=0.1),
        one._replace(dispatched_s=float("nan")),
        one._replace(dispatched_s=-1e9),
        one._replace(queue_s=float("inf")),
        one._replace(ttft_s=-1.0),
        one._replace(uncached_tokens=-1),
    ]
    bench.tuning.hear([one._replace(driver="other.1"), *bad, one], 100.0)
    counters = bench.tuning.counters
    assert (counters.of_others, counters.lost, len(bench.tuning._waiting)) == (1, len(bad), 1)


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")
    for _ in range(MAX_WAITING // 4_000 + 1):
        bench.hear(4_000)
    assert len(bench.tuning._waiting) == MAX_WAITING
    assert bench.tuning.counters.lost == 4_000


def test_orders_of_an_operator(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        tuning = bench.tuning
        await tuning.put(Weights(1.5, 0.5), "pretrain")
        assert tuning.order is not None
        assert tuning.order.weights == Weights(1.5, 0.5)
        assert tuning.history[-1].reason == "pretrain"
        with pytest.raises(OrderRefused, match="between 0 and 2"):
            await tuning.put(Weights(3.0, 0.5), "too much")
        assert tuning.problem == "", "a refused order is no failure"
        flags = []
        for order in (tuning.freeze, tuning.thaw, tuning.reset):
            await order()
            flags.append(tuning.frozen)
        assert flags == [True, False, False]
        assert tuning.order.weights == PHYSICS

    driven(bench, script)
    assert [row.what for row in bench.tuning.history] == ["set", "frozen", "thawed", "reset"]


def test_a_restart_goes_on_with_weights_flag_and_history(tmp_path: Path) -> None:
    first = Bench(tmp_path / "s")

    async def script() -> None:
        await first.tuning.put(Weights(1.5, 0.5), "ours")
        await first.tuning.freeze()
        assert await first.saver.settled(5.0)

    driven(first, script)
    found: list[Saved] = []

    async def read() -> None:
        found.append(await Saver(tmp_path / "s", incarnation="j", snapshot=lambda: EMPTY).load())

    asyncio.run(read())
    second = Bench(tmp_path / "t", saved=found[0])
    assert second.tuning.order is not None
    assert (second.tuning.order.weights, second.tuning.frozen) == (Weights(1.5, 0.5), True)
    assert list(second.tuning.history) == list(first.tuning.history)
    assert second.tuning.saved(EMPTY).tuner_events == tuple(first.tuning.history)


@pytest.mark.parametrize("begun", [False, True])
def test_fc_40_what_is_found_late_adds_to_history_and_takes_no_order_back(tmp_path: Path, *, begun: bool) -> None:
    first = Bench(tmp_path / "s")
    driven(first, lambda: first.tuning.put(Weights(1.5, 0.5), "ours"))
    saved = first.tuning.saved(EMPTY)
    second = Bench(tmp_path / "t")

    async def script() -> None:
        if begun:
            await second.tuning.put(Weights(0.5, 1.0), "since")
        second.tuning.found_late(saved)
        await second.tuning._do(tuple)

    driven(second, script)
    assert second.tuning.order is not None
    assert second.tuning.order.weights == (Weights(0.5, 1.0) if begun else Weights(1.5, 0.5))
    rows = [(row.sequence, row.reason) for row in second.tuning.history]
    assert rows[0] == (1, "ours")
    assert rows[-1] == ((2, "since") if begun else (1, "ours"))
    assert second.tuning.saved(EMPTY).tuner_events == tuple(second.tuning.history)


def test_a_figure_that_is_no_number_is_left_out_of_history() -> None:
    event = TunerEvent(0.0, Happened.ACCEPTED, 1, PHYSICS, None, "why", (("z", math.nan), ("n", 5.0), ("r", math.inf)))
    row = event_row(event, sequence=1, at_unix_s=UNIX_S)
    assert row.figures == {"n": 5.0}
    assert msgspec.json.decode(msgspec.json.encode(row), type=type(row)) == row


def test_what_was_learned_since_the_last_save_is_kept_at_an_orderly_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        tuning = bench.tuning
        await tuning.freeze()
        bench.tuners[0].order = bench.tuners[0].order._replace(weights=Weights(0.7, 0.7))  # as if learned, no event
        bench.hear(1)
        await learned(bench, 1)

    driven(bench, script)
    assert (
        '"weights":[0.7,0.7]'
        in asyncio.run(Saver(tmp_path / "s", incarnation="j", snapshot=lambda: EMPTY).load()).tuner
    )


@pytest.mark.parametrize(
    "kept", ["[", "[]", "{}", '{"tuner": {"weights": 1, "frozen": true}}', '{"tuner": {"weights": [1, 1]}}']
)
def test_what_was_kept_and_cannot_be_used_is_told(tmp_path: Path, kept: str) -> None:
    bench = Bench(tmp_path / "s", saved=replace(EMPTY, tuner=kept))
    tuning = bench.tuning
    assert tuning.order is not None
    assert (tuning.order.weights, tuning.order.driver, tuning.problem) == (PHYSICS, "c.2", "")
    assert [row.what for row in tuning.history] == ["reset"]
    assert "cannot be used" in tuning.history[0].reason


def test_a_tuner_that_raises_is_disabled_and_replaced_by_a_reset(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        tuning = bench.tuning
        bench.hear(EACH)
        await learned(bench, EACH)
        before = tuning.order
        assert before is not None
        bench.tuners[0].breaks = True
        bench.hear(1)
        await until(lambda: bool(tuning.problem))
        assert tuning.order is not None
        assert (tuning.order.weights, tuning.order.child) == (before.weights, None), "nobody would judge the child"
        assert tuning.order.generation > before.generation
        with pytest.raises(OrderRefused, match=r"RuntimeError: a bug.*reset"):
            await tuning.freeze()
        bench.hear(1)
        assert not tuning._waiting
        await tuning.reset()
        assert (tuning.problem, tuning.order.driver) == ("", "c.2")
        bench.hear(1)
        await learned(bench, EACH + 2)

    driven(bench, script)
    assert "tuner.failed" in bench.names


OTHER = Weights(0.5, 1.5)


async def beaten(bench: Bench, count: int) -> None:
    """So many requests by the order in force, faster by OTHER."""
    order = bench.tuning.order
    assert order is not None
    ttft_s = 0.4 if order.weights == OTHER else 0.5
    one = ONE._replace(driver=order.driver, generation=order.generation, ttft_s=ttft_s, e2e_s=1.0)
    bench.tuning.hear([one] * count, 100.0)
    await learned(bench, bench.tuning.counters.samples)


def test_a_check_takes_the_drivers_place_and_gives_it_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        tuning = bench.tuning
        before = tuning.order
        await tuning.begin_check(OTHER, requests=8_000, seed=1)
        assert tuning.order is not None
        assert tuning.order.driver == "c.2"
        assert tuning.check is not None
        assert (tuning.check.running, tuning.check.heard) == (True, 0)
        with pytest.raises(OrderRefused, match="runs already"):
            await tuning.begin_check(OTHER, requests=8_000, seed=1)
        seen = set()
        while tuning.check.running:
            await beaten(bench, 100)
            seen.add(tuning.order.weights)
        assert seen >= {PHYSICS, OTHER}
        assert tuning.order == before, "the tuner's own order, as before"
        assert tuning.check.answer is not None
        assert tuning.check.answer.winner == "other"

    bench.tuners[0].frozen = True  # the fake one would propose
    driven(bench, script)
    assert [row.what for row in bench.tuning.history] == ["proposed", "checked"]
    assert len(bench.tuners[0].learned) > 8_000, "the tuner heard what the check saw"


def test_an_order_of_an_operator_ends_a_check(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        tuning = bench.tuning
        for order, says in ((tuning.freeze, "frozen"), (tuning.reset, "reset"), (tuning.end_check, "voided")):
            await tuning.begin_check(OTHER, requests=8_000, seed=1)
            await order()
            assert tuning.order is not None
            assert (tuning.order.driver, tuning.order.weights) == ("c.1", PHYSICS)
            assert tuning.history[-1].what == says
            assert tuning.check is not None
            assert not tuning.check.running

    driven(bench, script)
    assert [row.sequence for row in bench.tuning.history] == list(range(1, 9)), "two lines of one order are two"


def test_what_is_no_check_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "s")

    async def script() -> None:
        for other, requests, why in (
            (PHYSICS, 8_000, "the same"),
            (OTHER, 10, "takes 8,000"),
            (Weights(9.0, 1.0), 8_000, "between"),
            (Weights(float("nan"), 1.0), 8_000, "between"),
        ):
            with pytest.raises(OrderRefused, match=why):
                await bench.tuning.begin_check(other, requests=requests, seed=1)

    driven(bench, script)
    assert (bench.tuning.check, bench.tuning.problem) == (None, "")


def test_a_restart_ends_a_check_and_says_so(tmp_path: Path) -> None:
    first = Bench(tmp_path / "s")

    async def script() -> None:
        await first.tuning.begin_check(OTHER, requests=8_000, seed=1)
        assert await first.saver.settled(5.0)

    driven(first, script)
    second = Bench(tmp_path / "t", saved=first.tuning.saved(EMPTY))
    assert second.tuning.order is not None
    assert second.tuning.order.weights == PHYSICS
    assert (second.tuning.history[-1].what, second.tuning.check) == ("voided", None)
    assert "a restart ended the check with rtt 0.5, queue 1.5" in second.tuning.history[-1].reason


def test_a_tuner_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    def broken(driver: str) -> Tuner:
        raise ValueError(f"no such tuner for {driver}")

    tuning = Bench(tmp_path / "s", make=broken).tuning
    tuning.hear(fresh(1), 100.0)
    assert (tuning.order, tuning.problem) == (None, "ValueError: no such tuner for c.1")
    assert tuner_row(tuning, now_s=100.0).weights is None


def test_the_loop_runs_on_while_a_tuner_thinks(tmp_path: Path) -> None:
    """The loop's own timers stay far from waiting for a step, and a freeze waits for the step that runs."""
    bench = Bench(tmp_path / "s")
    bench.tuners[0].slow_s = 0.3

    async def script() -> None:
        bench.hear(10 * LEARN_AT_ONCE)
        worst_s, last_s = 0.0, time.perf_counter()
        freezing: asyncio.Task[None] | None = None
        while not (freezing and freezing.done()):
            await asyncio.sleep(0.001)
            now_s = time.perf_counter()
            worst_s, last_s = max(worst_s, now_s - last_s), now_s
            if freezing is None and bench.tuning.counters.samples:
                freezing = asyncio.create_task(bench.tuning.freeze())
        assert bench.tuning.frozen
        assert bench.tuning.counters.samples <= 2 * LEARN_AT_ONCE, "the freeze overtook what waited"
        assert worst_s < 0.25, "shorter than one step"

    driven(bench, script)
    assert bench.tuning.counters.learn_worst_s >= 0.3
