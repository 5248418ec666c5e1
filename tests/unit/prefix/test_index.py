"""The prefix index: who holds what, what gives way, and what a restart takes."""

import gc
import tracemalloc
from itertools import count
from random import Random

import pytest

from tradewind.core.prefix.index import PrefixIndex

_serial = count(1)
BLOCK_BYTES = 250  # the benchmark `prefix` measures about 180; small dicts are emptier


def prompt(length: int) -> tuple[int, ...]:
    """Blocks that no other prompt has."""
    return tuple(next(_serial) << 32 for _ in range(length))


def test_a_cell_holds_the_leading_blocks_of_what_was_sent_to_it() -> None:
    index, shared = PrefixIndex(), prompt(4)
    index.record("a", shared + prompt(2), 0.0)
    index.record("b", shared[:2] + prompt(3), 0.0)
    assert index.matches(shared + prompt(1)) == {"a": 4, "b": 2}
    assert index.matches(prompt(3)) == {}
    assert index.matches(()) == {}


def test_the_least_recently_used_prompt_gives_way_leaves_first() -> None:
    index = PrefixIndex()
    index.set_capacity("a", 6)
    old, new = prompt(4), prompt(4)
    index.record("a", old, 0.0)
    index.record("a", new, 1.0)
    assert index.matches(new) == {"a": 4}
    assert index.matches(old) == {"a": 2}, "its two deepest blocks went first"
    assert index.blocks_of("a") == 6


def test_a_prompt_beyond_the_capacity_is_held_by_its_beginning() -> None:
    index = PrefixIndex()
    index.set_capacity("a", 3)
    long = prompt(10)
    index.record("a", long, 0.0)
    assert index.matches(long) == {"a": 3}


def test_less_capacity_evicts_at_once() -> None:
    index, held = PrefixIndex(), prompt(8)
    index.record("a", held, 0.0)
    index.set_capacity("a", 5)
    assert index.matches(held) == {"a": 5}
    index.set_capacity("a", 0)
    assert index.matches(held) == {}
    assert len(index) == 0


def test_a_restarted_cell_loses_its_own_blocks_and_no_other() -> None:  # FC-51
    index, shared = PrefixIndex(), prompt(5)
    index.set_capacity("a", 4)
    for cell_id in ("a", "b"):
        index.record(cell_id, shared, 0.0)
    index.forget("a")
    assert index.matches(shared) == {"b": 5}
    index.record("a", shared, 1.0)
    assert index.matches(shared) == {"a": 4, "b": 5}, "the capacity outlives the restart"
    index.forget("nobody")


def test_blocks_that_an_engine_dropped_end_the_match() -> None:
    index, held = PrefixIndex(), prompt(5)
    index.record("a", held, 0.0)
    index.record("b", held, 0.0)
    index.remove("a", held[2:3])
    assert index.matches(held) == {"a": 2, "b": 5}
    index.remove("nobody", held)


def test_heat_counts_where_the_deepest_match_ended_and_decays() -> None:
    index, hot = PrefixIndex(), prompt(3)
    index.record("a", hot + prompt(2), 0.0)
    assert index.heat(hot, 3, 0.0) == 0.0, "the first request matched nothing"
    for _ in range(4):
        index.record("b", hot + prompt(2), 10.0)
    assert index.heat(hot, 3, 10.0) == pytest.approx(4.0)
    assert index.heat(hot, 3, 40.0) == pytest.approx(4.0 / 2.718281828, rel=1e-6)
    assert index.heat(hot, 2, 10.0) == 0.0, "the deepest match never ended there"
    assert index.heat(hot, 0, 10.0) == 0.0


def test_a_session_stays_cool() -> None:
    index, turns = PrefixIndex(), prompt(40)
    for turn in range(1, 20):
        depth = max(index.matches(turns[: 2 * turn]).values(), default=0)
        assert index.heat(turns, depth, float(turn)) <= 1.0
        index.record("a", turns[: 2 * turn], float(turn))


def test_cells_come_and_go_without_a_trace() -> None:  # FC-50
    index = PrefixIndex()
    for number in range(200):
        index.record(f"cell-{number}", prompt(50), float(number))
    for number in range(200):
        index.remove_cell(f"cell-{number}")
    assert len(index) == 0
    held = prompt(3)
    index.record("again", held, 0.0)
    assert index.matches(held) == {"again": 3}
    index.remove_cell("nobody")


def test_all_cells_together_stay_under_the_cap() -> None:
    index = PrefixIndex(max_blocks=1_000, cell_blocks=400)
    for number in range(20):
        for _ in range(20):
            index.record(f"cell-{number}", prompt(30), float(number))
            assert len(index) <= 1_000
    assert all(index.blocks_of(f"cell-{number}") == 50 for number in range(20)), "fair shares"


def test_unique_prompts_and_a_split_storm_stay_under_the_stated_bound() -> None:  # FC-50
    """20,000 prompts, half of them new, half branching off one base at every offset."""
    index = PrefixIndex(max_blocks=8_000, cell_blocks=4_000)
    rng = Random(1)
    base = prompt(512)
    tracemalloc.start()
    try:
        for number in range(20_000):
            blocks = prompt(8) if number % 2 else base[: rng.randrange(1, 64)] + prompt(2)
            index.record(f"cell-{number % 4}", blocks, number / 100)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(index) == 8_000
    assert after <= 8_000 * BLOCK_BYTES
    assert peak <= 2 * after, "eviction happens during the insert; a dict is copied when it grows"
