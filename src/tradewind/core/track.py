"""Everything a scorer remembers of one cell, and the part of its score that depends on this cell alone."""

import math
from dataclasses import dataclass, field

from tradewind.core.alerts import AlertTrack, Symptom
from tradewind.core.backpressure import Backpressure
from tradewind.core.blind import BlindTrack, OwnEvidence
from tradewind.core.ejection import EjectionTrack
from tradewind.core.numbers import known, ratio
from tradewind.core.pressure import UNKNOWN, OwnMeans, Signals
from tradewind.core.settings import ScoringSettings
from tradewind.core.signals import (
    EngineSignals,
    FrozenWatch,
    GpuSignals,
    PathTrack,
    TtftTrack,
    gpu_signals,
    queue_signal,
)
from tradewind.core.slowstart import SlowStart
from tradewind.core.speed import ClockSpeed, WorkSpeed, work_rate
from tradewind.core.steplaw import StepLaw, step_law
from tradewind.core.windows import EngineWindow, counter_delta
from tradewind.model.cell import CellState
from tradewind.model.routing import WeightRow
from tradewind.model.telemetry import EngineReading, GpuReading
from tradewind.model.view import CellView

_NO_ENGINE = EngineSignals()
_NO_GPU = GpuSignals()


def _window() -> EngineWindow:
    return EngineWindow(span_s=10.0)


