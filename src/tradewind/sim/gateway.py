"""A gateway in virtual time: asks its policy for a cell, carries the request there and back, and reports late."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tradewind.core.pick.cell import OthersLoad
from tradewind.measure.record import Failure
from tradewind.model.cell import CellState
from tradewind.model.decision import Refusal
from tradewind.model.request import Request
from tradewind.model.routing import ProbeOrder
from tradewind.model.view import GatewayReport, GridView, PathReading, Placed
from tradewind.sim.carrier import CONNECT_TIMEOUT_S, Attempts, Carrier, Told, Way
from tradewind.sim.cell import Condition
from tradewind.sim.journal import BYTES_PER_TOKEN, Entry, Journal, to_outcome
from tradewind.sim.loop import EventLoop
from tradewind.sim.policy import Policy, SharesPrefixes, Ticks
from tradewind.sim.scenario import Delays
from tradewind.sim.telemetry import MODEL
from tradewind.workload.mooncake import TracedRequest

_JITTER_ALPHA = 0.2  # as the live gateway smooths what its probes show
_TICK_S = 1.0  # as the live gateway ticks, with ...
_COALESCE_S = 0.01  # ... so long a wait for further causes of the same tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Streams of chance of one gateway: one for near ties, one for jitter. Jitter is drawn in order of arrival."""

    pick: random.Random
    jitter: random.Random
    probe: random.Random  # jitter of the probes
    noise: random.Random  # of messages on a noisy path, in order of arrival
    retry: random.Random  # whom to ask next


