"""How a simulated Envoy spreads the requests of one pool: our Lua page's shares, and Envoy's own policies beside it.

One worker each. Shares: `core.lowdisc`, of which the Lua page is a copy. Envoy's own, as its sources have them with
equal weights: round robin goes through the hosts from a random start; least request draws hosts with replacement and
keeps the first of those with the fewest active requests, or, for "N", looks at all and draws among equals (FULL_SCAN).
"""

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from tradewind.core.lowdisc import CreditPick, GoldenPick

CREDIT_CELLS = 512  # above it the Lua page counts by the golden ratio


class Balancer(Protocol):
    """One pool of one Envoy worker."""

    def update(self, weights: Mapping[str, int], rng: random.Random) -> None:
        """The hosts, in order, and their weights; never empty."""

    def pick(self, active: Mapping[str, int], rng: random.Random) -> str:
        """The next request's host. `active`: requests in flight by host, of hosts that have any."""


MakeBalancer = Callable[[], Balancer]


class Shares:
    """What the Lua page does."""

    def __init__(self) -> None:
        self._pick: CreditPick | GoldenPick | None = None

    def update(self, weights: Mapping[str, int], rng: random.Random) -> None:
        if len(weights) > CREDIT_CELLS:
            if not isinstance(self._pick, GoldenPick):
                self._pick = GoldenPick(u=rng.random())
        elif not isinstance(self._pick, CreditPick):
            self._pick = CreditPick(rng=rng)
        assert self._pick is not None
        self._pick.update(weights)

    def pick(self, active: Mapping[str, int], rng: random.Random) -> str:
        assert self._pick is not None
        return self._pick.pick()


class RoundRobin:
    """Hosts in turn."""

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()
        self._turn: int | None = None

    def update(self, weights: Mapping[str, int], rng: random.Random) -> None:
        self._hosts = tuple(weights)
        if self._turn is None:
            self._turn = rng.randrange(len(self._hosts))

    def pick(self, active: Mapping[str, int], rng: random.Random) -> str:
        assert self._turn is not None
        self._turn += 1
        return self._hosts[self._turn % len(self._hosts)]


class LeastRequest:
    """The fewest active requests among `choices` draws; 0: among all."""

    def __init__(self, choices: int) -> None:
        self._choices = choices
        self._hosts: tuple[str, ...] = ()

    def update(self, weights: Mapping[str, int], rng: random.Random) -> None:
        self._hosts = tuple(weights)

    def pick(self, active: Mapping[str, int], rng: random.Random) -> str:
        if self._choices:
            count = len(self._hosts)
            drawn = [self._hosts[int(rng.random() * count)] for _ in range(self._choices)]
            return min(drawn, key=lambda host: active.get(host, 0))
        fewest = min(active.get(host, 0) for host in self._hosts)
        return rng.choice([host for host in self._hosts if active.get(host, 0) == fewest])


class RandomHost:
    """Any host; weights count for nothing."""

    def __init__(self) -> None:
        self._hosts: tuple[str, ...] = ()

    def update(self, weights: Mapping[str, int], rng: random.Random) -> None:
        self._hosts = tuple(weights)

    def pick(self, active: Mapping[str, int], rng: random.Random) -> str:
        return rng.choice(self._hosts)
