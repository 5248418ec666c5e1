"""Arrival times in seconds from the start of a load, ascending, and the words that name a process of arrivals."""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Literal

Kind = Literal["constant", "poisson", "gamma", "modulated", "clients"]
PERIOD_S = 10.0  # for which a modulated rate holds
# ServeGen's language model m-small: 43 clients, the largest with 30 % of the requests, the largest ten with 93 %, and
# gaps whose coefficient of variation, weighted by rate, is 3.6. Rates that fall geometrically come near both shares.
CLIENTS = 43
CLIENT_RATIO = 0.72
CLIENT_CV = 3.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """A process of arrivals; `cv` is the coefficient of variation of a gamma's gaps, of a modulated process's rate."""

    kind: Kind = "poisson"
    cv: float = 1.0

    def times(self, rng: random.Random, *, rate_per_s: float, for_s: float) -> Iterator[float]:
        """Arrivals at a mean rate within for_s."""
        match self.kind:
            case "constant":
                return constant(rate_per_s=rate_per_s, for_s=for_s)
            case "poisson":
                return poisson(rng, rate_per_s=rate_per_s, for_s=for_s)
            case "gamma":
                return gamma(rng, rate_per_s=rate_per_s, for_s=for_s, cv=self.cv)
            case "modulated":
                return modulated(rng, rate_per_s=rate_per_s, for_s=for_s, cv=self.cv)
            case "clients":
                return clients(rng, rate_per_s=rate_per_s, for_s=for_s, cv=self.cv)


CONSTANT = Arrivals(kind="constant")
POISSON = Arrivals(kind="poisson")
FORMS = "constant, poisson, gamma:CV, modulated:CV or clients[:CV]"


def parse_arrivals(text: str) -> Arrivals:
    """The process that a text such as "gamma:2.5" names. Raises ValueError with the forms there are."""
    name, _, given = text.partition(":")
    try:
        cv = float(given) if given else CLIENT_CV
    except ValueError:
        cv = 0.0
    match name:
        case "constant" | "poisson" if not given:
            return Arrivals(kind="constant" if name == "constant" else "poisson")
        case "gamma" | "modulated" if given and cv > 0:
            return Arrivals(kind="gamma" if name == "gamma" else "modulated", cv=cv)
        case "clients" if cv > 0:
            return Arrivals(kind="clients", cv=cv)
    raise ValueError(f"unknown arrivals {text!r}; write {FORMS}, with a CV above 0")


def constant(*, rate_per_s: float, for_s: float) -> Iterator[float]:
    """One arrival each 1 / rate_per_s seconds, the first at 0."""
    assert rate_per_s > 0, "a load needs a rate"
    for index in range(int(rate_per_s * for_s)):
        yield index / rate_per_s


def poisson(rng: random.Random, *, rate_per_s: float, for_s: float) -> Iterator[float]:
    """Independent arrivals at a mean rate: exponential gaps."""
    assert rate_per_s > 0, "a load needs a rate"
    at_s = rng.expovariate(rate_per_s)
    while at_s < for_s:
        yield at_s
        at_s += rng.expovariate(rate_per_s)


def gamma(rng: random.Random, *, rate_per_s: float, for_s: float, cv: float) -> Iterator[float]:
    """Independent gaps of a gamma distribution: below cv 1 more regular than Poisson, above it in bursts."""
    assert rate_per_s > 0, "a load needs a rate"
    shape = 1 / cv**2
    scale_s = 1 / (rate_per_s * shape)
    # Stationary from the start: the first arrival lies anywhere in a gap, and a long gap is the likelier one to be in.
    at_s = rng.random() * rng.gammavariate(shape + 1, scale_s)
    while at_s < for_s:
        yield at_s
        at_s += rng.gammavariate(shape, scale_s)


def modulated(
    rng: random.Random, *, rate_per_s: float, for_s: float, cv: float, period_s: float = PERIOD_S
) -> Iterator[float]:
    """Poisson arrivals whose rate is drawn anew each period from a gamma distribution: bursts longer than a gap."""
    assert rate_per_s > 0, "a load needs a rate"
    shape = 1 / cv**2
    for period in count():
        begin_s = period * period_s
        if begin_s >= for_s:
            return
        rate = rate_per_s * rng.gammavariate(shape, 1 / shape)
        if rate > 0:
            length_s = min(period_s, for_s - begin_s)
            yield from (begin_s + at_s for at_s in poisson(rng, rate_per_s=rate, for_s=length_s))


def clients(rng: random.Random, *, rate_per_s: float, for_s: float, cv: float = CLIENT_CV) -> Iterator[float]:
    """Many clients of very different rates, each with gamma gaps: few of them make most of the load, in bursts."""
    whole = sum(CLIENT_RATIO**index for index in range(CLIENTS))
    rates = [rate_per_s * CLIENT_RATIO**index / whole for index in range(CLIENTS)]
    streams = [
        gamma(random.Random(rng.getrandbits(64)), rate_per_s=rate, for_s=for_s, cv=cv)
        for rate in takewhile(lambda rate: rate > 0, rates)
    ]
    return heapq.merge(*streams)
