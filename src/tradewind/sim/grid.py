"""The composition root of a simulated grid: builds it from a scenario, a policy and a seed, and runs it to its end."""

import random
from dataclasses import dataclass
from functools import partial

from tradewind.engine.sequence import Sequence
from tradewind.measure.record import Record
from tradewind.sim.carrier import Attempts, Way
from tradewind.sim.cell import CellEvents, SimCell
from tradewind.sim.disturbances import changes
from tradewind.sim.gateway import Chance, SimGateway, together
from tradewind.sim.journal import Entry, Journal, to_record
from tradewind.sim.loop import EventLoop
from tradewind.sim.policy import MakePolicy
from tradewind.sim.scenario import Scenario
from tradewind.sim.telemetry import Feed
from tradewind.sim.tuning import Tuning, TuningHistory, WithTuner
from tradewind.sim.wan import WanPath
from tradewind.sim.world import World
from tradewind.workload.mooncake import block_hashes
from tradewind.workload.streams import stream

DRAIN_S = 600.0  # what has not ended so long after the load is a timeout
_DISTURBED_AFTER_S = 120.0  # disturbances go on while the last requests are served


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run. `records` are in order of arrival; `predicted_tokens` belongs to them one by one."""

    records: tuple[Record, ...]
    predicted_tokens: tuple[int, ...]
    trace_hash: str
    events: int
    ended_s: float
    preemptions: int
    tuning: TuningHistory | None = None  # of a grid with a tuner


class SimGrid:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, make_policy: MakePolicy, *, seed: int) -> None:
        self.scenario = scenario
        self.loop = EventLoop()
        self.journal = Journal()
        self._seed = seed
        self._attempts = Attempts()
        tell = CellEvents(first=self._first, last=self._last)
        self.cells = [SimCell(spec=spec, loop=self.loop, tell=tell) for spec in scenario.cells]
        trace = scenario.load(self._stream("load"))
        assert all(spec.limits.block_size_tokens == trace.block_tokens for spec in scenario.cells), (
            "a block of the load must be a block of every engine"
        )
        self.gateways = [self._gateway(index, make_policy, trace.block_tokens) for index in range(len(scenario.rtts_s))]
        self.feed = Feed(self.cells, scrape_s=scenario.delays.scrape_s, kv_events=scenario.kv_events)
        self._tuning = self._tuned(make_policy)
        self._schedule_world()
        place = self._stream("gateway")
        for number, (traced, hashes) in enumerate(zip(trace.requests, block_hashes(trace), strict=True)):
            drawn = place.randrange(len(self.gateways))
            gateway = drawn if scenario.gateway_of is None else scenario.gateway_of(traced)
            entry = Entry(number=number, traced=traced, gateway=gateway, hashes=hashes)
            self.journal.entries.append(entry)
            self.loop.at(traced.at_s, partial(self.gateways[entry.gateway].arrive, entry))

    def run(self) -> RunResult:
        """To the end of the last request, or DRAIN_S after the load."""
        self.loop.run(until_s=self._until_s)
        return self.result()

    def step(self) -> bool:
        """One event; False at the end of the run."""
        return self.loop.step(until_s=self._until_s)

    @property
    def carried(self) -> int:
        """Requests of the grid that are inside engines."""
        return len(self._attempts.open)

    @property
    def foreign(self) -> int:
        """Requests that came past all gateways, ended ones too."""
        return self._world.foreign

    def result(self) -> RunResult:
        """What has happened so far."""
        ids = tuple(spec.cell_id for spec in self.scenario.cells)
        entries = self.journal.entries
        return RunResult(
            records=tuple(to_record(entry, ids) for entry in entries),
            predicted_tokens=tuple(entry.predicted_tokens for entry in entries),
            trace_hash=self.journal.trace_hash,
            events=self.loop.events,
            ended_s=self.loop.now_s,
            preemptions=sum(cell.engine.counters.preemptions for cell in self.cells),
            tuning=None if self._tuning is None else self._tuning.history(),
        )

    @property
    def _until_s(self) -> float:
        return self.scenario.for_s + DRAIN_S

    def _stream(self, name: str) -> random.Random:
        return stream(self._seed, f"{self.scenario.name}/{name}")

    def _gateway(self, index: int, make_policy: MakePolicy, block_tokens: int) -> SimGateway:
        scenario = self.scenario
        return SimGateway(
            policy=make_policy(scenario),
            ways=[
                Way(path=self._path(index, cell, base_s), cell=self.cells[cell], index=cell)
                for cell, base_s in enumerate(scenario.rtts_s[index])
            ],
            loop=self.loop,
            journal=self.journal,
            chance=Chance(
                pick=self._stream(f"pick/{index}{scenario.ties}"),
                jitter=self._stream(f"jitter/{index}"),
                probe=self._stream(f"probe/{index}"),
                noise=self._stream(f"noise/{index}"),
                retry=self._stream(f"retry/{index}"),
            ),
            delays=scenario.delays,
            jitter_s=scenario.wan.jitter_s,
            block_tokens=block_tokens,
            until_s=scenario.for_s,
            attempts=self._attempts,
            gate=scenario.gate,
            gateway_id=f"gateway-{index}",
        )

    def _tuned(self, make_policy: MakePolicy) -> Tuning | None:
        if not isinstance(make_policy, WithTuner):
            return None
        return Tuning(
            make_policy.make_tuner(self._seed),
            [gateway.policy for gateway in self.gateways],
            loop=self.loop,
            journal=self.journal,
            delays=self.scenario.delays,
        )

    def _path(self, gateway: int, cell: int, base_s: float) -> WanPath:
        numbers = self.scenario.numbers
        name = f"wan/{gateway}/{numbers[cell] if numbers else cell}"
        path = WanPath(base_s=base_s, profile=self.scenario.wan, rng=self._stream(name))
        path.draw_spikes(self._stream(f"{name}/spikes"), until_s=self._until_s)
        return path

    def _schedule_world(self) -> None:
        """Everything that goes on whether or not requests come: disturbances, scrapes, heartbeats, probes."""
        scenario, loop = self.scenario, self.loop
        self._disturb()
        delays, until_s = scenario.delays, scenario.for_s
        loop.every(delays.scrape_s, lambda: self.feed.scrape(loop.now_s), until_s=until_s)
        loop.every(delays.heartbeat_s, self._beat, until_s=until_s)
        for gateway in self.gateways:
            loop.every(delays.probe_s, gateway.probe, until_s=until_s)
        if delays.sync_s is not None and len(self.gateways) > 1:
            loop.every(delays.sync_s, self._exchange, until_s=until_s)
        # The first view is there before the first request: a gateway without one publishes nothing.
        self.feed.scrape(0.0)
        self.feed.beat(0.0)
        for gateway in self.gateways:
            gateway.take_view(self.feed.view(0.0))
            gateway.probe()
            gateway.tick()
        if self._tuning is not None:
            self._tuning.start(until_s=until_s)

    def _disturb(self) -> None:
        """The profile's changes, and the scenario's own."""
        scenario = self.scenario
        sites = [spec.site for spec in scenario.cells]
        end_s = scenario.for_s + _DISTURBED_AFTER_S
        drawn = changes(scenario.disturbance, self._stream("disturbance"), sites=sites, until_s=end_s)
        self._world = World(
            cells=self.cells,
            agents=self.feed.agents,
            gateways=self.gateways,
            attempts=self._attempts,
            loop=self.loop,
            beat=self._beat_one,
        )
        self._world.schedule([*drawn, *scenario.changes])

    def _beat(self) -> None:
        self.feed.beat(self.loop.now_s)
        if self.feed.some_silent:
            for gateway in self.gateways:
                self.feed.report(gateway.report(), self.loop.now_s)
        self._publish()

    def _beat_one(self, cell: int) -> None:
        """A heartbeat that did not wait for its time."""
        self.feed.beat_one(cell, self.loop.now_s)
        self._publish()

    def _publish(self) -> None:
        view = self.feed.view(self.loop.now_s)
        for gateway in self.gateways:
            self.loop.at(self.loop.now_s + self.scenario.delays.view_s, partial(gateway.take_view, view))

    def _exchange(self) -> None:
        """Every gateway's outstanding work, and what it has sent where, goes to all others, by way of control."""
        told = [dict(gateway.policy.outstanding()) for gateway in self.gateways]
        placed = [gateway.take_placed() for gateway in self.gateways]
        for index, gateway in enumerate(self.gateways):
            loads = together(
                [loads for other, loads in enumerate(told) if other != index], age_s=self.scenario.delays.view_s
            )
            news = [prompt for other, prompts in enumerate(placed) if other != index for prompt in prompts]
            self.loop.at(self.loop.now_s + self.scenario.delays.view_s, partial(gateway.take_others, loads, news))

    def _first(self, sequence: Sequence) -> None:
        carried = self._attempts.open.get(sequence.request.seq_id)
        if carried is not None:  # else it came past all gateways
            carrier, attempt = carried
            carrier.first(attempt, sequence)

    def _last(self, sequence: Sequence) -> None:
        carried = self._attempts.open.pop(sequence.request.seq_id, None)
        if carried is not None:
            carrier, attempt = carried
            carrier.last(attempt)
