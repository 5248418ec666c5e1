"""Invariants of the engine's scheduler under any history of submits, steps and cancels."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits, EngineModel
from tradewind.engine.sequence import Sequence, SequenceRequest

BLOCKS = 24
SIZE = 16
CAPACITY = BLOCKS * SIZE


@dataclass(frozen=True, slots=True)
class Submit:
    prompt: int
    output: int
    family: int  # sequences of one family share their prefix
    priority: int


@dataclass(frozen=True, slots=True)
class Step:
    count: int


@dataclass(frozen=True, slots=True)
class Cancel:
    which: int


submits = st.builds(
    Submit,
    prompt=st.integers(1, CAPACITY // 2),
    output=st.integers(1, CAPACITY // 2),
    family=st.integers(0, 2),
    priority=st.integers(-1, 1),
)
events = st.lists(
    st.one_of(submits, st.builds(Step, count=st.integers(1, 30)), st.builds(Cancel, which=st.integers(0, 30))),
    max_size=60,
)


@dataclass(slots=True)
class History:
    model: EngineModel
    sequences: list[Sequence]
    now_s: float = 0.0
    trace: str = ""

    def play(self, happened: list[Submit | Step | Cancel]) -> None:
        for event in happened:
            match event:
                case Submit():
                    self.submit(event)
                case Step():
                    for _ in range(event.count):
                        self.step()
                case Cancel() if self.sequences:
                    victim = self.sequences[event.which % len(self.sequences)]
                    was_inside = victim.finish_reason is None
                    assert self.model.cancel(victim.request.seq_id, now_s=self.now_s) is was_inside
                    self.invariants()
                case Cancel():
                    continue

    def submit(self, event: Submit) -> None:
        hashes = tuple(1000 * event.family + index for index in range((event.prompt + event.output) // SIZE))
        request = SequenceRequest(
            seq_id=len(self.sequences),
            prompt_tokens=event.prompt,
            output_tokens=event.output,
            block_hashes=hashes,
            priority=event.priority,
        )
        self.sequences.append(self.model.submit(request, now_s=self.now_s))

    def step(self) -> bool:
        plan = self.model.plan_step(now_s=self.now_s)
        self.invariants()
        if plan is None:
            ready_s = self.model.next_ready_s()
            if ready_s is None:
                return False
            self.now_s = max(self.now_s, ready_s)
            return True
        assert plan.duration_s > 0
        assert plan.load.prefill_tokens + plan.load.decodes <= self.model.limits.token_budget
        self.now_s += plan.duration_s
        outcome = self.model.finish_step(now_s=self.now_s)
        self.trace += f"{self.now_s:.9f}:{[sequence.request.seq_id for sequence in outcome.emitted]};"
        self.invariants()
        return True

    def invariants(self) -> None:
        model = self.model
        model.pool.check()
        assert 0.0 <= model.kv_used_ratio <= 1.0
        assert model.running <= model.limits.max_num_seqs
        assert model.running + model.waiting <= model.unfinished
        for sequence in self.sequences:
            assert sequence.generated <= sequence.request.output_tokens
            assert sequence.computed_tokens <= sequence.total_tokens
            if sequence.finish_reason is not None:
                assert not sequence.blocks


def history(max_num_seqs: int, token_budget: int) -> History:
    limits = EngineLimits(
        max_num_seqs=max_num_seqs,
        token_budget=token_budget,
        block_size_tokens=SIZE,
        kv_capacity_tokens=CAPACITY,
    )
    return History(EngineModel(profile=PROFILES["rtx-pro-6000"], limits=limits), [])


@settings(deadline=None, max_examples=150)
@given(happened=events, max_num_seqs=st.integers(1, 8), token_budget=st.integers(8, 200))
def test_every_submitted_request_finishes_or_is_cancelled(
    happened: list[Submit | Step | Cancel], max_num_seqs: int, token_budget: int
) -> None:
    played = history(max_num_seqs, token_budget)
    played.play(happened)
    for _ in range(200_000):
        if not played.model.unfinished:
            break
        assert played.step()
    assert played.model.unfinished == played.model.running == played.model.waiting == 0
    assert played.model.kv_used_ratio == 0.0
    for sequence in played.sequences:
        if not sequence.cancelled:
            assert sequence.generated == sequence.request.output_tokens
            assert sequence.finish_reason == "length"


@settings(deadline=None, max_examples=50)
@given(happened=events)
def test_the_same_history_gives_the_same_steps(happened: list[Submit | Step | Cancel]) -> None:
    first, second = history(4, 64), history(4, 64)
    first.play(happened)
    second.play(happened)
    assert first.trace == second.trace


@settings(deadline=None, max_examples=50)
@given(lengths=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 30)), min_size=1, max_size=12))
def test_first_tokens_come_in_order_of_arrival(lengths: list[tuple[int, int]]) -> None:
    played = history(2, 64)
    for prompt, output in lengths:
        played.submit(Submit(prompt, output, family=len(played.sequences), priority=0))
    while played.model.unfinished:
        played.step()
    scheduled = [sequence.scheduled_s for sequence in played.sequences]
    assert scheduled == sorted(scheduled, key=lambda at_s: at_s or 0.0)
