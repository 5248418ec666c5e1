"""Beds for tuners: cells with queues, or no effect at all; each request goes by the arm that the order gives it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, sqrt
from random import Random

from tradewind.core.tuner.arms import weights_for
from tradewind.core.tuner.tuner import Tuner, TunerEvent
from tradewind.model.tuning import PHYSICS, Sample, TuningOrder, Weights

RTTS_S = (0.030, 0.115, 0.215)
BATCH = 20


def sample(order: TuningOrder, *, child: bool = False, **changes: object) -> Sample:
    """One request of an order, with plausible times."""
    plain = Sample(
        driver=order.driver,
        generation=order.generation,
        child=child,
        cell_id="a",
        dispatched_s=1.0,
        finished_s=2.0,
        rtt_s=0.1,
        queue_s=0.1,
        prefill_s=0.2,
        prompt_tokens=1_000,
        uncached_tokens=500,
        least_uncached_tokens=400,
        ttft_s=0.4,
        e2e_s=1.4,
        itl_s=0.01,
        failed=False,
    )
    return plain._replace(**changes)  # type: ignore[arg-type]


@dataclass
class Queues:
    """Cells that prefill one request after the other; the cheapest by the arm's weights is taken."""

    seed: int
    rate: float = 4.0
    noise: float = 0.3  # of the logarithm
    rtts_s: tuple[float, ...] = RTTS_S
    queue_matters: float = 1.0  # of a queue second, in the first token: 0 = the belief says nothing
    crowd_s: float = 0.0  # in E2E, per request that was decided for the same cell shortly before
    slow: dict[str, float] = field(default_factory=dict)  # what the beliefs do not know
    now_s: float = 0.0
    made: int = 0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.free_s = [0.0] * len(self.rtts_s)

    def request(self, order: TuningOrder) -> Sample:
        """The next one; it ends at `finished_s`, later than the next ones begin."""
        rng = self.rng
        self.now_s += rng.expovariate(self.rate)
        self.made += 1
        weights, child = weights_for(order, f"{self.seed}-{self.made}")
        prefills_s = [rng.choice((0.05, 0.2, 0.5, 0.9)) for _ in self.rtts_s]
        queues_s = [max(0.0, free_s - self.now_s) for free_s in self.free_s]
        costs = [
            weights.rtt * rtt + weights.queue * queue + prefill
            for rtt, queue, prefill in zip(self.rtts_s, queues_s, prefills_s, strict=True)
        ]
        at = costs.index(min(costs))
        queue_s, prefill_s, rtt_s = queues_s[at], prefills_s[at], self.rtts_s[at] * rng.uniform(0.9, 1.1)
        slow = self.slow.get(f"c{at}", 1.0)
        self.free_s[at] = max(self.free_s[at], self.now_s) + prefill_s * slow
        engine_s = 0.02 + rtt_s + slow * (self.queue_matters * queue_s + prefill_s)
        ttft_s = engine_s * exp(rng.gauss(0.0, self.noise))
        e2e_s = ttft_s + 64 * 0.02 + self.crowd_s * queue_s
        return Sample(
            driver=order.driver,
            generation=order.generation,
            child=child,
            cell_id=f"c{at}",
            dispatched_s=self.now_s,
            finished_s=self.now_s + e2e_s,
            rtt_s=rtt_s,
            queue_s=queue_s,
            prefill_s=prefill_s,
            prompt_tokens=2_000,
            uncached_tokens=int(4_000 * prefill_s),
            least_uncached_tokens=int(4_000 * min(prefills_s)),
            ttft_s=ttft_s,
            e2e_s=e2e_s,
            itl_s=(e2e_s - ttft_s) / 64,
            failed=False,
        )


@dataclass
class Indifferent:
    """Weights have no effect: lognormal first tokens over a load that wanders; `physical` = the beliefs are true."""

    seed: int
    physical: bool
    sigma: float = 0.8
    now_s: float = 0.0
    made: int = 0
    load: float = 0.0

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    def request(self, order: TuningOrder) -> Sample:
        """As `Queues.request`."""
        rng = self.rng
        self.now_s += rng.expovariate(4.0)
        self.made += 1
        _, child = weights_for(order, f"{self.seed}-{self.made}")
        self.load += -self.load / 200 + 0.25 * sqrt(2 / 200) * rng.gauss(0.0, 1.0)
        at = rng.randrange(3)
        rtt_s, queue_s, prefill_s = RTTS_S[at], rng.expovariate(5.0), rng.choice((0.05, 0.2, 0.5, 0.9))
        mean_s = 0.02 + rtt_s + queue_s + prefill_s if self.physical else 0.4
        ttft_s = mean_s * exp(self.load + self.sigma * rng.gauss(0.0, 1.0))
        return sample(
            order,
            child=child,
            cell_id=f"c{at}",
            dispatched_s=self.now_s,
            finished_s=self.now_s + ttft_s + 2.0,
            rtt_s=rtt_s,
            queue_s=queue_s,
            prefill_s=prefill_s,
            ttft_s=ttft_s,
            e2e_s=ttft_s + 2.0,
            itl_s=0.02,
        )


def ended(bed: Queues | Indifferent, tuner: Tuner, count: int) -> Iterator[Sample]:
    """Requests in the order of their end; each decided under the order that was in force when it began."""
    running: list[tuple[float, int, Sample]] = []
    for number in range(count):
        made = bed.request(tuner.order)
        heappush(running, (made.finished_s, number, made))
        while running and running[0][0] <= bed.now_s:
            yield heappop(running)[2]


def drive(
    bed: Queues | Indifferent,
    tuner: Tuner,
    count: int,
    *,
    batch: int = BATCH,
    until: Callable[[Tuner], bool] = lambda _: False,
) -> list[TunerEvent]:
    """Feeds a tuner; stops when `until` says so."""
    events: list[TunerEvent] = []
    waiting: list[Sample] = []
    for done in ended(bed, tuner, count):
        waiting.append(done)
        if len(waiting) >= batch:
            events += tuner.learn(waiting, bed.now_s)
            waiting.clear()
            if until(tuner):
                break
    return events


def wrong(which: str) -> Weights:
    """A prior that is ten times off in one weight."""
    return {
        "rtt high": PHYSICS._replace(rtt=10.0),
        "rtt low": PHYSICS._replace(rtt=0.1),
        "queue high": PHYSICS._replace(queue=10.0),
        "queue low": PHYSICS._replace(queue=0.1),
    }[which]
