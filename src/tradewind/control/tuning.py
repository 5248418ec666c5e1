"""Runs the grid's tuner in a thread of its own: samples of gateways in, orders and history out.

Nothing here waits in the path of heartbeats or views. A tuner that raises is disabled and told; the last weights stay.
"""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from tradewind.control import api
from tradewind.control.events import EventRing
from tradewind.control.rows_tuner import CheckSeen, event_row
from tradewind.control.saver import Saver
from tradewind.control.store import MAX_TUNER_EVENTS, Saved
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.power import ENOUGH_SAMPLES
from tradewind.core.tuner.switchback import Check, Switchback
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

log = logging.getLogger(__name__)

MAX_WAITING = 20_000  # samples; beyond it the oldest are lost
LEARN_AT_ONCE = 50  # samples: at most one fit, for which an operator's order may have to wait
KEEP_S = 5.0  # what a tuner keeps is saved so often, and with every event
MAX_SAMPLE_AGE_S = 3_600.0
RECENT = ENOUGH_SAMPLES  # from which a check is planned

Make = Callable[[str], Tuner]  # driver -> a fresh one


class OrderRefused(Exception):
    """An operator's order cannot be obeyed; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerPlan:
    """What the grid file says."""

    kind: str
    make: Make
    start: Weights
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What one call of the tuner led to."""

    events: tuple[TunerEvent, ...]
    order: TuningOrder  # in force
    own: TuningOrder  # the tuner's, not a check's
    drivers: frozenset[str]  # whose orders are given here
    frozen: bool
    kept: str
    check: CheckSeen | None
    took_s: float


class _KeptOnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """What the state file holds of the tuner; `check`: the one that ran, for people."""

    tuner: dict[str, object]
    check: str = ""


@dataclass(slots=True)
class TuningCounters:
    """Since the start of this process."""

    samples: int = 0  # that the tuner learned from
    of_others: int = 0  # samples of requests that followed another driver, e.g. another control's tuner
    lost: int = 0  # that waited too long, or made no sense
    learn_worst_s: float = 0.0  # one step of the tuner


