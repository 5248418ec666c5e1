"""A small grid in virtual time that drives a real scorer: requests, refusals, probes, telemetry. No I/O, seeded."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from random import Random

from tradewind.core.lowdisc import CreditPick
from tradewind.core.scoring import Scorer, ScoringSettings, WeightScorer, routing
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.outcome import Outcome
from tradewind.model.routing import Event, ProbeOrder, WeightDecision, WeightRow
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram, Telemetry
from tradewind.model.view import CellView, PathReading

MODEL = "m"
COUNTERS = ("steps", "prompt", "tokens", "done", "itl", "itl_tokens")
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(slots=True)
class FakeCell:
    """One engine: what it answers, how fast it is, and what its counters say."""

    cell_id: str
    answer: Callable[[int], int] = lambda size: 200  # request bytes -> HTTP status
    speed: float = 1.0
    clock: float = 1.0  # SM clock share
    max_model_len: int | None = None
    hardware: str = "h100"
    state: CellState = CellState.READY
    silent: bool = False
    incarnation: str = "i1"
    start_time_s: float = 1.0
    gpu: bool = True
    throttle_bits: int = 0
    temperature_c: float = 60.0
    interval_s: float = 1.0
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0.0))
    buckets: list[float] = field(default_factory=lambda: [0.0] * (len(BOUNDS) + 1))
    running: int = 0
    busy_s: float = 0.0  # since the last scrape
    changed_s: float = 0.0
    pending: float = 0.0  # prompt tokens not yet computed
    served: int = 0
    refused: int = 0
    sequence: int = 0
    telemetry: Telemetry = field(default_factory=Telemetry)
    read_s: float = 0.0

    def load(self, change: int, now_s: float) -> None:
        """A request comes or goes."""
        if self.running:
            self.busy_s += now_s - self.changed_s
        self.running += change
        self.changed_s = now_s

    def scrape(self, now_s: float, rng: Random) -> None:
        """A new page, as an agent reads it once a second; steps and work follow the speed."""
        self.load(0, now_s)
        busy = min(1.0, self.busy_s)
        elapsed_ms = 1e3 * self.busy_s * self.speed
        prompt = min(self.pending, elapsed_ms / 0.3)
        self.pending -= prompt
        steps = (elapsed_ms - 0.3 * prompt) / (24.0 + 0.06 * self.running)
        self.counters["prompt"] += prompt
        self.counters["steps"] += steps
        self.counters["itl"] += self.busy_s
        self.counters["itl_tokens"] += steps
        self.busy_s = 0.0
        engine = EngineReading(
            queue_requests=0.0,
            running_requests=float(self.running),
            kv_fill_ratio=min(1.0, 0.02 * self.running),
            kv_fill_max_ratio=min(1.0, 0.02 * self.running),
            ttft_s=Histogram(bounds=BOUNDS, counts=tuple(self.buckets)),
            itl_s=Histogram(bounds=(), counts=(self.counters["itl_tokens"],), total=self.counters["itl"]),
            prompt_tokens_total=self.counters["prompt"],
            prompt_computed_tokens_total=self.counters["prompt"],
            generation_tokens_total=self.counters["tokens"],
            steps_total=self.counters["steps"],
            prefix_query_tokens_total=self.counters["prompt"],
            prefix_hit_tokens_total=0.0,
            finished_total=self.counters["done"],
            start_time_s=self.start_time_s,
        )
        gpu = GpuReading(
            gpus=1,
            util_ratio=0.9 * busy,
            vram_ratio=0.93,
            sm_active_ratio=0.5 * busy + 0.05 * rng.random(),
            tensor_active_ratio=0.3 * busy,
            dram_active_ratio=0.4 * busy,
            temperature_c=self.temperature_c + rng.random(),
            sm_clock_hz=2e9 * self.clock,
            power_w=300 + rng.random(),
            throttle_bits=self.throttle_bits,
        )
        self.telemetry = Telemetry(
            engine=engine,
            engine_age_s=0.0,
            gpu=gpu if self.gpu else None,
            gpu_age_s=0.0 if self.gpu else None,
            gpu_interval_s=self.interval_s if self.gpu else None,
        )
        self.read_s = now_s

    def view(self, now_s: float) -> CellView:
        """As a gateway would see it now."""
        self.sequence += 1
        age_s = now_s - self.read_s
        telemetry = self.telemetry
        if telemetry.engine is not None:
            gpu_age_s = age_s if telemetry.gpu is not None else None
            telemetry = replace(telemetry, engine_age_s=age_s, gpu_age_s=gpu_age_s)
        capabilities = Capabilities(models=(MODEL,), max_model_len=self.max_model_len, hardware=self.hardware)
        address = f"10.0.0.{self.cell_id[1:]}:8000"
        return CellView(
            cell=Cell(cell_id=self.cell_id, site="a", address=address, capabilities=capabilities),
            state=self.state,
            incarnation=self.incarnation,
            sequence=self.sequence,
            silent=self.silent,
            telemetry=telemetry,
        )


@dataclass(slots=True)
class World:
    """Cells, a scorer, and an Envoy worker that picks by credits; time only moves in `run`."""

    cells: list[FakeCell]
    scorer: Scorer = field(default_factory=lambda: WeightScorer(ScoringSettings()))
    seed: int = 1
    rate_per_s: float = 10.0
    sizes: Callable[[Random], int] = lambda rng: 2000
    served_s: float = 3.0
    probes_work: bool = True
    now_s: float = 0.0
    decision: WeightDecision = field(default_factory=lambda: WeightDecision(rows=(), push=False))
    pushes: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    probes: list[tuple[float, ProbeOrder]] = field(default_factory=list)
    picked: list[tuple[float, str, int, int]] = field(default_factory=list)  # at_s, cell, bytes, status
    rng: Random = field(default_factory=Random)
    pick: CreditPick = field(default_factory=CreditPick)
    agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: "count[int]" = field(default_factory=count)
    heartbeats: bool = True

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.pick.rng = Random(self.seed + 1)
        self.at(0.0, self._second)
        self.at(1.0, self._request)

    def at(self, at_s: float, what: Callable[[], None]) -> None:
        """Schedules `what`."""
        heapq.heappush(self.agenda, (at_s, next(self.order), what))

    def run(self, until_s: float) -> "World":
        """Moves time on."""
        while self.agenda and self.agenda[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self.agenda)
            what()
        self.now_s = until_s
        return self

    def cell(self, index: int) -> FakeCell:
        """The cell at `index`."""
        return self.cells[index]

    def row(self, index: int) -> WeightRow | None:
        """The newest row of a cell."""
        cell_id = self.cells[index].cell_id
        return next((row for row in self.decision.rows if row.cell_id == cell_id), None)

    def weight(self, index: int) -> int:
        """What Envoy has now; 0 when left out."""
        return self.pushes[-1][1].get(self.cells[index].cell_id, 0) if self.pushes else 0

    def share(self, index: int, since_s: float) -> float:
        """Share of the requests since `since_s` that went to a cell."""
        recent = [cell for at_s, cell, _, _ in self.picked if at_s >= since_s]
        return recent.count(self.cells[index].cell_id) / max(1, len(recent))

    def refresh(self) -> None:
        """A view and a tick at once, as after a change of state."""
        views = tuple(cell.view(self.now_s) for cell in self.cells)
        self.scorer.observe_view(views, self.now_s)
        self._tick()

    def _second(self) -> None:
        for cell in self.cells:
            if self.heartbeats and not cell.silent:
                cell.scrape(self.now_s, self.rng)
            reading = PathReading(cell_id=cell.cell_id, rtt_s=0.01, jitter_s=0.001, reachable=True)
            self.scorer.observe_path(reading, self.now_s)
        self.refresh()
        self.at(self.now_s + 1.0, self._second)

    def _tick(self) -> None:
        self.decision = self.scorer.tick(self.now_s, self.rng)
        self.events += self.decision.events
        if self.decision.push:
            views = tuple(cell.view(self.now_s) for cell in self.cells)
            pools = routing(self.decision, views, {}, (MODEL,)).pools
            weights = {point.cell_id: point.weight for point in pools[0].endpoints}
            self.pushes.append((self.now_s, weights))
            if weights:
                self.pick.update(weights)
        for order in self.decision.probes:
            self.probes.append((self.now_s, order))
            if self.probes_work:
                cell = next(cell for cell in self.cells if cell.cell_id == order.cell_id)
                status = cell.answer(order.prompt_bytes)
                wait_s = 0.5 if status == 200 else 0.05
                self.at(self.now_s + wait_s, partial(self._probed, order, status))

    def _probed(self, order: ProbeOrder, status: int) -> None:
        if self.scorer.observe_probe(order.cell_id, order, status, self.now_s):
            self._tick()

    def _request(self) -> None:
        self.at(self.now_s + 1.0 / self.rate_per_s, self._request)
        cell_id = self.pick.pick()
        cell = next(cell for cell in self.cells if cell.cell_id == cell_id)
        size = self.sizes(self.rng)
        status = cell.answer(size)
        self.picked.append((self.now_s, cell_id, size, status))
        if status == 200:
            cell.load(1, self.now_s)
            ttft_s = 0.2 / cell.speed
            for index, bound in enumerate((*BOUNDS, float("inf"))):
                cell.buckets[index] += ttft_s <= bound
            cell.pending += size / 4
            self.at(self.now_s + self.served_s, lambda: self._served(cell, size, ttft_s))
        else:
            cell.refused += 1
            self.at(self.now_s + 0.1, lambda: self._outcome(cell, size, status=status))

    def _served(self, cell: FakeCell, size: int, ttft_s: float) -> None:
        cell.load(-1, self.now_s)
        cell.served += 1
        cell.counters["done"] += 1
        cell.counters["tokens"] += 128
        self._outcome(cell, size, status=200, ttft_s=ttft_s)

    def _outcome(self, cell: FakeCell, size: int, *, status: int, ttft_s: float | None = None) -> None:
        outcome = Outcome(
            request_id=str(next(self.order)),
            cell_id=cell.cell_id,
            model=MODEL,
            status=status,
            request_bytes=size,
            response_bytes=100,
            ttft_s=ttft_s,
            prompt_tokens=size // 4 if status == 200 else None,
            completion_tokens=128 if status == 200 else None,
        )
        if self.scorer.observe_outcome(outcome, self.now_s):
            self._tick()


def world(cells: int = 9, **options: object) -> World:
    """A world of equal cells c0, c1, ..."""
    return World([FakeCell(f"c{index}") for index in range(cells)], **options)  # type: ignore[arg-type]
