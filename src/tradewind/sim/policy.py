"""What a simulated gateway asks of whoever decides: the live picker offers it, and so may a file of one's own."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from tradewind.core.pick.cell import OthersLoad
from tradewind.model.decision import Decision, Refusal
from tradewind.model.outcome import Outcome
from tradewind.model.request import Request
from tradewind.model.routing import ProbeOrder
from tradewind.model.tuning import Sample, TuningOrder
from tradewind.model.view import GridView, PathReading, Placed
from tradewind.sim.scenario import Scenario


class Decides(Protocol):
    """Answers requests and is told what became of them."""

    def pick(self, request: Request, *, now_s: float, rng: random.Random) -> Decision | Refusal:
        """A cell for this request, or why there is none."""

    def first_token(self, decision_id: str, now_s: float) -> None:
        """The first body byte of its response passed the gateway at `now_s`, which may lie in the past."""

    def finished(self, decision_id: str, outcome: Outcome, now_s: float) -> None:
        """Its access-log entry arrived."""


class Learns(Protocol):
    """Takes in what the gateway hears, late, of cells and paths."""

    def observe_view(self, view: GridView, now_s: float) -> None:
        """A grid view arrived from control."""

    def observe_path(self, path: PathReading, now_s: float) -> None:
        """A probe of a path came back."""


class Shares(Protocol):
    """Tells other gateways what it has in flight, and hears of theirs."""

    def outstanding(self) -> Mapping[str, OthersLoad]:
        """Own requests in flight by cell id; cells without any may be left out."""

    def observe_others(self, loads: Mapping[str, OthersLoad], now_s: float) -> None:
        """What all other gateways together have in flight."""


class Policy(Decides, Learns, Shares, Protocol):
    """What every policy has; one object per gateway."""


@runtime_checkable
class Ticks(Protocol):
    """What a policy may have beside: something to do each second, as scoring has."""

    @property
    def urgent(self) -> bool:
        """What was heard since the last tick makes the next one due at once."""

    def tick(self, now_s: float, rng: random.Random) -> Sequence[ProbeOrder]:
        """A second has passed, or something urgent was heard; which cells to probe."""

    def probed(self, order: ProbeOrder, status: int, now_s: float) -> None:
        """The answer to a probe; status 0 if none came."""


@runtime_checkable
class Follows(Protocol):
    """What a policy may have beside: it goes by the weights of a tuner, and tells it of the requests that did."""

    def set_order(self, order: TuningOrder | None) -> None:
        """From the next request on."""

    def take_samples(self) -> Sequence[Sample]:
        """What finished since the last call, in the order of its end."""


@runtime_checkable
class SharesPrefixes(Protocol):
    """What a policy may have beside: it tells other gateways what it has sent where."""

    def take_placed(self) -> Sequence[Placed]:
        """Since the last call."""

    def observe_placed(self, placed: Sequence[Placed], now_s: float) -> None:
        """What all other gateways have."""


MakePolicy = Callable[[Scenario], Policy]  # a fresh policy for one gateway of this grid
