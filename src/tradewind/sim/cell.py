"""A cell in virtual time: the engine model, its steps as events, and what a scrape of it would show."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tradewind.engine.law import SlowDown, StepLoad, step_s
from tradewind.engine.scheduler import EngineModel
from tradewind.engine.sequence import Sequence, SequenceRequest
from tradewind.model.telemetry import EngineReading
from tradewind.sim.latencies import Latencies
from tradewind.sim.loop import EventLoop
from tradewind.sim.scenario import CellSpec
from tradewind.sim.status import HTTP_OK

MOST_STEPS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvents:
    """Whom a cell tells: `first` at the first token of a sequence, `last` at its end."""

    first: Callable[[Sequence], None]
    last: Callable[[Sequence], None]


class SimCell:
    """Drives one engine; it sleeps when it has nothing to do.

    Steps that only decode are let pass in runs of up to `most_steps`, one event each; a run is cut at the step in which
    something reaches the scheduler, so that the results are those of single steps.
    """

    def __init__(self, *, spec: CellSpec, loop: EventLoop, tell: CellEvents, most_steps: int = MOST_STEPS) -> None:
        self.spec = spec
        self.engine = EngineModel(profile=spec.profile, limits=spec.limits)
        self.latencies = Latencies()
        self._loop = loop
        self._tell = tell
        self._most_steps = most_steps
        self._ends_s: list[float] = []  # of the steps of the run under way, ascending
        self._run = 0  # a cut run's old event finds another number here

    def submit(self, request: SequenceRequest) -> None:
        """A request reaches the engine's HTTP server now."""
        sequence = self.engine.submit(request, now_s=self._loop.now_s)
        if not self.engine.stepping:
            self._loop.at(sequence.ready_s, self._begin)
        else:
            self._cut(bisect_left(self._ends_s, sequence.ready_s))

    def slow_down(self, slow: SlowDown) -> None:
        """Counts from the next step on."""
        if self.engine.stepping:
            self._cut(bisect_right(self._ends_s, self._loop.now_s))
        self.engine.slow = slow

    def probed(self, prompt_tokens: int) -> tuple[int, float]:
        """The status that a probe with so long a prompt gets, and after how long; its work is not booked.

        It passes the queue, since a wait of seconds would say nothing more.
        """
        load = StepLoad(prompt_tokens, 0, 0, prompt_tokens * prompt_tokens / 2)
        profile, slow = self.spec.profile, self.engine.slow
        return HTTP_OK, slow.ingest * profile.ingest_s + step_s(profile, load, slow)

    def reading(self) -> EngineReading:
        """What the metrics page shows now."""
        self._settle()
        engine, counters = self.engine, self.engine.counters
        return EngineReading(
            queue_requests=float(engine.waiting),
            running_requests=float(engine.running),
            kv_fill_ratio=engine.kv_used_ratio,
            kv_fill_max_ratio=engine.kv_used_ratio,
            ttft_s=self.latencies.ttft_s(),
            itl_s=self.latencies.itl_s(),
            prompt_tokens_total=float(counters.prompt_tokens),
            prompt_computed_tokens_total=float(counters.prompt_tokens - counters.prompt_cached_tokens),
            generation_tokens_total=float(counters.generation_tokens),
            steps_total=float(counters.steps),
            prefix_query_tokens_total=float(counters.prefix_queries_tokens),
            prefix_hit_tokens_total=float(counters.prefix_hits_tokens),
            preemptions_total=float(counters.preemptions),
            finished_total=float(self.latencies.finished),
            server_errors_total=0.0,
            start_time_s=0.0,
        )

    def _begin(self) -> None:
        if self.engine.stepping:
            return
        plan = self.engine.plan_step(now_s=self._loop.now_s)
        if plan is not None:
            self._start_run(plan.duration_s)
            return
        ready_s = self.engine.next_ready_s()
        if ready_s is not None:
            self._loop.at(max(ready_s, self._loop.now_s), self._begin)

    def _start_run(self, duration_s: float) -> None:
        ends_s = [self._loop.now_s + duration_s]
        ready_s = self.engine.next_ready_s()  # somebody is in ingest: the run must not go past
        for next_s in self.engine.next_durations_s(most=self._most_steps - 1):
            if ready_s is not None and ends_s[-1] >= ready_s:
                break
            ends_s.append(ends_s[-1] + next_s)
        self._ends_s = ends_s
        self._await_end()

    def _await_end(self) -> None:
        self._run += 1
        self._loop.at(self._ends_s[-1], partial(self._end, self._run))

    def _cut(self, last: int) -> None:
        """End the run with its step number `last`, if it has so many."""
        if last + 1 < len(self._ends_s):
            del self._ends_s[last + 1 :]
            self._await_end()

    def _settle(self) -> None:
        """Book the steps of the run that have ended by now; the last one is its event's."""
        ended = min(bisect_right(self._ends_s, self._loop.now_s), len(self._ends_s) - 1)
        if ended > 0:
            self.engine.skip_steps(ended, ended_s=self._ends_s[ended - 1])
            del self._ends_s[:ended]

    def _end(self, run: int) -> None:
        if run != self._run:
            return
        self._settle()
        self._ends_s = []
        outcome = self.engine.finish_step(now_s=self._loop.now_s)
        for sequence in outcome.first:
            self.latencies.first(sequence, self._loop.now_s)
            self._tell.first(sequence)
        for sequence in outcome.finished:
            self.latencies.last(sequence)
            self._tell.last(sequence)
        self._begin()
