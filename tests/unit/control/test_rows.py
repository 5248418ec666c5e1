"""What the admin API says of a cell's telemetry."""

from tradewind.control.rows import signals
from tradewind.model.telemetry import CacheReading, EngineReading, Telemetry


def test_every_reading_has_its_row_and_what_is_unknown_is_none() -> None:
    engine, cache = EngineReading(queue_requests=0.0), CacheReading(clearings=2, untouched_s=30.0)
    found = dict(signals(Telemetry(engine=engine, cache=cache)))
    assert (found["engine.queue_requests"], found["engine.running_requests"], found["gpu.power_w"]) == (0.0, None, None)
    assert [found[f"cache.{name}"] for name in ("clearings", "untouched_s", "resident_tokens")] == [2, 30.0, None]
    assert dict(signals(Telemetry()))["cache.clearings"] is None
