"""Numbers, histograms and pages are written as prometheus_client writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import utils

from tradewind.emulator.exposition import Histogram, Page, number


def reference(value: float) -> str:
    return str(utils.floatToGoString(value))  # type: ignore[no-untyped-call]  # the client's own


@given(st.floats(min_value=0, max_value=1e18, allow_nan=False))
def test_numbers(value: float) -> None:
    assert number(value) == reference(value)


@pytest.mark.parametrize("value", [0, 1, 0.25, 1795996732.48, 123456, 1234567, 1e21, 6.51833344e08])
def test_usual_numbers(value: float) -> None:
    assert number(value) == reference(value)


def test_histogram_bounds_are_inclusive() -> None:
    histogram = Histogram([0.1, 0.5])
    for value in (0.1, 0.2, 0.5, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [1, 3, 4]
    assert histogram.count == 4
    assert histogram.total == pytest.approx(9.8)


def test_a_page_asks_for_live_values_at_each_render() -> None:
    page = Page()
    value = 1.0
    page.fixed("# HELP a A")
    page.scalar("a", lambda: value)
    page.fixed("# end")
    assert page.render() == b"# HELP a A\na 1.0\n# end\n"
    value = 2.0
    assert b"a 2.0" in page.render()
