"""Prometheus families with the gateway's prefix."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

MAX_CELLS = 256  # cells with series of their own; the rest is counted only
PREFIX = "tradewind_gateway_"

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def gauge(name: str, text: str, value: float) -> Family:
    """One value that goes up and down."""
    return GaugeMetricFamily(PREFIX + name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Family:
    """One count since the start."""
    return CounterMetricFamily(PREFIX + name, text, value=float(value))


def gauges(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Family:
    """One gauge per label value; unknown values have no series."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
    for item, value in values:
        if value is not None:
            family.add_metric([item], float(value))
    return family


def counters(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    """One count per label value."""
    family = CounterMetricFamily(PREFIX + name, text, labels=[label])
    for item, value in values:
        family.add_metric([item], float(value))
    return family
