"""Runs an engine model on the event loop's clock: one timer per step, late timers do not add up."""

import asyncio
import time
from collections.abc import Callable

from tradewind.engine.scheduler import EngineModel, StepOutcome, StepPlan
from tradewind.engine.sequence import Sequence, SequenceRequest

ASLEEP = "sleep"  # a reason to hold: the scheduler still takes requests in
HUNG = "hang"  # a reason to hold: the engine core does not even look at its queue
_LATE_S = 0.05  # a step that ends later than this (a busy machine) moves the engine's time; less is caught up


class LiveEngine:
    """An engine model and its clock. Held (hung or asleep), it takes work and makes no progress."""

    def __init__(
        self,
        *,
        model: EngineModel,
        loop: asyncio.AbstractEventLoop,
        on_step: Callable[[StepOutcome], None],
        on_plan: Callable[[StepPlan, float, float], None],
    ) -> None:
        self.model = model
        self.first_step_extra_s = 0.0  # a cold start's first step: kernels compile, graphs are captured
        self._loop = loop
        self._on_step = on_step
        self._on_plan = on_plan
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._end_s = 0.0
        self._held: frozenset[str] = frozenset()

    @property
    def held(self) -> frozenset[str]:
        """Why it makes no progress; empty when it does."""
        return self._held

    def hold(self, reason: str) -> None:
        """Stops progress, also of the step under way."""
        self._held |= {reason}
        self._cancel_timer()

    def release(self, reason: str) -> None:
        """Takes one reason away; progress goes on when none is left."""
        if reason not in self._held:
            return
        self._held -= {reason}
        if not self._held:
            self._end_s = time.monotonic()
            self._wake_soon()

    def submit(self, request: SequenceRequest, *, now_s: float) -> Sequence:
        """Takes a sequence in."""
        sequence = self.model.submit(request, now_s=now_s)
        if ASLEEP in self._held:
            self._loop.call_later(max(0.0, sequence.ready_s - now_s), self._take_ready)
        if not self.model.stepping:
            self._cancel_timer()
            self._wake_soon()
        return sequence

    def _take_ready(self) -> None:
        self.model.take_ready(now_s=time.monotonic())

    def _wake_soon(self) -> None:
        if self._timer is None and not self._held:
            self._timer = self._loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.model.stepping:
            self._finish()
        else:
            self._plan(time.monotonic())

    def _plan(self, start_s: float) -> None:
        plan = self.model.plan_step(now_s=start_s)
        if plan is None:
            ready_s = self.model.next_ready_s()
            if ready_s is not None:
                self._timer = self._loop.call_later(max(0.0, ready_s - time.monotonic()), self._wake)
            return
        self._end_s = start_s + plan.duration_s + self.first_step_extra_s
        self.first_step_extra_s = 0.0
        self._on_plan(plan, start_s, self._end_s)
        self._timer = self._loop.call_later(max(0.0, self._end_s - time.monotonic()), self._wake)

    def _finish(self) -> None:
        now_s = time.monotonic()
        end_s = self._end_s if now_s - self._end_s < _LATE_S else now_s
        self._on_step(self.model.finish_step(now_s=end_s))
        if not self._held and self._timer is None:
            self._plan(end_s)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