class SimGateway:
    """One Envoy with its gateway process."""

    def __init__(
        self,
        *,
        policy: Policy,
        ways: list[Way],
        loop: EventLoop,
        journal: Journal,
        chance: Chance,
        delays: Delays,
        jitter_s: float,
        block_tokens: int,
        until_s: float,
        attempts: Attempts,
        gate: bool,
        gateway_id: str,
    ) -> None:
        """`until_s`: until then it ticks, if its policy does."""
        self.policy = policy
        self.noisy = False  # some path will be: messages draw what they are late by
        self.in_flight = 0  # requests sent and not yet ended, as this gateway sees them
        self.ways = ways
        self._by_id = {way.cell.spec.cell_id: way for way in ways}
        self._loop = loop
        self._journal = journal
        self._chance = chance
        self._delays = delays
        self._jitter_s = jitter_s
        self._block_tokens = block_tokens
        self._until_s = until_s
        self._gateway_id = gateway_id
        self._reports = 0
        self.carrier = Carrier(
            ways=ways,
            attempts=attempts,
            loop=loop,
            told=Told(first=self._first_here, ended=self._ended),
            gate=gate,
            chance=chance.retry,
        )
        self._ticks = policy if isinstance(policy, Ticks) else None
        self._ticked = 0  # an older plan of a tick finds another number here
        self._hurries = False
        self._probing: set[str] = set()

    def arrive(self, entry: Entry) -> None:
        """A client's request is here now."""
        now_s, traced = self._loop.now_s, entry.traced
        # For refused requests too, and whatever the path: the streams must not shift.
        entry.there_s, entry.late_s = self._jitter(), self._jitter()
        if self.noisy:
            entry.noise = (max(0.0, self._chance.noise.gauss()), max(0.0, self._chance.noise.gauss()))
        asked = self._request(entry.number, traced, entry.hashes)
        decision = self.policy.pick(asked, now_s=now_s, rng=self._chance.pick)
        if isinstance(decision, Refusal):
            entry.refused = True
            self._journal.note(b"refused", now_s, entry.number, -1)
            return
        way = self._by_id[decision.cell_id]
        entry.decision_id, entry.alternatives = decision.decision_id, decision.alternatives
        entry.predicted_tokens = decision.matched_tokens
        self._journal.note(b"picked", now_s, entry.number, way.index)
        self.in_flight += 1
        self.carrier.send(entry, way)

    def take_view(self, view: GridView) -> None:
        """A view arrives."""
        self.carrier.ready = {item.cell.cell_id for item in view.cells if item.state is CellState.READY}
        self.policy.observe_view(view, self._loop.now_s)
        self._hear()

    def take_others(self, loads: Mapping[str, OthersLoad], placed: Sequence[Placed]) -> None:
        """Other gateways' outstanding work arrives, and what they have sent where."""
        self.policy.observe_others(loads, self._loop.now_s)
        if placed and isinstance(self.policy, SharesPrefixes):
            self.policy.observe_placed(placed, self._loop.now_s)

    def take_placed(self) -> Sequence[Placed]:
        """What it has sent where since the last call."""
        return self.policy.take_placed() if isinstance(self.policy, SharesPrefixes) else ()

    def probe(self) -> None:
        """A round of probes comes back."""
        for way in self.ways:
            self._probe(way)
        self._hear()

    def lost(self, way: Way) -> None:
        """A prober's connection broke: it is looked into at once."""
        self._probe(way)
        self._hear()

    def report(self) -> GatewayReport:
        """What control is told of the paths."""
        self._reports += 1
        paths = tuple(PathReading(cell_id=way.cell.spec.cell_id, reachable=way.reachable) for way in self.ways)
        return GatewayReport(gateway_id=self._gateway_id, site="", sequence=self._reports, paths=paths)

    def _probe(self, way: Way) -> None:
        now_s = self._loop.now_s
        if way.cut_s is not None:
            self._loop.at(now_s + CONNECT_TIMEOUT_S, partial(self._not_reached, way))
            return
        if way.cell.condition is Condition.DOWN:
            self._not_reached(way)
            return
        rtt_s = way.path.rtt_s(now_s) + self._draw(self._chance.probe)
        if way.noise_s:
            rtt_s += way.noise_s * max(0.0, self._chance.probe.gauss())
        if way.rtt_s is not None:
            step_s = abs(rtt_s - way.rtt_s)
            before_s = step_s if way.deviation_s is None else way.deviation_s
            way.deviation_s = before_s + _JITTER_ALPHA * (step_s - before_s)
        way.rtt_s, way.reachable = rtt_s, True
        reading = PathReading(cell_id=way.cell.spec.cell_id, rtt_s=rtt_s, jitter_s=way.deviation_s, reachable=True)
        self.policy.observe_path(reading, now_s)

    def _not_reached(self, way: Way) -> None:
        way.reachable = False
        reading = PathReading(cell_id=way.cell.spec.cell_id, jitter_s=way.deviation_s, reachable=False)
        self.policy.observe_path(reading, self._loop.now_s)
        self._hear()

    def tick(self) -> None:
        """What the policy does each second; the next one follows by itself."""
        if self._ticks is None:
            return
        now_s = self._loop.now_s
        self._ticked += 1
        self._hurries = False
        for order in self._ticks.tick(now_s, self._chance.pick):
            self._send_probe(order)
        self._plan_tick(now_s + _TICK_S + _COALESCE_S)

    def _hear(self) -> None:
        """Something was heard: the next tick may have become urgent."""
        if self._ticks is not None and self._ticks.urgent and not self._hurries:
            self._hurries = True
            self._plan_tick(self._loop.now_s + _COALESCE_S)

    def _plan_tick(self, at_s: float) -> None:
        if at_s <= self._until_s:
            self._loop.at(at_s, partial(self._tick_planned, self._ticked))

    def _tick_planned(self, number: int) -> None:
        if number == self._ticked:
            self.tick()

    def _send_probe(self, order: ProbeOrder) -> None:
        """A synthetic request of a refused shape; one at a time for each cell."""
        if order.cell_id in self._probing:
            return
        self._probing.add(order.cell_id)
        now_s, way = self._loop.now_s, self._by_id[order.cell_id]
        status, took_s = way.cell.probed(max(1, order.prompt_bytes // BYTES_PER_TOKEN))
        self._loop.at(now_s + way.path.rtt_s(now_s) + took_s, partial(self._probed, order, status))

    def _probed(self, order: ProbeOrder, status: int) -> None:
        assert self._ticks is not None
        self._probing.discard(order.cell_id)
        self._ticks.probed(order, status, self._loop.now_s)
        self._hear()

    def _request(self, number: int, traced: TracedRequest, hashes: tuple[int, ...]) -> Request:
        return Request(
            request_id=f"r{number}",
            model=MODEL,
            prompt_tokens=traced.prompt_tokens,
            max_output_tokens=traced.output_tokens,
            blocks=hashes,
            block_tokens=float(self._block_tokens) if hashes else 0.0,
            session=traced.session,
            stream=True,
            exact_tokens=True,
        )

    def _first_here(self, entry: Entry) -> None:
        now_s = self._loop.now_s
        self._journal.note(b"first", now_s, entry.number, entry.cell or 0)
        seen_s = now_s + self._delays.first_token_s
        self._loop.at(seen_s, lambda: self.policy.first_token(entry.decision_id, now_s))

    def _ended(self, entry: Entry) -> None:
        now_s = self._loop.now_s
        self.in_flight -= 1
        kind = b"last" if entry.failure is Failure.NONE else entry.failure.encode()
        self._journal.note(kind, now_s, entry.number, entry.cell or 0)
        self._loop.at(now_s + self._delays.outcome_s, lambda: self._outcome(entry))

    def _outcome(self, entry: Entry) -> None:
        entry.outcomes += 1
        cells = tuple(self.ways[index].cell.spec.cell_id for index in entry.attempts)
        self.policy.finished(entry.decision_id, to_outcome(entry, cells, model=MODEL), self._loop.now_s)
        self._hear()

    def _jitter(self) -> float:
        return self._draw(self._chance.jitter) / 2

    def _draw(self, rng: random.Random) -> float:
        return rng.expovariate(1 / self._jitter_s) if self._jitter_s else 0.0


def together(loads: Iterable[Mapping[str, OthersLoad]], *, age_s: float) -> dict[str, OthersLoad]:
    """The sum of several gateways' outstanding work by cell, of this age."""
    total: dict[str, OthersLoad] = {}
    for of_one in loads:
        for cell_id, load in of_one.items():
            before = total.get(cell_id, OthersLoad())
            total[cell_id] = OthersLoad(
                requests=before.requests + load.requests,
                prefill_tokens=before.prefill_tokens + load.prefill_tokens,
                decoding=before.decoding + load.decoding,
                age_s=age_s,
            )
    return total
