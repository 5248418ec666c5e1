"""What the runs with late first tokens say of their records."""

import pytest

from tradewind.lab.scenarios.late import ARMS, late_checks, late_grid
from tradewind.measure.record import Failure, Record


def record(at_s: float, ttft_s: float, *, attempts: int | None = 1, failure: Failure = Failure.NONE) -> Record:
    return Record(
        request_id="r", intended_s=at_s, sent_s=at_s, content_s=at_s + ttft_s, attempts=attempts, failure=failure
    )


def test_attempts_are_counted_where_they_are_known() -> None:
    records = [record(0.0, 0.1), record(1.0, 0.6, attempts=2), record(2.0, 0.1, attempts=None)]
    rows = {check.name.rpartition(": ")[2]: check for check in late_checks(records, name="hedge", hangs=3)}
    assert rows["further attempts per request"].value == pytest.approx(0.5)
    assert rows["further attempts per request"].note == "1 of 2 requests, 3 hangs"
    assert rows["success"].holds
    assert rows["TTFT p50"].value == pytest.approx(0.1)


def test_a_lost_request_shows_and_no_record_is_unknown() -> None:
    lost = late_checks([record(0.0, 0.1, failure=Failure.HEADERS_ONLY)], name="off", hangs=0)
    assert lost[0].holds is False
    assert late_checks([], name="off", hangs=0)[0].holds is False


def test_the_arms_differ_by_their_section_only() -> None:
    grids = [late_grid("run", first_token) for first_token in ARMS.values()]
    sections = [gateway.first_token for grid in grids for gateway in grid.gateways]
    assert sections == list(ARMS.values())
