"""The tuner's state as Prometheus series."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from tradewind.control.tuning import Tuning
from tradewind.core.tuner.tuner import Happened

PREFIX = "tradewind_control_tuner_"


def tuner_families(tuning: Tuning) -> Iterator[Metric]:
    """All families of a control with a tuner."""
    order, counters = tuning.order, tuning.counters
    if order is not None:
        weights = GaugeMetricFamily(PREFIX + "weight", "Weight in force for most requests", labels=("weight",))
        child = GaugeMetricFamily(PREFIX + "child_weight", "Weight that is compared with it", labels=("weight",))
        for name in order.weights._fields:
            weights.add_metric((name,), getattr(order.weights, name))
            if order.child is not None:
                child.add_metric((name,), getattr(order.child, name))
        yield weights
        yield child
        yield _gauge("generation", "Number of the order in force, of one driver", order.generation)
        yield _gauge("child_share_ratio", "Share of the requests that go by the child's weights", order.child_share)
    yield _gauge("frozen", "1 while an operator keeps the weights as they are", tuning.frozen)
    yield _gauge("disabled", "1 after the tuner has failed; its last weights stay", bool(tuning.problem))
    yield _gauge("learn_worst_seconds", "The tuner's longest step, in its own thread", counters.learn_worst_s)
    events = CounterMetricFamily(PREFIX + "events", "What the tuner did, by kind", labels=("what",))
    for kind in Happened:
        events.add_metric((kind.value,), tuning.happened[kind.value])
    yield events
    for name, text, value in (
        ("samples", "Finished requests that the tuner learned from", counters.samples),
        ("samples_of_others", "Finished requests that followed another driver's order", counters.of_others),
        ("samples_lost", "Finished requests that waited too long or made no sense", counters.lost),
    ):
        yield CounterMetricFamily(PREFIX + name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, value=float(value))
