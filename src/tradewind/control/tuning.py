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

import msgspec

from tradewind.control import api
from tradewind.control.events import EventRing
from tradewind.control.saver import Saver
from tradewind.control.store import MAX_TUNER_EVENTS, Saved
from tradewind.core.tuner.box import Box
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

log = logging.getLogger(__name__)

MAX_WAITING = 20_000  # samples; beyond it the oldest are lost
LEARN_AT_ONCE = 500  # samples, so that an operator's order waits for one such step at most
KEEP_S = 5.0  # what a tuner keeps is saved so often, and with every event
MAX_SAMPLE_AGE_S = 3_600.0

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
    order: TuningOrder
    frozen: bool
    kept: str
    took_s: float


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
        self._driver = driver
        self._made = 0
        self._events = events
        self._clock = clock
        self._unix_clock = unix_clock
        self._tuner: Tuner | None = None
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

    def hear(self, samples: Sequence[Sample], now_s: float) -> None:
        """Samples of one report that came now."""
        if self.problem or self.order is None or not samples:
            return
        mine = [sample for sample in samples if sample.driver == self.order.driver]
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
                    await self._do(lambda batch=batch: self._living().learn(batch, self._clock()))  # type: ignore[misc]
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    # --- an operator's orders ---------------------------------------------------------------------------------------

    async def freeze(self) -> None:
        """Keep the weights. Raises OrderRefused where the tuner is disabled."""
        await self._order(lambda: self._living().freeze(self._clock()))

    async def thaw(self) -> None:
        """Go on. Raises OrderRefused where the tuner is disabled."""
        await self._order(lambda: self._living().thaw(self._clock()))

    async def put(self, weights: Weights, reason: str) -> None:
        """Other weights at once. Raises OrderRefused outside the box, and where the tuner is disabled."""

        def work() -> Sequence[TunerEvent]:
            try:
                return self._living().put(weights, self._clock(), reason)
            except ValueError as error:
                raise OrderRefused(str(error)) from error

        await self._order(work)

    async def reset(self) -> None:
        """Back to the start; a tuner that is disabled is replaced by a fresh one."""
        if not self.problem:
            await self._order(lambda: self._living().reset(self._clock()))
            return
        self.problem = ""
        await self._do(self._replaced)

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
            tuner = self._living()
            kept = msgspec.json.encode(tuner.keep()).decode()
        except OrderRefused:
            raise
        except Exception as error:  # the outermost loop of the tuner's thread: a bug costs no more than the tuner
            log.exception("tuner.failed")
            return error
        took_s = time.perf_counter() - started_s
        return _Done(events=events, order=tuner.order, frozen=tuner.frozen, kept=kept, took_s=took_s)

    def _living(self) -> Tuner:
        assert self._tuner is not None, "made at the start"
        return self._tuner

    def _fresh(self) -> Tuner:
        self._made += 1
        self._tuner = self.plan.make(f"{self._driver}.{self._made}")
        return self._tuner

    def _restored(self, kept: str) -> Sequence[TunerEvent]:
        tuner, now_s = self._fresh(), self._clock()
        if not kept:
            return ()
        try:
            return tuner.restore(msgspec.json.decode(kept), now_s)
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
        self.frozen, self._kept = done.frozen, done.kept
        rows = [self._row(event) for event in done.events]
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
        if self.order is not None and self.order.child is not None:
            self._give(self.order._replace(generation=self.order.generation + 1, child=None, child_share=0.0))

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

    def _row(self, event: TunerEvent) -> api.TunerEventRow:
        last = self.history[-1].sequence if self.history else 0
        return api.TunerEventRow(
            sequence=last + 1,
            at_unix_s=self._unix_clock() - (self._clock() - event.at_s),
            what=event.what.value,
            generation=event.generation,
            weights=weights_row(event.weights),
            child=weights_row(event.child) if event.child is not None else None,
            reason=event.reason,
            figures=dict(event.figures),
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    def saved(self, others: Saved) -> Saved:
        """What must last, with what else must."""
        return replace(others, tuner=self._kept, tuner_events=tuple(self.history))

    def row(self) -> api.TunerRow:
        """For the admin API."""
        order, box, counters = self.order, self.plan.box, self.counters
        return api.TunerRow(
            kind=self.plan.kind,
            driver=order.driver if order is not None else "",
            generation=order.generation if order is not None else None,
            weights=weights_row(order.weights) if order is not None else None,
            child=weights_row(order.child) if order is not None and order.child is not None else None,
            child_share=order.child_share if order is not None else 0.0,
            frozen=self.frozen,
            problem=self.problem,
            start=weights_row(self.plan.start),
            box=api.TunerBoxRow(rtt=list(box.rtt), queue=list(box.queue), most_ratio=box.most_ratio),
            samples=counters.samples,
            samples_of_others=counters.of_others,
            samples_lost=counters.lost,
            sample_age_s=None if self.heard_s is None else self._clock() - self.heard_s,
            learn_worst_s=counters.learn_worst_s,
            events=dict(sorted(self.happened.items())),
        )


def weights_row(weights: Weights) -> api.WeightsRow:
    """As a document."""
    return api.WeightsRow(rtt=weights.rtt, queue=weights.queue)


def _sound(sample: Sample) -> bool:
    """A sample comes over a wire: times that cannot be would poison a fit."""
    spans = (sample.rtt_s, sample.queue_s, sample.prefill_s, sample.ttft_s, sample.e2e_s, sample.itl_s)
    counts = (sample.prompt_tokens, sample.uncached_tokens, sample.least_uncached_tokens)
    return (
        -MAX_SAMPLE_AGE_S <= sample.dispatched_s <= sample.finished_s <= 0.0
        and all(span is None or 0.0 <= span < math.inf for span in spans)
        and min(counts) >= 0
    )


def _nothing() -> None:
    """Before the start nobody is told."""
