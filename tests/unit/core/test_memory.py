"""A scorer that comes back knows what it knew: verdicts, suspicion, error rates, prompt lengths; no time crosses."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.test_verdicts import leak, mixed, refuses_long, serves, verdicts
from tests.unit.core.world import World, world
from tradewind.core.capability import LongestPrompt
from tradewind.core.memory import MAX_ROWS, ErrorRate, JudgeMemory, Lengths, Memory, Recent, Record, Verdict
from tradewind.core.outcomes import Kind
from tradewind.core.recipe import WeightScorer
from tradewind.core.settings import CapabilitySettings, ScoringSettings, VerdictSettings
from tradewind.core.verdicts import Judge

CELLS = ("a", "b", "c", "d")


def restart(grid: World, *, remembering: bool, down_s: float = 2.0) -> None:
    """Another process takes over; with a new clock, to which no time of the old one means anything."""
    assert isinstance(grid.scorer, WeightScorer)
    memory = grid.scorer.remembered(grid.now_s).aged(down_s)
    grid.scorer = WeightScorer(ScoringSettings())
    if remembering:
        grid.scorer.recall(memory, frozenset(cell.cell_id for cell in grid.cells), grid.now_s)
    grid.refresh()


def convicted(seed: int) -> World:
    grid = world(seed=seed, sizes=mixed).run(20.0)
    grid.cell(4).answer = refuses_long
    while not verdicts(grid):
        grid.run(grid.now_s + 1.0)
    return grid


@pytest.mark.parametrize("seed", range(3))
def test_a_restart_sends_no_long_prompt_to_the_cell_that_refuses_them(seed: int) -> None:
    grid = convicted(seed)
    before = grid.cell(4).refused
    restart(grid, remembering=True)
    assert grid.weight(4) == 0
    grid.run(grid.now_s + 60.0)
    assert grid.cell(4).refused == before
    grid.cell(4).answer = serves
    grid.run(grid.now_s + 30.0)
    assert grid.weight(4) >= 120


def test_without_memory_the_lesson_costs_refusals_again() -> None:
    refused = []
    for seed in range(3):
        grid = convicted(seed)
        before = grid.cell(4).refused
        restart(grid, remembering=False)
        grid.run(grid.now_s + 60.0)
        refused.append(grid.cell(4).refused - before)
        assert leak(grid, 4, 0.0, after=0) > 0
    assert sum(refused) > 0


def judge(**settings: object) -> Judge:
    return Judge("m", Kind.REFUSAL, VerdictSettings(**settings), probes=False)  # type: ignore[arg-type]


def serve(judge: Judge, rounds: int, now_s: float) -> None:
    for number in range(rounds):
        for cell in CELLS:
            judge.on_outcome(cell, 2000, error=False, cells=CELLS, now_s=now_s + number * 0.01)


def refuse(judge: Judge, cell: str, now_s: float) -> bool:
    return judge.on_outcome(cell, 2000, error=True, cells=CELLS, now_s=now_s)


def reborn(old: Judge, *, at_s: float, down_s: float = 0.0, cells: tuple[str, ...] = CELLS) -> tuple[Judge, float]:
    new, now_s = judge(), 5.0
    memory = Memory(cases=(old.remembered(at_s),)).aged(down_s)
    new.recall(memory.cases[0], cells, now_s)
    return new, now_s


def test_suspicion_goes_on_where_it_stood() -> None:
    old = judge()
    serve(old, 30, 1000.0)
    errors = 0
    while not refuse(old, "a", 1001.0 + 0.1 * errors):
        errors += 1
    assert errors >= 1  # the verdict took more than one
    again = judge()
    serve(again, 30, 1000.0)
    for number in range(errors):
        assert not refuse(again, "a", 1001.0 + 0.1 * number)
    new, now_s = reborn(again, at_s=1002.0)
    assert refuse(new, "a", now_s + 0.1)
    fresh = judge()
    serve(fresh, 30, now_s)
    assert not refuse(fresh, "a", now_s + 0.5)


def test_suspicion_that_lay_for_longer_than_the_window_is_gone_and_the_rate_is_not() -> None:
    old = judge()
    serve(old, 30, 1000.0)
    refuse(old, "a", 1001.0)
    new, now_s = reborn(old, at_s=1002.0, down_s=120.0)
    new.evidence.expire(now_s)
    assert new.evidence.errors_of("a") == 0
    assert [rate.cell_id for rate in new.remembered(now_s).rates] == list(CELLS)


def test_a_noisy_fleet_stays_noisy() -> None:
    old = judge()
    for number in range(40):
        serve(old, 1, 1000.0 + number)
        for cell in CELLS:
            old.on_outcome(cell, 2000 + number, error=number % 4 == 0, cells=CELLS, now_s=1000.5 + number)
    case = old.evidence.case("a", cells=4, held=frozenset())
    new, _ = reborn(old, at_s=1041.0)
    again = new.evidence.case("a", cells=4, held=frozenset())
    assert case is not None
    assert again is not None
    assert case.noisy is again.noisy is True
    assert (again.errors, again.concentration) == (case.errors, case.concentration)
    assert again.likelihood == pytest.approx(case.likelihood, rel=0.02)


def test_cells_that_are_gone_are_not_recalled() -> None:
    old = judge()
    serve(old, 30, 1000.0)
    for number in range(4):
        refuse(old, "a", 1001.0 + number)
    assert old.held() == {"a"}
    new, now_s = reborn(old, at_s=1006.0, cells=("b", "c", "d"))
    assert not new.holds
    assert {rate.cell_id for rate in new.remembered(now_s).rates} <= {"b", "c", "d"}


def test_an_hour_without_an_error_is_not_worth_a_byte() -> None:
    quiet = judge()
    serve(quiet, 50, 1000.0)
    assert quiet.remembered(1001.0).is_empty


def test_the_longest_prompt_is_remembered_and_ages() -> None:
    settings = CapabilitySettings()
    longest = LongestPrompt(settings)
    longest.on_request(request_bytes=16_000, prompt_tokens=4000, completion_tokens=100, now_s=1000.0)
    memory = longest.remembered("m", 1010.0)
    assert memory is not None
    again = LongestPrompt.recalled(memory, settings, 7.0)
    assert again.longest(7.0) == 4100.0
    late = Memory(lengths=(memory,)).aged(settings.memory_s).lengths[0]
    assert LongestPrompt.recalled(late, settings, 7.0).longest(7.0) == 0.0


HISTORY = st.lists(
    st.tuples(st.sampled_from(CELLS), st.integers(1, 10**6), st.booleans(), st.floats(0.0, 2.0)), max_size=60
)


@given(HISTORY)
def test_what_is_recalled_is_remembered_alike(history: list[tuple[str, int, bool, float]]) -> None:
    old, now_s = judge(), 1000.0
    for cell, size, error, pause_s in history:
        now_s += pause_s
        old.on_outcome(cell, size, error=error, cells=CELLS, now_s=now_s)
    old.tick(CELLS, now_s)
    first = old.remembered(now_s)
    new = judge()
    new.recall(first, CELLS, 50.0)
    second = new.remembered(50.0)
    assert second.recent.requests == first.recent.requests
    assert second.recent.errors == first.recent.errors
    assert [verdict.cell_id for verdict in second.verdicts] == [verdict.cell_id for verdict in first.verdicts]
    new.tick(CELLS, 50.1)
    new.orders(CELLS, Random(1), 60.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Verdict(cell_id="a", age_s=-1.0, reason="", request_bytes=1),
        lambda: Verdict(cell_id="a", age_s=float("nan"), reason="", request_bytes=1),
        lambda: Verdict(cell_id="a", age_s=1.0, reason="x" * 1001, request_bytes=1),
        lambda: Record(cell_id="a", canary_hold_s=float("inf")),
        lambda: ErrorRate(cell_id="a", errors=-1.0, requests=1.0, age_s=0.0),
        lambda: Recent(requests=(("a", 10_000, 1),)),
        lambda: Recent(errors=(("a", -1),)),
        lambda: Recent(requests=(("a", 1, -1),)),
        lambda: Lengths(pool="m", maxima=((0.0, float("inf")),), requests=1, watched_s=1.0),
        lambda: Lengths(pool="m", maxima=(), requests=1, watched_s=1.0, tokens_per_byte=0.0),
        lambda: JudgeMemory(model="x" * 5000, kind="refusal"),
        lambda: Memory(lengths=(None,) * (MAX_ROWS + 1)),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=r"\w"):
        build()
