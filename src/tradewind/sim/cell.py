"""A cell in virtual time: the engine model, its steps as events, and what a scrape of it would show."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from tradewind.core.prefix.horizon import CacheHorizon
from tradewind.engine.board import Contention, EngineBoard, Heat
from tradewind.engine.gpu import VRAM_USED_RATIO, GpuModel, signals
from tradewind.engine.kv import CacheListener
from tradewind.engine.law import HEALTHY, SlowDown, StepLoad, step_s
from tradewind.engine.scheduler import EngineModel, StepPlan
from tradewind.engine.sequence import Sequence, SequenceRequest
from tradewind.model.telemetry import EngineReading, GpuReading
from tradewind.sim.latencies import Latencies
from tradewind.sim.loop import EventLoop
from tradewind.sim.scenario import CellSpec
from tradewind.sim.status import HTTP_BAD_REQUEST, HTTP_OK, NO_ANSWER

MOST_STEPS = 16
STRESS_S = 0.25  # how often a board under stress is looked at
WARM_UP_S = 1.0  # of a cold engine's first steps


class Condition(Enum):
    """What a look at the engine's port shows."""

    DOWN = "down"  # nobody listens: dead, or loading its weights
    WARMING = "warming"
    SERVING = "serving"


class Taken(Enum):
    """What becomes of a request that reaches a cell."""

    TAKEN = "taken"
    NO_CONNECTION = "no connection"
    TOO_LONG = "too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEvents:
    """Whom a cell tells: `first` at the first token of a sequence, `last` at its end."""

    first: Callable[[Sequence], None]
    last: Callable[[Sequence], None]


class _Listener:
    """Puts the time to what a pool says."""

    def __init__(self, horizon: CacheHorizon, loop: EventLoop) -> None:
        self._horizon = horizon
        self._loop = loop

    def stored(self, contents: Iterable[int], parent: int | None) -> None:
        self._horizon.stored(contents, self._loop.now_s)

    def removed(self, contents: Iterable[int]) -> None:
        self._horizon.removed(contents)

    def cleared(self) -> None:
        self._horizon.cleared()