class Tuning:
    """Owns the tuner. Methods that are not `async` never wait; only its own thread touches the tuner after `start`."""

    def __init__(
        self,
        plan: TunerPlan,
        *,
        driver: str,
        events: EventRing,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        """`driver` must name this process alone: generations of two processes have no order."""
        self.plan = plan
        self.order: TuningOrder | None = None  # None = no tuner could be made
        self.frozen = False
        self.problem = ""  # why the tuner is disabled
        self.counters = TuningCounters()
        self.happened: Counter[str] = Counter()
        self.history: deque[api.TunerEventRow] = deque(maxlen=MAX_TUNER_EVENTS)
        self.heard_s: float | None = None  # when the newest sample came
        self.recent: deque[Sample] = deque(maxlen=RECENT)
        self.check: CheckSeen | None = None  # the newest one of this process
        self._drivers: frozenset[str] = frozenset()
        self._own: TuningOrder | None = None  # the tuner's order, which a check may keep out of force
        self._driver = driver
        self._made = 0
        self._events = events
        self._clock = clock
        self._unix_clock = unix_clock
        self._tuner: Tuner | None = None
        self._checker: Switchback | None = None
        self._kept = ""
        self._kept_saved = ""
        self._save_due_s = -math.inf
        self._saver: Saver | None = None
        self._on_order: Callable[[], None] = _nothing
        self._waiting: deque[Sample] = deque()
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tuner")

    # --- start and inputs -----------------------------------------------------------------------------------------

    def start(self, saved: Saved, saver: Saver, *, on_order: Callable[[], None]) -> None:
        """Go on from what was saved; from here on changes are saved by `saver` and told by `on_order`."""
        self._saver, self._on_order = saver, on_order
        self.history.extend(saved.tuner_events)
        self._take(self._call(lambda: self._restored(saved.tuner)))

    def found_late(self, saved: Saved) -> None:
        """What could not be read at the start. A tuner that has begun to learn keeps what it knows; history is kept
        in any case, with what was added since at its end."""
        begun, since = bool(self.history or self.counters.samples), list(self.history)
        self.history.clear()
        self.history.extend(saved.tuner_events)
        first = self._next_line
        self.history.extend(msgspec.structs.replace(row, sequence=first + n) for n, row in enumerate(since))
        if not begun:
            work = partial(self._restored, saved.tuner)
            asyncio.get_running_loop().run_in_executor(self._thread, self._call, work).add_done_callback(self._took)

    def hear(self, samples: Sequence[Sample], now_s: float) -> None:
        """Samples of one report that came now."""
        if self.problem or self.order is None or not samples:
            return
        mine = [sample for sample in samples if sample.driver in self._drivers]
        sound = [sample for sample in mine if _sound(sample)]
        room = MAX_WAITING - len(sound)
        while len(self._waiting) > room:
            self._waiting.popleft()
            self.counters.lost += 1
        self._waiting.extend(sample.moved(now_s) for sample in sound)
        self.counters.of_others += len(samples) - len(mine)
        self.counters.lost += len(mine) - len(sound)
        if sound:
            self.heard_s = now_s
            self._wake.set()

    async def run(self) -> None:
        """Learn until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    batch = [self._waiting.popleft() for _ in range(min(LEARN_AT_ONCE, len(self._waiting)))]
                    batch.sort(key=lambda sample: sample.finished_s)
                    self.counters.samples += len(batch)
                    self.recent.extend(batch)
                    await self._do(partial(self._learn, batch))
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)
            if self._saver is not None and self._kept != self._kept_saved:
                self._saver.put_tuner(self._kept, ())

    # --- an operator's orders ---------------------------------------------------------------------------------------

    async def freeze(self) -> None:
        """Keep the weights, and end a check. Raises OrderRefused where the tuner is disabled."""
        await self._order(lambda: (*self._given_up(), *self._living().freeze(self._clock())))

    async def thaw(self) -> None:
        """Go on. Raises OrderRefused where the tuner is disabled."""
        await self._order(lambda: self._living().thaw(self._clock()))

    async def put(self, weights: Weights, reason: str) -> None:
        """Other weights at once. Raises OrderRefused outside the box, and where the tuner is disabled."""

        def work() -> Sequence[TunerEvent]:
            try:
                events = self._living().put(weights, self._clock(), reason)
            except ValueError as error:
                raise OrderRefused(str(error)) from error
            return (*self._given_up(), *events)

        await self._order(work)

    async def reset(self) -> None:
        """Back to the start; a tuner that is disabled is replaced by a fresh one."""
        if not self.problem:
            await self._order(lambda: (*self._given_up(), *self._living().reset(self._clock())))
            return
        self.problem = ""
        await self._do(self._replaced)

    async def begin_check(self, other: Weights, *, requests: int, seed: int) -> None:
        """Compare the weights in force with others in blocks; at the end the tuner goes on as before.

        Raises OrderRefused for what is no check, while one runs, and where the tuner is disabled.
        """
        await self._order(lambda: self._checked(other, requests, seed))

    async def end_check(self) -> None:
        """Give a check up, if one runs. Raises OrderRefused where the tuner is disabled."""
        await self._order(self._given_up)

    async def _order(self, work: Callable[[], Sequence[TunerEvent]]) -> None:
        if self.problem:
            raise OrderRefused(f"the tuner is disabled: {self.problem}; `tradewind tuner reset` makes a fresh one")
        await self._do(work)

    # --- the tuner's thread -----------------------------------------------------------------------------------------

    async def _do(self, work: Callable[[], Sequence[TunerEvent]]) -> None:
        """Have it done; what came of it is taken even when nobody waits any more."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._call, work)
        future.add_done_callback(self._took)
        await asyncio.shield(future)

    def _call(self, work: Callable[[], Sequence[TunerEvent]]) -> "_Done | Exception":
        started_s = time.perf_counter()
        try:
            events = tuple(work())
            tuner, checker = self._living(), self._checker
            checks = checker is not None and not checker.frozen
            told = f"with {_told(checker.check.other)}" if checker is not None and checks else ""
            kept = msgspec.json.encode({"tuner": tuner.keep(), "check": told}).decode()
        except OrderRefused:
            raise
        except Exception as error:  # the outermost loop of the tuner's thread: a bug costs no more than the tuner
            log.exception("tuner.failed")
            return error
        return _Done(
            events=events,
            order=checker.order if checker is not None and checks else tuner.order,
            own=tuner.order,
            drivers=frozenset(item.order.driver for item in (tuner, checker) if item is not None),
            frozen=tuner.frozen,
            kept=kept,
            check=CheckSeen.of(checker) if checker is not None else None,
            took_s=time.perf_counter() - started_s,
        )

    def _learn(self, samples: Sequence[Sample]) -> Sequence[TunerEvent]:
        """The tuner hears what a check sees, too, so that what it knows of the load and the cells stays fresh."""
        now_s = self._clock()
        checked = self._checker.learn(samples, now_s) if self._checker is not None else ()
        return (*checked, *self._living().learn(samples, now_s))

    def _checked(self, other: Weights, requests: int, seed: int) -> Sequence[TunerEvent]:
        if self._checker is not None and not self._checker.frozen:
            raise OrderRefused("a check runs already; `tradewind tuner check --stop` ends it")
        check = Check(self._living().order.weights, other, requests, seed)
        try:
            self._checker = Switchback(driver=self._next_driver(), check=check, box=self.plan.box)
        except ValueError as error:
            raise OrderRefused(str(error)) from error
        order = self._checker.order
        reason = f"a check of {self._checker.requests:,} requests: {_told(check.present)} and {_told(other)} by turns"
        return (TunerEvent(self._clock(), Happened.PROPOSED, order.generation, check.present, other, reason),)

    def _given_up(self) -> Sequence[TunerEvent]:
        return self._checker.freeze(self._clock()) if self._checker is not None else ()

    def _living(self) -> Tuner:
        assert self._tuner is not None, "made at the start"
        return self._tuner

    def _next_driver(self) -> str:
        self._made += 1
        return f"{self._driver}.{self._made}"

    def _fresh(self) -> Tuner:
        self._tuner, self._checker = self.plan.make(self._next_driver()), None
        return self._tuner

    def _restored(self, kept: str) -> Sequence[TunerEvent]:
        tuner, now_s = self._fresh(), self._clock()
        if not kept:
            return ()
        try:
            state = msgspec.json.decode(kept, type=_KeptOnDisk)
            events = tuple(tuner.restore(state.tuner, now_s))
            if state.check:
                order, reason = tuner.order, f"a restart ended the check {state.check}"
                events += (TunerEvent(now_s, Happened.VOIDED, order.generation, order.weights, None, reason),)
            return events
        except Exception as error:  # noqa: BLE001 - whatever is wrong with what was kept, the tuner begins anew
            order = self._fresh().order
            reason = f"what was kept cannot be used, so it begins at the start: {error}"
            return (TunerEvent(now_s, Happened.RESET, order.generation, order.weights, None, reason),)

    def _replaced(self) -> Sequence[TunerEvent]:
        order = self._fresh().order
        reason = "a fresh tuner in place of one that was disabled"
        return (TunerEvent(self._clock(), Happened.RESET, order.generation, order.weights, None, reason),)

    # --- what came of it ------------------------------------------------------------------------------------------

    def _took(self, future: "asyncio.Future[_Done | Exception]") -> None:
        if not future.cancelled() and future.exception() is None:
            self._take(future.result())

    def _take(self, done: "_Done | Exception") -> None:
        if isinstance(done, Exception):
            self._disable(done)
            return
        self.counters.learn_worst_s = max(self.counters.learn_worst_s, done.took_s)
        self.frozen, self._kept, self._drivers, self.check = done.frozen, done.kept, done.drivers, done.check
        self._own = done.own
        rows = [self._row(event, sequence) for sequence, event in enumerate(done.events, self._next_line)]
        for row in rows:
            self.history.append(row)
            self.happened[row.what] += 1
            self._events.add(f"tuner.{row.what}", None, row.reason)
        self._save(rows)
        self._give(done.order)

    def _disable(self, error: Exception) -> None:
        """The weights stay, without a comparison that nobody judges."""
        self.problem = f"{type(error).__name__}: {error}"[:300]
        self._waiting.clear()
        self._events.add("tuner.failed", None, f"{self.problem}; the weights stay, nothing is tuned until a reset")
        own = self._own
        if own is not None and (own.child is not None or own != self.order):
            self._give(own._replace(generation=own.generation + 1, child=None, child_share=0.0))

    def _give(self, order: TuningOrder) -> None:
        if order != self.order:
            self.order = order
            self._on_order()

    def _save(self, rows: Sequence[api.TunerEventRow]) -> None:
        now_s = self._clock()
        due = self._kept != self._kept_saved and now_s >= self._save_due_s
        if self._saver is not None and (rows or due):
            self._kept_saved, self._save_due_s = self._kept, now_s + KEEP_S
            self._saver.put_tuner(self._kept, rows)

    @property
    def _next_line(self) -> int:
        return self.history[-1].sequence + 1 if self.history else 1

    def _row(self, event: TunerEvent, sequence: int) -> api.TunerEventRow:
        at_unix_s = self._unix_clock() - (self._clock() - event.at_s)
        return event_row(event, sequence=sequence, at_unix_s=at_unix_s)

    # --- reading ----------------------------------------------------------------------------------------------------

    def saved(self, others: Saved) -> Saved:
        """What must last, with what else must."""
        return replace(others, tuner=self._kept, tuner_events=tuple(self.history))


def _sound(sample: Sample) -> bool:
    """A sample comes over a wire: times that cannot be would poison a fit."""
    spans = (sample.rtt_s, sample.queue_s, sample.prefill_s, sample.ttft_s, sample.e2e_s, sample.itl_s)
    counts = (sample.prompt_tokens, sample.uncached_tokens, sample.least_uncached_tokens)
    return (
        -MAX_SAMPLE_AGE_S <= sample.dispatched_s <= sample.finished_s <= 0.0
        and all(span is None or 0.0 <= span < math.inf for span in spans)
        and min(counts) >= 0
    )


def _told(weights: Weights) -> str:
    return f"rtt {weights.rtt:.3g}, queue {weights.queue:.3g}"


def _nothing() -> None:
    """Before the start nobody is told."""
