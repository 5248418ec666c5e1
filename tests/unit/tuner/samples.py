"""Samples for tests of tuners: what one does not care for is plain."""

import math
import random
from collections.abc import Iterator

from tradewind.core.tuner.arms import is_child
from tradewind.core.tuner.tuner import Tuner, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights

PLAIN = Sample(
    driver="d",
    generation=1,
    child=False,
    cell_id="a",
    dispatched_s=0.0,
    finished_s=1.0,
    rtt_s=0.03,
    queue_s=0.1,
    prefill_s=0.2,
    prompt_tokens=1_000,
    uncached_tokens=500,
    least_uncached_tokens=400,
    ttft_s=0.4,
    e2e_s=2.4,
    itl_s=0.02,
    failed=False,
)


def under(order: TuningOrder, request: int, **changes: object) -> Sample:
    """A sample decided by an order, in the arm that the request is in."""
    child = is_child(order, f"r{request}")
    sample = PLAIN._replace(driver=order.driver, generation=order.generation, child=child, cell_id="abc"[request % 3])
    return sample._replace(dispatched_s=float(request), finished_s=request + 1.0, **changes)  # type: ignore[arg-type]


def weights_of(order: TuningOrder, sample: Sample) -> Weights:
    """That the sample's request went by."""
    return order.child if sample.child and order.child is not None else order.weights


def noisy(rng: random.Random, order: TuningOrder, request: int, *, effect: float = 0.0, sd: float = 0.8) -> Sample:
    """A sample with a lognormal TTFT; `effect` is added to its logarithm for the child's."""
    sample = under(order, request)
    ttft_s = math.exp(-1.0 + effect * sample.child + sd * rng.gauss(0.0, 1.0))
    return sample._replace(ttft_s=ttft_s, e2e_s=rng.gauss(2.4, 0.1))


def fed(
    tuner: Tuner, rng: random.Random, *, requests: int, effect: float = 0.0, sd: float = 0.8
) -> Iterator[TunerEvent]:
    """Events of a tuner that hears one request after the other."""
    for request in range(requests):
        yield from tuner.learn([noisy(rng, tuner.order, request, effect=effect, sd=sd)], float(request))
