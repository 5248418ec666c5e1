"""Continuous batching with chunked prefill: the engine as one passive object for real and for virtual time.

A driver submits sequences, asks for the next step (`plan_step`), lets its duration pass on its own clock, and calls
`finish_step`. Nothing here knows a clock, a thread or chance. The model follows vLLM V1: decodes first, then prefill
in arrival (or priority) order within a token budget, KV blocks taken as tokens come, the last sequence preempted and
recomputed when blocks run out.
"""

import heapq
from dataclasses import dataclass

import msgspec

from tradewind.engine.batch import Batch
from tradewind.engine.kv import BlockPool
from tradewind.engine.law import HEALTHY, SlowDown, StepLoad, decode_steps_s, step_s, tensor_share
from tradewind.engine.profiles import Profile
from tradewind.engine.sequence import Sequence, SequenceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Sizes of one engine."""

    max_num_seqs: int = 256
    token_budget: int = 2048  # tokens per step
    block_size_tokens: int = 16
    kv_capacity_tokens: int = 0  # 0 = the profile's
    schedules_ahead: bool = False  # a batch is made while the one before it runs, from what was known at its start


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step about to run. A struct, as all that is made for a step: a frozen dataclass takes ten times longer."""

    duration_s: float
    load: StepLoad
    tensor_share: float  # of the prefill's matrix work, 0..1


class StepOutcome(msgspec.Struct, frozen=True):
    """What a step gave: every sequence that got one token, in order, and the parts of them with a first or last one."""

    emitted: tuple[Sequence, ...]
    first: tuple[Sequence, ...]
    finished: tuple[Sequence, ...]
    step_tokens: int


@dataclass(slots=True)
class Counters:
    """Totals since the engine started."""

    prompt_tokens: int = 0
    prompt_cached_tokens: int = 0
    prefix_queries_tokens: int = 0
    prefix_hits_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    steps: int = 0