class SimCell:
    """Drives one engine; it sleeps when it has nothing to do.

    Steps that only decode are let pass in runs of up to `most_steps`, one event each; a run is cut at the step in which
    something reaches the scheduler, so that the results are those of single steps.
    """

    def __init__(self, *, spec: CellSpec, loop: EventLoop, tell: CellEvents, most_steps: int = MOST_STEPS) -> None:
        self.spec = spec
        self.engine = EngineModel(profile=spec.profile, limits=spec.limits)
        self.latencies = Latencies()
        self.condition = Condition.SERVING
        self.limit_tokens: int | None = None  # a fault: what is longer is refused, and nobody was told
        self.board = EngineBoard(GpuModel(spec.profile.gpu), now_s=loop.now_s)
        self._declared = HEALTHY  # slow-down by a disturbance, the board's aside
        self._stressed = False
        self._shown = (loop.now_s, self.board.model.counters.copy())  # at the exporter's last reading
        self._started_s = 0.0
        self._starts = 0
        self._listener: CacheListener | None = None
        self._loop = loop
        self._tell = tell
        self._most_steps = most_steps
        self._ends_s: list[float] = []  # of the steps of the run under way, ascending
        self._run = 0  # a cut run's old event finds another number here

    def listen(self, horizon: CacheHorizon) -> None:
        """From now on this hears what the engine's cache stores and drops, and that of every engine after it."""
        self._listener = _Listener(horizon, self._loop)
        self.engine.pool.listener = self._listener

    def submit(self, request: SequenceRequest) -> Taken:
        """A request reaches the engine's HTTP server now."""
        tokens = request.prompt_tokens + request.output_tokens
        if self.condition is Condition.DOWN:
            return Taken.NO_CONNECTION
        if not self._fits(tokens):
            return Taken.TOO_LONG
        sequence = self.engine.submit(request, now_s=self._loop.now_s)
        if not self.engine.stepping:
            self._loop.at(sequence.ready_s, self._begin)
        else:
            self._cut(bisect_left(self._ends_s, sequence.ready_s))
        return Taken.TAKEN

    def cancel(self, seq_id: int) -> None:
        """The request's connection is gone."""
        if self.engine.stepping:
            self._settle()
            self._cut(0)
        self.engine.cancel(seq_id, now_s=self._loop.now_s)

    def kill(self) -> tuple[Sequence, ...]:
        """The engine's process ends; what was inside, in order of arrival."""
        dropped = self.engine.abort_all(now_s=self._loop.now_s)
        self.board.ends(self._loop.now_s)
        self._run += 1
        self._ends_s = []
        self.engine = EngineModel(profile=self.spec.profile, limits=self.spec.limits)
        self.engine.pool.listener = self._listener
        self.latencies = Latencies()
        self._slow_now()
        self.condition = Condition.DOWN
        self._starts += 1
        return dropped

    def start(self, *, load_s: float, changed: Callable[[], None]) -> None:
        """A new process begins to load, with empty caches; `changed`: its port opens, and later it serves."""
        number = self._starts
        self._loop.at(self._loop.now_s + load_s, partial(self._enter, Condition.WARMING, number, changed))
        self._loop.at(self._loop.now_s + load_s + WARM_UP_S, partial(self._enter, Condition.SERVING, number, changed))

    def slow_down(self, slow: SlowDown) -> None:
        """Counts from the next step on."""
        self._declared = slow
        self._slow_now()

    def stress(self, *, heat: Heat | None, contention: Contention | None) -> None:
        """What the board is under from now on."""
        self.board.let_pass(self._loop.now_s)  # what was until now was without it
        self.board.heat, self.board.contention = heat, contention
        if not self._stressed:
            self._stressed = True
            self._under_stress()

    def probed(self, prompt_tokens: int) -> tuple[int, float]:
        """The status that a probe with so long a prompt gets, and after how long; its work is not booked.

        It passes the queue, since a wait of seconds would say nothing more.
        """
        profile, slow = self.spec.profile, self.engine.slow
        if self.condition is Condition.DOWN:
            return NO_ANSWER, 0.0
        if not self._fits(prompt_tokens + 1):
            return HTTP_BAD_REQUEST, slow.ingest * profile.ingest_s
        load = StepLoad(prompt_tokens, 0, 0, prompt_tokens * prompt_tokens / 2)
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
            start_time_s=self._started_s,
        )

    def gpu_reading(self) -> GpuReading:
        """What the exporter shows now: rates since it was last asked."""
        now_s = self._loop.now_s
        self.board.let_pass(now_s)
        (then_s, before), gpu, model = self._shown, self.spec.profile.gpu, self.board.model
        self._shown = (now_s, model.counters.copy())
        shown = signals(before, model.counters, max(1e-6, now_s - then_s))
        return GpuReading(
            gpus=gpu.count,
            util_ratio=shown.util_ratio,
            vram_ratio=VRAM_USED_RATIO,
            sm_active_ratio=shown.sm_active_ratio,
            tensor_active_ratio=shown.tensor_active_ratio,
            dram_active_ratio=shown.dram_active_ratio,
            temperature_c=model.temperature_c,
            sm_clock_hz=gpu.sm_clock_hz * model.clock_ratio,
            power_w=model.power_w,
            throttle_bits=model.throttle_bits,
            pcie_bytes_per_s=shown.pcie_tx_bytes_per_s + shown.pcie_rx_bytes_per_s,
        )

    def _fits(self, tokens: int) -> bool:
        limit = self.limit_tokens
        return tokens <= self.spec.kv_capacity_tokens and (limit is None or tokens <= limit)

    def _enter(self, condition: Condition, number: int, changed: Callable[[], None]) -> None:
        if number != self._starts:
            return  # killed again meanwhile
        self.condition = condition
        self._started_s = self._loop.now_s if condition is Condition.WARMING else self._started_s
        changed()

    def _under_stress(self) -> None:
        """Looks at the board again and again, until it is well and cool."""
        self._slow_now()
        self._stressed = self.board.heat is not None or self.board.contention is not None or self._throttled
        if self._stressed:
            self._loop.at(self._loop.now_s + STRESS_S, self._under_stress)

    @property
    def _throttled(self) -> bool:
        return self.board.model.clock_ratio < 1.0

    def _slow_now(self) -> None:
        slow = self._declared.times(self.board.advance(self._loop.now_s)) if self._stressed else self._declared
        if slow == self.engine.slow:
            return
        if self.engine.stepping:
            self._settle()
            self._cut(0)
        self.engine.slow = slow

    def _begin(self) -> None:
        if self.engine.stepping:
            return
        plan = self.engine.plan_step(now_s=self._loop.now_s)
        if plan is not None:
            self._start_run(plan)
            return
        ready_s = self.engine.next_ready_s()
        if ready_s is not None:
            self._loop.at(max(ready_s, self._loop.now_s), self._begin)

    def _start_run(self, plan: StepPlan) -> None:
        ends_s = [self._loop.now_s + plan.duration_s]
        ready_s = self.engine.next_ready_s()  # somebody is in ingest: the run must not go past
        for next_s in self.engine.next_durations_s(most=self._most_steps - 1):
            if ready_s is not None and ends_s[-1] >= ready_s:
                break
            ends_s.append(ends_s[-1] + next_s)
        self._ends_s = ends_s
        prefill = plan.load.prefill_tokens > 0
        self.board.on_step(self._loop.now_s, ends_s[-1], prefill=prefill, tensor_share=plan.tensor_share)
        self._await_end()

    def _await_end(self) -> None:
        self._run += 1
        self._loop.at(self._ends_s[-1], partial(self._end, self._run))

    def _cut(self, last: int) -> None:
        """End the run with its step number `last`, if it has so many."""
        if last + 1 < len(self._ends_s):
            del self._ends_s[last + 1 :]
            self.board.ends(self._ends_s[-1])
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
