"""An engine that must have published and has not is told from one that had nothing to say."""

from dataclasses import replace
from random import Random
from typing import Self

import pytest

from tradewind.agent.kv_silence import HOLD_S, MARGIN, QUIET_S, SPARE_BLOCKS, KvSilence
from tradewind.emulator.kv_events import KvEventLog
from tradewind.engine.profiles import PROFILES
from tradewind.engine.scheduler import EngineLimits, EngineModel
from tradewind.engine.sequence import SequenceRequest
from tradewind.model.telemetry import EngineReading, Histogram
from tradewind.telemetry.kv_events import decode

BLOCK = 16
IDLE = EngineReading(
    prompt_tokens_total=0.0,
    prefix_hit_tokens_total=0.0,
    finished_total=0.0,
    ttft_s=Histogram(bounds=(), counts=(0.0,)),
    running_requests=0.0,
    queue_requests=0.0,
)
FIGURES = (
    "prompt_tokens_total",
    "prefix_hit_tokens_total",
    "finished_total",
    "ttft_s",
    "running_requests",
    "queue_requests",
)


class Wire:
    """An engine that was heard at 0 s, and its page, read each second."""

    def __init__(self, *, block_size_tokens: int | None = BLOCK) -> None:
        self.silence = KvSilence()
        self.reading = IDLE
        self.now_s = 0.0
        self.message(block_size_tokens)

    def message(self, block_size_tokens: int | None = BLOCK) -> Self:
        if block_size_tokens is not None:
            self.silence.stored(block_size_tokens)
        self.silence.heard(self.now_s)
        return self

    def served(self, prompts: int, tokens: int, *, hits: int = 0) -> Self:
        """So many prompts of so many tokens each are over."""
        reading = self.reading
        assert reading.ttft_s is not None
        self.reading = replace(
            reading,
            prompt_tokens_total=(reading.prompt_tokens_total or 0) + prompts * tokens,
            prefix_hit_tokens_total=(reading.prefix_hit_tokens_total or 0) + prompts * hits,
            finished_total=(reading.finished_total or 0) + prompts,
            ttft_s=replace(reading.ttft_s, counts=(reading.ttft_s.counts[0] + prompts,)),
        )
        return self

    def passes(self, seconds: float, *, prompts: int = 0, tokens: int = 0, hits: int = 0) -> bool:
        """Whether it is silent after so long, with such requests in each second."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.served(prompts, tokens, hits=hits)
            self.silence.page(self.reading, self.now_s)
        return self.silence.silent


LONG_S = 10 * (QUIET_S + HOLD_S)


def test_an_engine_that_computes_prompts_and_says_nothing_is_silent() -> None:
    wire = Wire()
    assert not wire.passes(QUIET_S, prompts=2, tokens=500)
    assert not wire.passes(HOLD_S, prompts=2, tokens=500), "a message may be under way"
    assert wire.passes(2, prompts=2, tokens=500)
    assert wire.silence.silent_s == QUIET_S + HOLD_S + 1
    assert wire.silence.computed_tokens == 2 * 500 * (HOLD_S + 1)
    assert wire.passes(LONG_S), "it is not heard by doing nothing"


def test_a_single_long_prompt_after_the_last_message_is_enough() -> None:
    wire = Wire()
    wire.passes(LONG_S)
    wire.served(1, 4096)
    assert wire.passes(HOLD_S + 2)


@pytest.mark.parametrize(
    ("prompts", "tokens", "hits"),
    [
        (0, 0, 0),  # idle
        (3, 4096, 4096 - BLOCK),  # the last block is computed again, or the engine would have nothing to do
        (50, BLOCK - 1, 0),  # no block fills
        (5, 1000, 992),
    ],
)
def test_an_engine_that_has_nothing_to_tell_is_not_silent(prompts: int, tokens: int, hits: int) -> None:
    assert not Wire().passes(LONG_S, prompts=prompts, tokens=tokens, hits=hits)


def test_what_fits_into_unfilled_blocks_with_a_margin_is_no_evidence() -> None:
    def silent(tokens: int) -> bool:
        wire = Wire()
        wire.passes(QUIET_S)
        wire.served(4, tokens)
        return wire.passes(LONG_S)

    most = int(BLOCK * (MARGIN * 4 + SPARE_BLOCKS)) // 4
    assert not silent(most)
    assert silent(most + 1)


def test_larger_blocks_take_more_to_fill() -> None:
    assert not Wire(block_size_tokens=2048).passes(LONG_S, prompts=2, tokens=500)
    assert not Wire(block_size_tokens=None).passes(LONG_S, prompts=2, tokens=500), "unknown is no verdict"
    several = Wire(block_size_tokens=2048).message(BLOCK)
    assert not several.passes(LONG_S, prompts=2, tokens=500)


def test_each_message_begins_the_count_again() -> None:
    wire = Wire()
    for _ in range(5):
        assert not wire.passes(QUIET_S + HOLD_S, prompts=2, tokens=500)
        wire.message()
    assert wire.passes(LONG_S, prompts=2, tokens=500)
    wire.message()
    assert not wire.silence.silent, "back"
    assert not wire.passes(QUIET_S + HOLD_S, prompts=2, tokens=500)
    assert wire.passes(LONG_S, prompts=2, tokens=500), "gone again"


def test_what_the_last_message_told_of_may_show_on_the_page_later() -> None:
    """Prompts are booked at their first token, some engines do it at the last: their blocks were told long before."""
    wire = Wire()
    wire.reading = replace(wire.reading, running_requests=2.0, queue_requests=1.0)
    wire.passes(3 * QUIET_S)
    wire.reading = replace(wire.reading, running_requests=0.0, queue_requests=0.0)
    wire.served(3, 10_000)
    assert not wire.passes(LONG_S)
    wire.served(1, 10_000)
    assert wire.passes(HOLD_S + 2), "that one began later"


def test_requests_that_never_end_do_not_hide_the_others() -> None:
    wire = Wire()
    wire.reading = replace(wire.reading, running_requests=3.0)
    assert wire.passes(LONG_S, prompts=1, tokens=500)


def test_clients_that_leave_are_prompts_too() -> None:
    """An engine books neither their end, nor are they inside any longer; what they left unfilled is no evidence."""
    wire = Wire()
    for _ in range(int(LONG_S)):
        finished = wire.reading.finished_total
        wire.served(20, BLOCK)
        wire.reading = replace(wire.reading, finished_total=finished)
        assert not wire.passes(1)


def test_a_counter_that_falls_begins_the_count_again() -> None:
    wire = Wire().served(1000, 10_000)
    assert not wire.passes(QUIET_S + HOLD_S, prompts=2, tokens=500)
    wire.reading = IDLE
    assert not wire.passes(HOLD_S, prompts=2, tokens=500), "without it this were the verdict"
    assert wire.passes(HOLD_S, prompts=2, tokens=500), "it counts from here, not from what it was before"


def test_requests_that_are_given_up_do_not_put_the_verdict_off() -> None:
    wire = Wire()
    wire.reading = replace(wire.reading, running_requests=30.0)
    wire.passes(2 * QUIET_S)
    wire.reading = replace(wire.reading, running_requests=0.0)
    wire.passes(1)
    wire.served(1, 4096)
    assert wire.passes(HOLD_S + 2)


def test_hits_are_booked_before_their_prompts() -> None:
    wire = Wire()
    wire.reading = replace(wire.reading, running_requests=1.0)
    wire.passes(QUIET_S)
    wire.reading = replace(wire.reading, running_requests=20.0, prefix_hit_tokens_total=20 * 4080.0)
    wire.served(1, 10)
    wire.passes(1)
    wire.reading = replace(wire.reading, running_requests=0.0)
    wire.served(20, 4096)
    assert not wire.passes(LONG_S)


@pytest.mark.parametrize("figure", FIGURES)
def test_an_unknown_figure_is_no_verdict(figure: str) -> None:
    wire = Wire()
    for _ in range(int(LONG_S)):
        wire.served(2, 500)
        wire.now_s += 1.0
        wire.silence.page(replace(wire.reading, **{figure: None}), wire.now_s)
        assert not wire.silence.silent
    assert wire.passes(LONG_S, prompts=2, tokens=500)


def test_another_process_has_time_to_be_heard() -> None:
    wire = Wire()
    wire.passes(LONG_S)
    wire.silence.engine_restarted(wire.now_s)
    wire.reading = IDLE
    assert not wire.passes(QUIET_S, prompts=2, tokens=500)
    assert wire.passes(HOLD_S + 3, prompts=2, tokens=500)


def test_who_was_never_heard_is_not_silent() -> None:
    silence = KvSilence()
    silence.stored(BLOCK)
    for second in range(100):
        silence.page(replace(IDLE, prompt_tokens_total=1e4 * second, finished_total=1.0 * second), 1.0 * second)
    silence.engine_restarted(200.0)
    assert not silence.silent


class Engine:
    """The engine model under random traffic: what it publishes, and its page."""

    def __init__(self, seed: int, *, repeats: float) -> None:
        self._rng = Random(seed)
        self._repeats = repeats  # share of prompts that were sent before
        self._model = EngineModel(
            profile=PROFILES["fast"], limits=EngineLimits(block_size_tokens=BLOCK, kv_capacity_tokens=4096)
        )
        self._log = KvEventLog(block_size_tokens=BLOCK)
        self._model.pool.listener = self._log
        self._known: list[SequenceRequest] = []
        self._first = self._finished = 0
        self.now_s = 0.0

    def runs(self, seconds: float, *, per_s: float) -> list[bytes]:
        """The messages of so long."""
        messages: list[bytes] = []
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            if self._rng.random() < 0.02 * per_s:
                self._model.submit(self._request(), now_s=self.now_s)
            self.now_s += 0.02
            while self._model.plan_step(now_s=self.now_s) is not None:
                outcome = self._model.finish_step(now_s=self.now_s)
                self._first += len(outcome.first)
                self._finished += len(outcome.finished)
                if (frames := self._log.take(topic=b"", at_s=0.0)) is not None:
                    messages.append(frames[2])
                if self._rng.random() < 0.3:
                    break
        return messages

    def _request(self) -> SequenceRequest:
        number = len(self._known)
        if self._known and self._rng.random() < self._repeats:
            old = self._rng.choice(self._known[-8:])
            prompt, hashes = old.prompt_tokens, old.block_hashes
        else:
            prompt = self._rng.choice((5, 40, 300, 1500))
            hashes = tuple(1000 * number + block for block in range(prompt // BLOCK))
        request = SequenceRequest(
            seq_id=number, prompt_tokens=prompt, output_tokens=self._rng.randrange(1, 400), block_hashes=hashes
        )
        self._known.append(request)
        return request

    def page(self) -> EngineReading:
        counters = self._model.counters
        return replace(
            IDLE,
            prompt_tokens_total=float(counters.prompt_tokens),
            prefix_hit_tokens_total=float(counters.prefix_hits_tokens),
            finished_total=float(self._finished),
            ttft_s=Histogram(bounds=(), counts=(float(self._first),)),
            running_requests=float(self._model.running),
            queue_requests=float(self._model.waiting),
        )


@pytest.mark.parametrize("repeats", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_an_engine_that_is_heard_is_never_silent_and_one_that_is_not_is_found_out(seed: int, repeats: float) -> None:
    engine, silence = Engine(seed, repeats=repeats), KvSilence()

    def second(*, per_s: float, heard: bool) -> None:
        for payload in engine.runs(1.0, per_s=per_s):
            events, bad = decode(payload)
            assert not bad
            assert events
            if heard:
                silence.stored(BLOCK)
                silence.heard(engine.now_s)
        silence.page(engine.page(), engine.now_s)

    for index in range(120):
        second(per_s=(0.1, 1.0, 4.0)[index // 20 % 3], heard=True)
        assert not silence.silent, index
    for _ in range(180):
        second(per_s=4.0, heard=False)
    assert silence.silent == (repeats < 1.0), "all in the cache: nothing was lost"
