"""An analytic bed for tuners: no cells, no queues, a time to the first token from a formula with noise and slow load.

log TTFT = 6 (TTFT in ms) + load + f(weights) + 0.8 N(0, 1); load is AR(1) with sd 0.25 and a memory of 200 requests; a
request ends 15 requests later. f = 0 is the A/A test: whatever a tuner finds there is luck. Otherwise f is a bowl in
log weights. E2E and ITL follow load alone, so that no guard has a cause.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

from tradewind.core.tuner.arms import weights_for
from tradewind.core.tuner.tuner import Happened, Tuner, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

TTFT_LOG, NOISE, LOAD_SD, MEMORY, LATE = 6.0, 0.8, 0.25, 200.0, 15
TENFOLD = 1.28  # TTFT of a weight ten times off, where weights matter
CURVATURE = log(TENFOLD) / log(10.0) ** 2
GAP_S, ITL_S, COMPLETION = 0.25, 0.018, 128
CELLS = (("near", 0.030), ("middle", 0.115), ("far", 0.215))  # with their RTT
VERDICTS = (Happened.ACCEPTED, Happened.REJECTED, Happened.ROLLED_BACK)
_CHUNK, _DRAWN = 1_024, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """One world. `curvature` 0: weights have no effect. `shared`: the part of an effect that hits both arms."""

    seed: int
    curvature: float = 0.0
    optimum: Weights = PHYSICS
    shared: float = 0.0

    def effect(self, weights: Weights) -> float:
        """On log TTFT."""
        return self.curvature * sum(log(x / best) ** 2 for x, best in zip(weights, self.optimum, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a tuner did on a bed."""

    requests: int  # until its last verdict, or the end
    events: tuple[TunerEvent, ...]
    parents: tuple[tuple[int, Weights], ...]  # after each verdict, with the number of requests so far

    @property
    def verdicts(self) -> int:
        """Generations that were judged."""
        return sum(event.what in VERDICTS for event in self.events)

    @property
    def accepted(self) -> int:
        """Of them."""
        return sum(event.what is Happened.ACCEPTED for event in self.events)

    def drift(self, start: Weights) -> float:
        """The largest factor by which a weight ever was away from the start; 1 = it never moved."""
        return max(
            (exp(abs(log(x / x0))) for _, at in self.parents for x, x0 in zip(at, start, strict=True)), default=1
        )


def course_of(bed: Bed, tuner: Tuner, *, generations: int, requests: int) -> Course:
    """Until so many verdicts, so many requests, or a tuner that has ended by itself."""
    pending: deque[Sample] = deque()
    events: list[TunerEvent] = []
    parents: list[tuple[int, Weights]] = []
    verdicts = heard = 0
    world = _World(bed)
    while heard < requests and verdicts < generations and not tuner.frozen:
        pending.append(world.request(tuner.order))
        if len(pending) <= LATE:
            continue
        heard += 1
        sample = pending.popleft()
        for event in tuner.learn((sample,), sample.finished_s):
            events.append(event)
            if event.what in VERDICTS:
                verdicts += 1
                parents.append((heard, event.weights))
    return Course(requests=heard, events=tuple(events), parents=tuple(parents))


class _World:
    """Requests one after the other; the stream of chance is the same whatever the weights are."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._draws = _draws(bed.seed)
        self._load = LOAD_SD * next(self._draws)[0]
        self._kept = exp(-1.0 / MEMORY)
        self._count = 0

    def request(self, order: TuningOrder) -> Sample:
        """It goes by this order and will have ended when `LATE` more have come."""
        load, size, hit, place, wait, noise, pace = next(self._draws)
        self._load = self._kept * self._load + LOAD_SD * sqrt(1.0 - self._kept**2) * load
        number, at_s = self._count, self._count * GAP_S
        self._count += 1
        weights, child = weights_for(order, str(number))
        prompt = min(20_000, int(1_500 * exp(size)))
        least = int(prompt * min(1.0, abs(hit)))
        cell_id, rtt_s = CELLS[int(1e6 * abs(place)) % len(CELLS)]
        queue_s = 0.2 * abs(wait)
        ttft_s = 1e-3 * exp(TTFT_LOG + self._load + self._effect(order, weights) + NOISE * noise)
        itl_s = ITL_S * exp(0.3 * self._load + 0.1 * pace)
        return Sample(
            driver=order.driver,
            generation=order.generation,
            child=child,
            cell_id=cell_id,
            dispatched_s=at_s,
            finished_s=at_s + LATE * GAP_S,
            rtt_s=rtt_s,
            queue_s=queue_s,
            prefill_s=1e-4 * least,
            prompt_tokens=prompt,
            uncached_tokens=least,
            least_uncached_tokens=least,
            ttft_s=ttft_s,
            e2e_s=ttft_s + (COMPLETION - 1) * itl_s,
            itl_s=itl_s,
            failed=False,
        )

    def _effect(self, order: TuningOrder, weights: Weights) -> float:
        bed = self._bed
        if not bed.curvature:
            return 0.0
        own = bed.effect(weights)
        if not bed.shared or order.child is None:
            return own
        share = order.child_share
        everybody = (1.0 - share) * bed.effect(order.weights) + share * bed.effect(order.child)
        return (1.0 - bed.shared) * own + bed.shared * everybody


def _draws(seed: int) -> Iterator[list[float]]:
    """Standard normals, a row for each request."""
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.standard_normal((_CHUNK, _DRAWN)).tolist()
