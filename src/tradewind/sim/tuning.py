"""The tuner of a simulated grid, as control runs it: samples come with each gateway's report, orders with a view."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tradewind.core.tuner.tuner import Tuner, TunerEvent
from tradewind.model.tuning import Sample, TuningOrder, Weights
from tradewind.sim.journal import Journal
from tradewind.sim.loop import EventLoop
from tradewind.sim.policy import Follows, MakePolicy, Policy
from tradewind.sim.scenario import Delays, Scenario

REPORT_S = 0.5  # period of a gateway's reports

MakeTuner = Callable[[int], Tuner]  # a fresh tuner for one run of this seed


@dataclass(frozen=True, slots=True, kw_only=True)
class WithTuner:
    """Makes policies that go by one tuner's weights, whichever gateway they are for."""

    make_policy: MakePolicy
    make_tuner: MakeTuner

    def __call__(self, scenario: Scenario) -> Policy:
        """A fresh policy for one gateway."""
        return self.make_policy(scenario)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningHistory:
    """What a tuner did in one run. Orders with the time at which they were given; the first one came at the start."""

    orders: tuple[tuple[float, TuningOrder], ...]
    events: tuple[TunerEvent, ...]
    samples: int  # that it heard

    @property
    def last(self) -> Weights:
        """The parent's, at the end."""
        return self.orders[-1][1].weights


class Tuning:
    """One tuner, the reports of all gateways to it, and its orders to all of them."""

    def __init__(
        self, tuner: Tuner, policies: Sequence[Policy], *, loop: EventLoop, journal: Journal, delays: Delays
    ) -> None:
        self.tuner = tuner
        self._followers: list[Follows] = []
        for policy in policies:
            assert isinstance(policy, Follows), "every policy of a grid with a tuner goes by its orders"
            self._followers.append(policy)
        self._loop = loop
        self._journal = journal
        self._late_s = delays.view_s  # a report takes as long to control as a view takes from there
        self._events: list[TunerEvent] = []
        self._orders: list[tuple[float, TuningOrder]] = []
        self._samples = 0

    def start(self, *, until_s: float) -> None:
        """The first order is there before the first request; reports begin."""
        self._orders.append((self._loop.now_s, self.tuner.order))
        for gateway in range(len(self._followers)):
            self._follow(gateway, self.tuner.order)
        self._loop.every(REPORT_S, self._report, until_s=until_s)

    def history(self) -> TuningHistory:
        """So far."""
        return TuningHistory(orders=tuple(self._orders), events=tuple(self._events), samples=self._samples)

    def _report(self) -> None:
        at_s = self._loop.now_s + self._late_s
        for follower in self._followers:
            self._loop.at(at_s, partial(self._heard, follower.take_samples()))

    def _heard(self, samples: Sequence[Sample]) -> None:
        now_s = self._loop.now_s
        self._samples += len(samples)
        self._events += self.tuner.learn(samples, now_s)
        order = self.tuner.order
        if order == self._orders[-1][1]:
            return
        self._orders.append((now_s, order))
        for gateway in range(len(self._followers)):
            self._loop.at(now_s + self._late_s, partial(self._follow, gateway, order))

    def _follow(self, gateway: int, order: TuningOrder) -> None:
        self._journal.note(repr(order).encode(), self._loop.now_s, order.generation, gateway)
        self._followers[gateway].set_order(order)
