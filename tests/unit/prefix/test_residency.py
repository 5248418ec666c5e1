"""What an engine keeps, counted from its own events."""

from tradewind.core.prefix.residency import MIN_DROPS, Residency


def test_it_is_unknown_until_the_cache_was_seen_empty() -> None:
    cell = Residency()
    cell.changed(stored_tokens=100, dropped_tokens=0)
    assert [cell.resident_tokens] == [None]
    cell.emptied()
    cell.changed(stored_tokens=100, dropped_tokens=0)
    assert cell.resident_tokens == 100
    cell.lost()
    assert cell.resident_tokens is None


def test_a_cache_that_drops_is_full() -> None:
    cell = Residency()
    cell.emptied()
    for _ in range(100):
        cell.changed(stored_tokens=64, dropped_tokens=0)
    assert [cell.capacity_tokens] == [None], "it never was full"
    for _ in range(10 * MIN_DROPS):
        cell.changed(stored_tokens=64, dropped_tokens=64)
    assert cell.capacity_tokens == 6_400
    cell.emptied()
    assert (cell.resident_tokens, cell.capacity_tokens) == (0, 6_400), "how much it holds outlives what it holds"


def test_it_never_falls_below_nothing() -> None:
    cell = Residency()
    cell.emptied()
    cell.changed(stored_tokens=0, dropped_tokens=50)
    assert cell.resident_tokens == 0
