"""Continuous batching, chunked prefill, prefix hits, priority, preemption, in virtual time."""

import sys
from dataclasses import dataclass, field

import pytest

from tradewind.engine.law import SlowDown
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits, EngineModel
from tradewind.engine.sequence import Sequence, SequenceRequest

RTX = PROFILES["rtx-pro-6000"]
FAST = PROFILES["fast"]


@dataclass(slots=True)
class Run:
    """Drives an engine in virtual time."""

    model: EngineModel
    now_s: float = 0.0
    sequences: list[Sequence] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)

    def submit(self, prompt: int, output: int, *, hashes: tuple[int, ...] = (), priority: int = 0) -> Sequence:
        request = SequenceRequest(
            seq_id=len(self.sequences),
            prompt_tokens=prompt,
            output_tokens=output,
            block_hashes=hashes,
            priority=priority,
        )
        self.sequences.append(self.model.submit(request, now_s=self.now_s))
        return self.sequences[-1]

    def step(self) -> int:
        plan = self.model.plan_step(now_s=self.now_s)
        if plan is None:
            ready_s = self.model.next_ready_s()
            assert ready_s is not None, "nothing to do, yet unfinished"
            self.now_s = max(self.now_s, ready_s)
            return 0
        self.now_s += plan.duration_s
        outcome = self.model.finish_step(now_s=self.now_s)
        self.finished += [sequence.request.seq_id for sequence in outcome.finished]
        self.model.pool.check()
        return len(outcome.emitted)

    def to_end(self) -> None:
        while self.model.unfinished:
            self.step()


def fast(*, schedules_ahead: bool = False, **limits: int) -> Run:
    return Run(EngineModel(profile=FAST, limits=EngineLimits(schedules_ahead=schedules_ahead, **limits)))


def test_one_request_takes_ingest_prefill_and_decodes() -> None:
    run = Run(EngineModel(profile=RTX, limits=EngineLimits()))
    sequence = run.submit(512, 128)
    run.to_end()
    assert sequence.first_token_s == pytest.approx(0.015 + 0.2617, abs=0.002)
    assert sequence.finished_s == pytest.approx(0.2767 + 127 * 0.0277, rel=0.02)
    assert sequence.generated == 128
    assert sequence.finish_reason == "length"
    assert run.model.kv_used_ratio == 0.0


def test_a_long_prompt_goes_in_chunks_and_decodes_go_first() -> None:
    run = fast()
    first = run.submit(16, 100)
    run.step()
    run.step()
    run.submit(5000, 2)
    plan = run.model.plan_step(now_s=run.now_s)
    assert plan is not None
    assert plan.load.decodes == 1
    assert plan.load.prefill_tokens == 2047
    run.model.finish_step(now_s=run.now_s + plan.duration_s)
    assert first.generated >= 2
    assert run.model.running == 2


def test_the_batch_is_bounded_by_max_num_seqs() -> None:
    run = fast(max_num_seqs=3)
    for _ in range(5):
        run.submit(100, 10)
    run.step()
    assert (run.model.running, run.model.waiting) == (3, 2)
    run.to_end()
    assert sorted(run.finished) == [0, 1, 2, 3, 4]


def test_first_come_first_served() -> None:
    run = fast(max_num_seqs=1)
    for _ in range(4):
        run.submit(50, 3)
    run.to_end()
    assert run.finished == [0, 1, 2, 3]


def test_lower_priority_values_jump_the_queue_and_spare_the_running() -> None:
    run = fast(max_num_seqs=1)
    for priority in (0, 0, 10, -10):
        run.submit(50, 3, priority=priority)
    run.step()
    run.to_end()
    assert run.finished == [3, 0, 1, 2]


def test_a_second_equal_prompt_hits_whole_blocks_only() -> None:
    run = fast(block_size_tokens=32)
    hashes = tuple(range(1, 10))
    first = run.submit(72, 3, hashes=hashes[:2])
    run.to_end()
    second = run.submit(72, 3, hashes=hashes[:2])
    run.to_end()
    assert (first.cached_tokens, second.cached_tokens) == (0, 64)
    assert run.model.counters.prefix_queries_tokens == 144
    assert run.model.counters.prefix_hits_tokens == 64


def test_a_whole_prompt_is_never_taken_from_the_cache() -> None:
    run = fast(block_size_tokens=16)
    run.submit(64, 1, hashes=(1, 2, 3, 4))
    run.to_end()
    again = run.submit(64, 1, hashes=(1, 2, 3, 4))
    run.to_end()
    assert again.cached_tokens == 48


def test_the_answer_is_cached_for_the_next_turn() -> None:
    run = fast(block_size_tokens=16)
    run.submit(32, 33, hashes=(1, 2, 3, 4))
    run.to_end()
    following = run.submit(80, 1, hashes=(1, 2, 3, 4, 5))
    run.to_end()
    assert following.cached_tokens == 64


def test_a_shared_prefix_is_computed_faster() -> None:
    run = fast()
    hashes = tuple(range(100, 225))
    cold = run.submit(2000, 1, hashes=hashes)
    run.to_end()
    start_s = run.now_s
    warm = run.submit(2000, 1, hashes=hashes)
    run.to_end()
    assert warm.first_token_s is not None
    assert cold.first_token_s is not None
    assert warm.first_token_s - start_s < cold.first_token_s / 3


