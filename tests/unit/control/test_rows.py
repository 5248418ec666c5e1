"""What the admin API says of a cell's telemetry."""

import math

import pytest

from tradewind.control.rows import drain_row, signals
from tradewind.control.store import Drain
from tradewind.model.telemetry import CacheReading, EngineReading, Telemetry


def test_every_reading_has_its_row_and_what_is_unknown_is_none() -> None:
    engine, cache = EngineReading(queue_requests=0.0), CacheReading(clearings=2, untouched_s=30.0)
    found = dict(signals(Telemetry(engine=engine, cache=cache)))
    assert (found["engine.queue_requests"], found["engine.running_requests"], found["gpu.power_w"]) == (0.0, None, None)
    assert [found[f"cache.{name}"] for name in ("clearings", "untouched_s", "resident_tokens")] == [2, 30.0, None]
    assert dict(signals(Telemetry()))["cache.clearings"] is None


@pytest.mark.parametrize("unix_s", [1e300, -1e18, math.inf, math.nan])
def test_a_drain_from_a_bad_disk_has_no_time_and_is_shown_all_the_same(unix_s: float) -> None:
    row = drain_row("east-0", Drain(since_unix_s=unix_s, reason="fan"))
    assert (row.cell_id, row.since, row.reason) == ("east-0", "", "fan")
    assert drain_row("east-0", Drain(since_unix_s=0.5)).since == "1970-01-01T00:00:00.500Z"