class EngineModel:
    """One engine. Deterministic: the same calls with the same times give the same results."""

    def __init__(self, *, profile: Profile, limits: EngineLimits) -> None:
        capacity_tokens = limits.kv_capacity_tokens or profile.kv_capacity_tokens
        self.profile = profile
        self.limits = limits
        self.pool = BlockPool(
            blocks=max(1, capacity_tokens // limits.block_size_tokens), block_size_tokens=limits.block_size_tokens
        )
        self.slow: SlowDown = HEALTHY
        self.counters = Counters()
        self._ingest: list[tuple[float, int, Sequence]] = []
        self._waiting: list[tuple[tuple[int, int], Sequence]] = []
        self._waiting_count = 0
        self._batch = Batch(block_size_tokens=limits.block_size_tokens)
        self._full: list[Sequence] = []  # decodes that need a block for their next token
        self._live: dict[int, Sequence] = {}
        self._plan: StepPlan | None = None
        self._prefilling: list[Sequence] = []  # of the step in progress
        self._began_s: float | None = None  # the newest step; None when there was nothing to do after it
        self._ended_s = 0.0  # the step before the next one
        self._ended = 0  # sequences that ended with it

    # -- what a driver reads ------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Sequences in the scheduler's queue."""
        return self._waiting_count

    @property
    def unfinished(self) -> int:
        """All sequences inside, those still in ingest included."""
        return len(self._live)

    @property
    def kv_used_ratio(self) -> float:
        """Share of KV blocks in use, 0..1."""
        return self.pool.used_ratio

    @property
    def stepping(self) -> bool:
        """A step was planned and not finished."""
        return self._plan is not None

    def next_ready_s(self) -> float | None:
        """When the next sequence leaves ingest; None if nothing is on its way."""
        return self._ingest[0][0] if self._ingest else None

    # -- what a driver does -------------------------------------------------------------------------------------------

    def submit(self, request: SequenceRequest, *, now_s: float) -> Sequence:
        """Takes a sequence in; it reaches the queue after the ingest time. It must fit into the KV cache."""
        assert request.seq_id not in self._live, "seq_id must be unique"
        assert self._blocks_for(request.prompt_tokens + request.output_tokens) <= self.pool.blocks, (
            "exceeds the KV cache"
        )
        ready_s = now_s + self.slow.ingest * self.profile.ingest_s
        sequence = Sequence(request=request, arrival_s=now_s, ready_s=ready_s)
        self._live[request.seq_id] = sequence
        heapq.heappush(self._ingest, (ready_s, request.seq_id, sequence))
        return sequence

    def cancel(self, seq_id: int, *, now_s: float) -> bool:
        """Drops a sequence at once, also in the middle of a step; False if it is not inside (any more)."""
        sequence = self._live.pop(seq_id, None)
        if sequence is None:
            return False
        sequence.cancelled = True
        sequence.finish_reason = "abort"
        sequence.finished_s = now_s
        if sequence in self._batch:
            self._leave_batch(sequence)
        elif sequence.queued:
            self._unqueue(sequence)
        return True

    def abort_all(self, *, now_s: float) -> tuple[Sequence, ...]:
        """Drops everything, in arrival order, and returns it."""
        dropped = tuple(self._live[seq_id] for seq_id in sorted(self._live))
        for sequence in dropped:
            self.cancel(sequence.request.seq_id, now_s=now_s)
        return dropped

    def plan_step(self, *, now_s: float) -> StepPlan | None:
        """Builds the next batch; None if there is nothing to do. `finish_step` must follow before the next plan."""
        assert self._plan is None, "finish the step in progress first"
        known_s = self._began_s if self.limits.schedules_ahead and self._ended_s == now_s else None
        self.take_ready(now_s=now_s if known_s is None else known_s)
        preempted = bool(self._full) and self._grow_decodes()
        decodes = len(self._batch.decodes)
        budget = self._continue_prefills(self.limits.token_budget - decodes)
        if not preempted:
            self._admit_waiting(
                budget, now_s, places=self.limits.max_num_seqs - (0 if known_s is None else self._ended)
            )
        if not decodes and not self._prefilling:
            self._began_s = None
            return None
        self._began_s = now_s
        prefill_tokens, attention = 0, 0.0
        for sequence in self._prefilling:
            prefill_tokens += sequence.chunk_tokens
            attention += _attention(sequence)
        load = StepLoad(prefill_tokens, decodes, self._batch.kv_tokens, attention)
        self._plan = StepPlan(
            duration_s=step_s(self.profile, load, self.slow),
            load=load,
            tensor_share=tensor_share(self.profile, load, self.slow) if load.prefill_tokens else 0.0,
        )
        return self._plan

    def finish_step(self, *, now_s: float) -> StepOutcome:
        """Ends the step in progress at `now_s`."""
        assert self._plan is not None, "plan a step first"
        batch, load = self._batch, self._plan.load
        emitted = tuple(batch.decodes.values())
        batch.advance(1, ended_s=now_s)
        first: list[Sequence] = []
        if self._prefilling:
            through = self._finish_prefills(now_s)
            first = [sequence for sequence in through if self._note_first(sequence, now_s)]
            emitted = (*emitted, *through)
        self._full = batch.take_full()
        for sequence in self._full:
            self._publish(sequence)
        finished = batch.take_ended()
        for sequence in finished:
            self._finish(sequence, now_s)
        self.counters.steps += 1
        self.counters.generation_tokens += len(emitted)
        self._plan = None
        self._prefilling = []
        self._ended_s, self._ended = now_s, len(finished)
        return StepOutcome(emitted, tuple(first), tuple(finished), load.prefill_tokens + load.decodes)

    def next_durations_s(self, *, most: int) -> list[float]:
        """Durations of up to `most` steps that will follow the one in progress with the same batch, if nobody comes.

        Empty unless only decodes run, none waits, and there are blocks enough. In virtual time a driver can let these
        steps pass at once (`skip_steps`); the results are those of single steps.
        """
        plan, batch = self._plan, self._batch
        if plan is None or self._prefilling or self._waiting_count or len(batch.decodes) != plan.load.decodes:
            return []
        if not batch.decodes:
            return []
        steps = min(most, batch.steps_to_end() - 1)
        most_blocks = len(batch.decodes) * (1 + steps // self.limits.block_size_tokens)
        if steps < 1 or most_blocks > self.pool.free:
            return []
        return decode_steps_s(self.profile, plan.load, self.slow, steps=steps)

    def skip_steps(self, count: int, *, ended_s: float) -> None:
        """Books the step in progress and those after it, `count` in all, as ended, the last one at `ended_s`.

        The step after them is then in progress. At most as many as `next_durations_s` has told, none cancelled since.
        """
        batch = self._batch
        assert batch.steps_to_end() > count, "the last token needs a step of its own"
        batch.advance(count, ended_s=ended_s)
        self._began_s = ended_s
        self.counters.steps += count
        self.counters.generation_tokens += count * len(batch.decodes)
        while full := batch.take_full():
            for sequence in full:
                self._publish(sequence)
                grown = self._grow(sequence)
                assert grown, "a run of steps has room for its tokens"

    def reset_prefix_cache(self) -> None:
        """Forgets cached prefixes."""
        self.pool.clear_cache()

    def take_ready(self, *, now_s: float) -> None:
        """Queues what has left ingest; `plan_step` does it too, an engine that sleeps does only this."""
        while self._ingest and self._ingest[0][0] <= now_s:
            _, _, sequence = heapq.heappop(self._ingest)
            if not sequence.cancelled:
                self._enqueue(sequence)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _enqueue(self, sequence: Sequence) -> None:
        sequence.queued = True
        self._waiting_count += 1
        heapq.heappush(self._waiting, (sequence.order, sequence))

    def _unqueue(self, sequence: Sequence) -> None:
        sequence.queued = False
        self._waiting_count -= 1

    def _grow_decodes(self) -> bool:
        """Gives every decoding sequence room for one token, preempting where needed; True if any was preempted."""
        preempted = False
        for sequence in self._full:
            while sequence.decoding and not self._grow(sequence):
                batch = self._batch
                self._preempt(max((*batch.decodes.values(), *batch.prefills.values()), key=_order_of))
                preempted = True
        self._full = []
        return preempted

    def _grow(self, sequence: Sequence) -> bool:
        fresh = self.pool.allocate(1)
        if fresh is None:
            return False
        sequence.blocks += fresh
        self._batch.grown(sequence)
        return True

    def _continue_prefills(self, budget: int) -> int:
        """Chunks of the prompts already in the batch; returns the budget left."""
        self._prefilling = []
        for sequence in self._batch.prefills.values():
            if budget > 0:
                budget -= self._take_chunk(sequence, budget)
        return budget

    def _take_chunk(self, sequence: Sequence, budget: int) -> int:
        sequence.chunk_tokens = min(sequence.total_tokens - sequence.computed_tokens, budget)
        self._prefilling.append(sequence)
        return sequence.chunk_tokens

    def _admit_waiting(self, budget: int, now_s: float, *, places: int) -> None:
        while budget > 0 and self._waiting and len(self._batch) < places:
            sequence = self._waiting[0][1]
            if not sequence.queued:
                heapq.heappop(self._waiting)
                continue
            if not self._take_prompt_blocks(sequence):
                return  # head of the line: nobody overtakes a prompt that waits for memory
            heapq.heappop(self._waiting)
            self._unqueue(sequence)
            self._batch.admit(sequence)
            if sequence.scheduled_s is None:
                sequence.scheduled_s = now_s
            budget -= self._take_chunk(sequence, budget)

    def _take_prompt_blocks(self, sequence: Sequence) -> bool:
        size = self.limits.block_size_tokens
        cached = self.pool.match(sequence.request.block_hashes, (sequence.total_tokens - 1) // size)
        fresh = self._blocks_for(sequence.total_tokens) - len(cached)
        # A little is left for the decodes in the batch, or the newcomer would be preempted by their next tokens.
        reserve = min(len(self._batch), self.pool.blocks // 100)
        if self.pool.needs(cached, fresh) + reserve > self.pool.free:
            return False
        self.pool.share(cached)
        taken = self.pool.allocate(fresh)
        assert taken is not None
        sequence.blocks = cached + taken
        sequence.published_blocks = len(cached)
        sequence.computed(len(cached) * size)
        if not sequence.preemptions:
            sequence.cached_tokens = len(cached) * size
            self.counters.prefix_queries_tokens += sequence.total_tokens
            self.counters.prefix_hits_tokens += sequence.cached_tokens
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._leave_batch(sequence)
        sequence.computed(0)
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._enqueue(sequence)

    def _finish_prefills(self, now_s: float) -> list[Sequence]:
        """Books the chunks that have run; returns the sequences whose prompt is through, their next token added."""
        through = []
        for sequence in self._prefilling:
            if sequence.cancelled:
                continue
            computed_tokens = sequence.computed_tokens + sequence.chunk_tokens
            sequence.computed(computed_tokens)
            sequence.chunk_tokens = 0
            self._publish(sequence)
            if computed_tokens == sequence.total_tokens:
                sequence.add_token(now_s=now_s)
                through.append(sequence)
            elif not sequence.generated or computed_tokens < sequence.total_tokens - 1:
                continue
            self._batch.begin_decode(sequence)
        return through

    def _note_first(self, sequence: Sequence, now_s: float) -> bool:
        """True if the token just made was the sequence's first one."""
        if sequence.first_token_s is not None:
            return False
        sequence.first_token_s = now_s
        self.counters.prompt_tokens += sequence.request.prompt_tokens
        self.counters.prompt_cached_tokens += sequence.cached_tokens
        return True

    def _publish(self, sequence: Sequence) -> None:
        hashes, blocks = sequence.request.block_hashes, sequence.blocks
        if sequence.published_blocks >= len(hashes):
            return
        full = min(sequence.computed_tokens // self.limits.block_size_tokens, len(hashes), len(blocks))
        done = sequence.published_blocks
        if full > done:
            self.pool.publish(blocks[done:full], hashes[done:full], parent=hashes[done - 1] if done else None)
            sequence.published_blocks = full

    def _finish(self, sequence: Sequence, now_s: float) -> None:
        sequence.finish_reason = sequence.request.finish_reason
        sequence.finished_s = now_s
        del self._live[sequence.request.seq_id]
        self._leave_batch(sequence)

    def _leave_batch(self, sequence: Sequence) -> None:
        self._batch.remove(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.published_blocks = 0

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_size_tokens)


def _order_of(sequence: Sequence) -> tuple[int, int]:
    return sequence.order


def _attention(sequence: Sequence) -> float:
    return sequence.chunk_tokens * (sequence.computed_tokens + sequence.chunk_tokens / 2)
