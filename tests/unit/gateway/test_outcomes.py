"""Counting outcomes: what proves life, the last minute, and bounded series."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tradewind.gateway.metrics import outcome_families
from tradewind.gateway.outcomes import MAX_LABELS, OutcomeBook, proves_failure, proves_life
from tradewind.model.outcome import Outcome


def outcome(status: int, *, flags: str = "", cell: str | None = "x", **more: object) -> Outcome:
    return Outcome(request_id="r", cell_id=cell, status=status, flags=flags, **more)  # type: ignore[arg-type]


def page_of(book: OutcomeBook) -> bytes:
    class Once(Collector):
        def collect(self) -> Iterator[Metric]:
            return outcome_families(book)

    registry = CollectorRegistry()
    registry.register(Once())
    return generate_latest(registry)


@pytest.mark.parametrize(
    ("item", "life", "failure"),
    [
        (outcome(200, response_bytes=9), True, False),
        (outcome(200), False, True),  # a 200 without a body
        (outcome(400), True, False),
        (outcome(429), True, False),
        (outcome(503), True, False),  # full is alive
        (outcome(503, flags="URX"), True, False),  # the engines' own 503 after the last retry
        (outcome(503, flags="UF,URX"), False, True),
        (outcome(500), False, True),
        (outcome(200, stream_error_code=500), False, True),
        (outcome(0, flags="DC", client_cancelled=True), False, False),
        (outcome(503, flags="UH", cell=None), False, False),
        (outcome(0, flags="UC"), False, True),
    ],
)
def test_what_an_outcome_says_of_its_cell(item: Outcome, life: bool, failure: bool) -> None:
    assert (proves_life(item), proves_failure(item)) == (life, failure)


def test_the_summary_covers_the_last_minute_only() -> None:
    book = OutcomeBook()
    book.add(outcome(500), known_models=frozenset(), now_s=0)
    for number in range(100):
        book.add(outcome(200, ttft_s=number / 100), known_models=frozenset(), now_s=50)
    summary = book.summary(now_s=61)
    assert summary.statuses == {"200": 100}
    assert summary.cells["x"].ttft_p95_s == pytest.approx(0.95)
    assert book.cells["x"].failed == 1


def test_fc_64_junk_models_and_cells_do_not_grow_the_page() -> None:
    book = OutcomeBook()
    known = frozenset({"m"})
    for number in range(5_000):
        junk = Outcome(request_id="r", cell_id=f"cell-{number}", model=f"junk-{number}", status=200, ttft_s=0.1)
        book.add(junk, known_models=known, now_s=0)
    page = page_of(book)
    assert len(page) < 2**20
    assert b"junk" not in page
    assert page.count(b"tradewind_gateway_requests_total{") <= MAX_LABELS + 2


def test_fc_64_series_of_removed_cells_disappear() -> None:
    book = OutcomeBook()
    for cell in ("gone", "stays"):
        book.add(outcome(200, cell=cell, ttft_s=0.1), known_models=frozenset(), now_s=0)
    book.keep_only(frozenset({"stays"}))
    page = page_of(book)
    assert b"gone" not in page
    assert b"stays" in page
    assert sorted(book.cells) == ["stays"]


def test_what_a_removed_cell_served_stays_in_its_models_series() -> None:
    book = OutcomeBook()
    for cell, ttft_s in (("gone", 0.1), ("stays", 3.0), ("stays", 200.0)):
        served = outcome(200, cell=cell, model="m", ttft_s=ttft_s, duration_s=ttft_s)
        book.add(served, known_models=frozenset({"m"}), now_s=0)
    before = dict(book.by_model())["m"]
    book.keep_only(frozenset({"stays"}))
    after = dict(book.by_model())["m"]
    assert (after.statuses, after.ttft_s.counts) == (before.statuses, before.ttft_s.counts)
    assert after.ttft_s.total_s == pytest.approx(203.1)
    page = page_of(book)
    assert b'tradewind_gateway_model_ttft_seconds_bucket{le="0.1",model="m"} 1.0' in page
    assert b'tradewind_gateway_model_ttft_seconds_bucket{le="5.0",model="m"} 2.0' in page
    assert b'tradewind_gateway_model_e2e_seconds_count{model="m"} 3.0' in page
    assert b'tradewind_gateway_cell_ttft_seconds_count{cell="stays"} 2.0' in page
    assert b'tradewind_gateway_requests_total{cell="stays",status_class="2xx"} 2.0' in page