@dataclass(slots=True)
class CellTrack:
    """One cell as a gateway follows it. Mutable, owned by one scorer."""

    view: CellView
    cell_id: str = field(init=False)
    pool: str = ""  # cells that share models, directly or through others, share this key
    speed_class: str = ""  # pool and hardware: only like is compared with like
    capacity: float = 1.0
    law: StepLaw = field(default_factory=lambda: step_law(None))
    window: EngineWindow = field(default_factory=_window)
    ttft: TtftTrack = field(default_factory=TtftTrack)
    gpu: GpuReading | None = None
    gpu_read_s: float = -math.inf
    frozen: FrozenWatch = field(default_factory=FrozenWatch)
    path: PathTrack = field(default_factory=PathTrack)
    work: WorkSpeed = field(default_factory=WorkSpeed)
    clock: ClockSpeed = field(default_factory=ClockSpeed)
    ramp: SlowStart = field(default_factory=SlowStart)
    backpressure: Backpressure = field(default_factory=Backpressure)
    alerts: AlertTrack = field(default_factory=AlertTrack)
    symptoms: list[Symptom] = field(default_factory=list)
    blind: BlindTrack = field(default_factory=BlindTrack)
    evidence: OwnEvidence = field(default_factory=OwnEvidence)
    ejection: EjectionTrack = field(default_factory=EjectionTrack)
    own_means: OwnMeans = field(default_factory=OwnMeans)
    # newest signals; None = unknown now
    signals: Signals = UNKNOWN
    queue: float | None = None
    kv: float | None = None
    kv_max: float | None = None
    gpu_signals: GpuSignals = _NO_GPU
    is_blind: bool = True  # engine and GPU both unknown; a missed heartbeat or two is not yet that
    flags: tuple[str, ...] = ()
    # the score
    pressure: float | None = None
    speed: float = 1.0
    attraction: float = 1.0
    ramp_value: float = 1.0
    backpressure_value: float = 1.0
    weight: int = 134
    row: WeightRow | None = None

    def __post_init__(self) -> None:
        self.cell_id = self.view.cell.cell_id

    @property
    def ready(self) -> bool:
        """Whether the cell takes traffic at all."""
        return self.view.state is CellState.READY

    def take_telemetry(self, now_s: float, settings: ScoringSettings) -> None:
        """Files the readings of a newly arrived view; ages count back from `now_s`."""
        telemetry = self.view.telemetry
        if telemetry.engine is not None and telemetry.engine_age_s is not None:
            self._take_engine(telemetry.engine, now_s - max(0.0, telemetry.engine_age_s), settings)
        if telemetry.gpu is not None and telemetry.gpu_age_s is not None:
            self._take_gpu(telemetry.gpu, now_s - max(0.0, telemetry.gpu_age_s), settings)

    def _take_engine(self, reading: EngineReading, read_s: float, settings: ScoringSettings) -> None:
        restarts = self.window.restarts
        if not self.window.add(read_s, reading):
            return
        self.ttft.take(self.window, settings.signals)
        self.queue = queue_signal(reading, settings.signals)
        self.kv = ratio(known(reading.kv_fill_ratio))
        self.kv_max = ratio(known(reading.kv_fill_max_ratio))
        capacity = self.view.cell.capabilities.kv_capacity_tokens
        restarted = self.window.restarts != restarts
        self.work.rate = None if restarted else work_rate(self.window, self.law, capacity, settings.speed)

    def _take_gpu(self, gpu: GpuReading, read_s: float, settings: ScoringSettings) -> None:
        if gpu is self.gpu or (read_s - self.gpu_read_s < 0.2 and gpu == self.gpu):
            return
        self.gpu, self.gpu_read_s = gpu, read_s
        interval_s = self.view.telemetry.gpu_interval_s
        engine = self.window.newest
        steps = engine.steps_total if engine is not None else None
        if self.frozen.update(gpu, steps=steps, interval_s=interval_s, settings=settings.signals, now_s=read_s):
            return
        self.gpu_signals = gpu_signals(gpu, settings.signals)
        running = known(engine.running_requests) if engine is not None else None
        loaded = bool(running) or (running is None and (known(gpu.util_ratio) or 0.0) > 0.3)
        self.clock.update(gpu, loaded=loaded, interval_s=interval_s, settings=settings.speed, now_s=read_s)
        fresh = loaded and read_s == self.clock.read_s and self.clock.samples >= 10
        self.symptoms = self.alerts.on_gpu(
            gpu,
            engine=engine,
            rates=self._token_rates(settings),
            clock_ratio=self.clock.ratio if fresh else None,
            settings=settings.alerts,
            now_s=read_s,
        )

    def _token_rates(self, settings: ScoringSettings) -> tuple[float, float] | None:
        span = self.window.since(settings.alerts.residual_window_s)
        if span is None:
            return None
        seconds, start, end = span
        prompt = counter_delta(start.prompt_tokens_total, end.prompt_tokens_total)
        generated = counter_delta(start.generation_tokens_total, end.generation_tokens_total)
        return None if prompt is None or generated is None else (prompt / seconds, generated / seconds)

    def reuse_ratio(self) -> float | None:
        """Share of prompt tokens that the engine lately found in its prefix cache."""
        span = self.window.since(10.0)
        if span is None:
            return None
        queries = counter_delta(span[1].prefix_query_tokens_total, span[2].prefix_query_tokens_total)
        hits = counter_delta(span[1].prefix_hit_tokens_total, span[2].prefix_hit_tokens_total)
        return None if not queries or hits is None else min(1.0, hits / queries)

    def refresh(self, now_s: float, settings: ScoringSettings) -> None:
        """Puts the ten signals of now together; a reading older than `stale_s` is unknown."""
        stale_s = settings.signals.stale_s
        flags = self.view.telemetry.flags
        engine: EngineSignals = _NO_ENGINE
        gpu: GpuSignals = _NO_GPU
        if now_s - self.window.newest_s <= stale_s:
            engine = EngineSignals(self.queue, self.ttft.value(self.window, settings.signals, now_s), self.kv)
        else:
            flags = (*flags, "engine_unknown")
            self.work.rate = None
        if self.frozen.frozen:
            flags = (*flags, "gpu_frozen")
        if self.gpu is not None and now_s - self.gpu_read_s <= stale_s and "gpu_frozen" not in flags:
            gpu = self.gpu_signals
        if gpu == _NO_GPU:
            flags = (*flags, "dcgm_fallback")
        self.signals = (*engine, *gpu, *self.path.signals(settings.signals))
        self.is_blind = engine == _NO_ENGINE and gpu == _NO_GPU
        self.flags = tuple(sorted(set(flags))) if flags else flags
