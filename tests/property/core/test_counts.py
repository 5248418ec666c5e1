"""What is counted without a walk is what a walk would count."""

from math import fsum
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.core.evidence import Evidence
from tradewind.core.pick.later import Later
from tradewind.core.pick.rates import RateTable
from tradewind.core.pick.settings import LearningSettings
from tradewind.core.pick.slowness import Slowness
from tradewind.core.pick.work import Booking, Work
from tradewind.core.settings import VerdictSettings

CELLS = ("a", "b", "c")
SECONDS = st.floats(0.0, 50.0, allow_subnormal=False)
SMALL = VerdictSettings(window_s=5.0, max_records=24, span_records=4)
ERROR_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("error",) * 6 + ("served", "expire", "clear", "restart")),
        st.sampled_from(CELLS),
        st.sampled_from((1, 100, 150, 5_000)),
        st.sampled_from((0.0, 0.0, 0.01, 0.3, 4.0)),
    ),
    max_size=80,
)


def walked(evidence: Evidence, cell_id: str, smallest: int, held: frozenset[str]) -> int:
    """Every error of the window, in order."""
    count, begun = 0, False
    for span in evidence.spans:
        for cell, size in span.errors:
            if size >= smallest and (cell == cell_id or cell not in held):
                begun = begun or cell == cell_id
                count += begun
    return count


@settings(deadline=None)
@given(ERROR_EVENTS)
def test_errors_since_a_cells_first(events: list[tuple[str, str, int, float]]) -> None:
    evidence, now_s = Evidence(SMALL, by_size=True), 0.0
    for kind, cell, size, wait_s in events:
        now_s += wait_s
        match kind:
            case "expire":
                evidence.expire(now_s)
            case "clear":
                evidence.clear(cell)
            case "restart":
                rates, recent = evidence.remembered(now_s)
                evidence = Evidence(SMALL, by_size=True)
                evidence.recall(rates, recent, CELLS, now_s)
            case _:
                evidence.add(cell, size, error=kind == "error", now_s=now_s)
        evidence.close()
        for held in (frozenset[str](), frozenset({"a"}), frozenset({"b", "c"})):
            for about in CELLS:
                for smallest in {0, *evidence.errors.get(about, {})}:
                    expected = walked(evidence, about, smallest, held)
                    assert evidence.order.since_first(about, smallest, held) == expected


def booking(number: int, prefill_s: float, rtt_s: float) -> Booking:
    made = Booking()
    made.number, made.prefill_s, made.rtt_s = number, prefill_s, rtt_s
    made.uncached_tokens = made.output_tokens = made.prompt_tokens = 1
    return made


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("send", "send", "first", "end")), st.integers(0, 1 << 20), SECONDS)))
def test_what_waits_behind_a_first_token(events: list[tuple[str, int, float]]) -> None:
    work = Work(RateTable().of(""), Slowness(LearningSettings()), saturation=4.0)
    waiting: list[Booking] = []
    for turn, (kind, number, seconds) in enumerate(events):
        if kind == "send":
            waiting.append(booking(turn, seconds, seconds / 7))
            work.dispatch(waiting[-1], float(turn), floor=0.3)
        elif waiting:
            place = number % len(waiting)
            one = waiting.pop(place)
            if kind == "end":
                work.release(one, float(turn), floor=0.3)
                continue
            work.first_token(one, float(turn), floor=0.3)
            later_s = fsum(other.prefill_s for other in waiting[place:])
            assert work.queued_s == max(0.0, later_s - 0.5 * one.rtt_s)
    assert work.waiting == len(waiting)
    assert work.oldest is (waiting[0] if waiting else None)


@settings(deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 200))
def test_a_queue_of_any_length(seed: int, most: int) -> None:
    """Up to `most` wait, then they go, then they come again."""
    rng, later, waiting = Random(seed), Later(), list[tuple[int, float]]()
    for number in range(600):
        if len(waiting) < most and (number // 200) % 2 == 0:
            waiting.append((number, rng.expovariate(2.0)))
            later.join(*waiting[-1])
        elif waiting:
            later.leave(waiting.pop(rng.randrange(len(waiting)))[0])
        if waiting:
            at = rng.randrange(len(waiting))
            assert later.behind_s(waiting[at][0]) == fsum(each_s for _, each_s in waiting[at + 1 :])
