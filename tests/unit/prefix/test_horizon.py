"""What KV events say without names: how far back a cache reaches, and when it was emptied."""

from random import Random

from tradewind.core.prefix.horizon import CacheHorizon, merged
from tradewind.core.prefix.index import STEP_S, PrefixIndex
from tradewind.engine.kv import BlockPool
from tradewind.model.telemetry import CacheReading


def test_a_removed_block_tells_how_far_back_the_cache_reaches() -> None:
    horizon = CacheHorizon()
    horizon.begun()
    horizon.stored([1, 2], 10.0, block_size_tokens=16)
    horizon.stored([3], 20.0)
    assert horizon.reading(25.0).untouched_s is None, "nothing has gone"
    assert horizon.reading(25.0).resident_tokens == 48
    horizon.removed([2])
    assert horizon.reading(25.0).untouched_s == 15.0
    horizon.removed([1])
    horizon.removed([3])
    assert horizon.reading(25.0).untouched_s == 5.0
    horizon.removed([3, 77])
    assert horizon.reading(30.0).untouched_s == 10.0, "what was never stored says nothing"
    assert horizon.reading(30.0).resident_tokens == 0


def test_of_two_copies_the_earlier_time_counts() -> None:
    """Nobody says which of them went, so only the earlier one is sure."""
    horizon = CacheHorizon()
    horizon.stored([1], 10.0)
    horizon.stored([1], 20.0)
    horizon.removed([1])
    assert horizon.reading(20.0).untouched_s == 10.0


def test_a_clearing_is_counted_and_ends_what_was_known() -> None:
    horizon = CacheHorizon()
    assert horizon.reading(0.0).resident_tokens is None, "heard from somewhere in the middle on"
    horizon.stored([1], 1.0, block_size_tokens=16)
    horizon.removed([1])
    horizon.cleared()
    reading = horizon.reading(2.0)
    assert (reading.clearings, reading.untouched_s, reading.resident_tokens) == (1, None, 0)
    horizon.missed()
    assert horizon.reading(2.0).resident_tokens is None


def test_memory_is_bounded() -> None:
    horizon = CacheHorizon(max_blocks=100)
    horizon.begun()
    horizon.stored(range(1_000), 1.0, block_size_tokens=16)
    assert horizon.reading(1.0).resident_tokens is None, "not all of it is remembered"
    horizon.removed([5])
    assert horizon.reading(1.0).untouched_s is None
    horizon.removed([950])
    assert horizon.reading(1.0).untouched_s == 0.0


def test_an_index_that_is_trimmed_drops_what_the_engine_dropped_and_no_more() -> None:
    """The pool evicts the least recently freed; prompts of four blocks come again by chance, several at a time."""
    rng, pool, horizon = Random(7), BlockPool(blocks=64, block_size_tokens=16), CacheHorizon()
    index, untold, clock, dropped = PrefixIndex(), PrefixIndex(), [0.0], [0]

    class Listener:
        def stored(self, contents: list[int], parent: int | None) -> None:
            horizon.stored(contents, clock[0])

        def removed(self, contents: list[int]) -> None:
            horizon.removed(contents)
            dropped[0] += len(contents)

        def cleared(self) -> None:
            horizon.cleared()

    pool.listener = Listener()  # type: ignore[assignment]
    prompts = [tuple(prompt << 8 | place for place in range(1, 5)) for prompt in range(40)]
    running: list[tuple[tuple[int, ...], list[int]]] = []
    over = over_untold = 0
    for step in range(1_500):
        clock[0] = step * 2 * STEP_S
        if len(running) > 6 or (running and rng.random() < 0.4):
            blocks, held = running.pop(rng.randrange(len(running)))
            pool.release(held)
            index.touch("a", blocks, clock[0])
        else:
            blocks = prompts[min(rng.randrange(40), rng.randrange(40))]
            cached = pool.match(blocks, len(blocks))
            pool.share(cached)
            fresh = pool.allocate(len(blocks) - len(cached))
            assert fresh is not None
            held = [*cached, *fresh]
            pool.publish(held, blocks)
            running.append((blocks, held))
            index.record("a", blocks, clock[0])
            untold.record("a", blocks, clock[0])
        untouched_s = horizon.reading(clock[0]).untouched_s
        if untouched_s is not None:
            index.trim("a", clock[0] - untouched_s)
        for prompt in prompts:
            believed, really = index.matches(prompt).get("a", 0), len(pool.match(prompt, len(prompt)))
            in_use = any(prompt == blocks for blocks, _ in running)
            assert believed >= really or in_use, "it never drops what is there"
            over += max(0, believed - really)
            over_untold += untold.matches(prompt).get("a", 0) - really
    assert dropped[0] > 500, "there was something to see"
    assert over < over_untold / 4, f"block steps believed and not there: {over} of {over_untold}"


def test_of_several_caches_only_what_all_have_dropped_is_gone() -> None:
    one = CacheReading(clearings=1, untouched_s=10.0, resident_tokens=100)
    other = CacheReading(clearings=2, untouched_s=30.0, resident_tokens=50)
    assert merged([one]) == one
    assert merged([one, other]) == CacheReading(clearings=3, untouched_s=30.0, resident_tokens=150)
    assert merged([one, CacheReading()]) == CacheReading(clearings=1)