def test_kv_pressure_preempts_and_everybody_still_finishes() -> None:
    run = fast(kv_capacity_tokens=40 * 16)
    for _ in range(8):
        run.submit(40, 200)
    highest = 0.0
    while run.model.unfinished:
        run.step()
        highest = max(highest, run.model.kv_used_ratio)
    assert run.model.counters.preemptions > 0
    assert 0.9 <= highest <= 1.0
    assert [sequence.generated for sequence in run.sequences] == [200] * 8
    assert run.model.kv_used_ratio == 0.0


def test_the_oldest_request_is_never_preempted() -> None:
    run = fast(kv_capacity_tokens=40 * 16)
    for _ in range(8):
        run.submit(40, 200)
    run.to_end()
    assert run.sequences[0].preemptions == 0
    assert run.finished[0] == 0


def test_cancel_frees_the_blocks_at_once_even_in_the_middle_of_a_step() -> None:
    run = fast()
    run.submit(500, 50)
    run.submit(500, 50)
    run.step()
    plan = run.model.plan_step(now_s=run.now_s)
    assert plan is not None
    assert run.model.cancel(0, now_s=run.now_s)
    assert run.model.running == 1
    outcome = run.model.finish_step(now_s=run.now_s + plan.duration_s)
    assert [sequence.request.seq_id for sequence in outcome.emitted] == [1]
    assert not run.model.cancel(0, now_s=run.now_s)
    assert run.model.cancel(1, now_s=run.now_s)
    assert run.model.unfinished == 0
    assert run.model.kv_used_ratio == 0.0
    run.model.pool.check()


def test_cancel_reaches_the_queue_and_ingest() -> None:
    run = Run(EngineModel(profile=RTX, limits=EngineLimits(max_num_seqs=1)))
    run.submit(10, 5)
    run.now_s = 1.0
    run.step()
    run.submit(10, 5)
    run.now_s = 2.0
    run.step()
    assert run.model.waiting == 1
    run.submit(10, 5)
    assert run.model.cancel(1, now_s=2.0)
    assert run.model.cancel(2, now_s=2.0)
    assert run.model.waiting == 0
    run.to_end()
    assert run.finished == [0]


def test_slow_terms_slow_the_engine() -> None:
    healthy, slow = fast(), fast()
    slow.model.slow = SlowDown(b=4.0)
    for run in (healthy, slow):
        run.submit(2000, 10)
        run.to_end()
    assert slow.now_s > 2 * healthy.now_s


def test_an_empty_engine_has_no_step() -> None:
    assert fast().model.plan_step(now_s=0.0) is None


def test_abort_all_returns_everything_in_arrival_order() -> None:
    run = fast(max_num_seqs=1)
    for _ in range(3):
        run.submit(10, 10)
    run.step()
    dropped = run.model.abort_all(now_s=run.now_s)
    assert [sequence.request.seq_id for sequence in dropped] == [0, 1, 2]
    assert {sequence.finish_reason for sequence in dropped} == {"abort"}
    assert run.model.unfinished == run.model.running == run.model.waiting == 0


def test_a_step_that_only_decodes_costs_the_same_for_few_and_for_many() -> None:
    assert calls_of_decode_steps(sequences=100) == calls_of_decode_steps(sequences=5)


def calls_of_decode_steps(*, sequences: int) -> int:
    """Python functions called in five steps in which no block fills and nobody ends."""
    run = fast(max_num_seqs=200)
    for _ in range(sequences):
        run.submit(17, 100)
    while run.model.waiting or run.model.running < sequences or not run.sequences[-1].generated:
        run.step()
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for _ in range(5):
            plan = run.model.plan_step(now_s=run.now_s)
            assert plan is not None
            run.now_s += plan.duration_s
            run.model.finish_step(now_s=run.now_s)
    finally:
        sys.setprofile(None)
    assert {sequence.generated for sequence in run.sequences} == {6}
    return calls


@pytest.mark.parametrize(("ahead", "tokens_before"), [(False, 2), (True, 3)])
def test_an_engine_that_schedules_ahead_takes_a_newcomer_one_step_later(ahead: bool, tokens_before: int) -> None:
    run = fast(schedules_ahead=ahead)
    first = run.submit(100, 40)
    run.step()
    assert run.model.plan_step(now_s=run.now_s) is not None
    run.now_s += 0.05
    second = run.submit(100, 1)  # while the second step runs
    run.now_s += 0.05
    run.model.finish_step(now_s=run.now_s)
    while second.first_token_s is None:
        begun_with = first.generated
        run.step()
    assert begun_with == tokens_before


@pytest.mark.parametrize(("ahead", "gap_steps"), [(False, 0), (True, 1)])
def test_an_engine_that_schedules_ahead_gives_a_place_away_one_step_after_it_is_free(
    ahead: bool, gap_steps: int
) -> None:
    run = fast(schedules_ahead=ahead, max_num_seqs=2)
    staying = run.submit(50, 30)
    leaving = run.submit(50, 3)
    run.step()
    waiting = run.submit(50, 5)
    while leaving.finished_s is None:
        run.step()
    ended_with = staying.generated
    while waiting.first_token_s is None:
        run.step()
    assert staying.generated - ended_with - 1 == gap_steps


def test_an_idle_engine_that_schedules_ahead_begins_at_once() -> None:
    run = fast(schedules_ahead=True)
    first = run.submit(100, 1)
    run.to_end()
    run.now_s += 1.0
    second = run.submit(100, 1)
    run.to_end()
    assert first.first_token_s is not None
    assert second.first_token_s is not None
    assert second.first_token_s - second.arrival_s == pytest.approx(first.first_token_s - first.arrival_s)
