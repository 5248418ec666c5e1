"""All telemetry of one cell over time: holds, staleness, frozen values, flags and ages."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from tradewind.core.frozen import FrozenWatch
from tradewind.core.hold import Hold
from tradewind.model.telemetry import CacheReading, EngineReading, GpuReading, HostReading, Telemetry, UnknownSignal
from tradewind.telemetry.dcgm import GpuScrape
from tradewind.telemetry.engine_metrics import EngineScrape

MAX_UNKNOWN = 64  # a heartbeat names no more than these
MAX_GPU_NAME = 64  # characters: where none are named in the grid file, a page may call them what it likes

DCGM_FALLBACK = "dcgm_fallback"  # GPU telemetry is asked for and cannot be trusted now
GPU_FROZEN = "gpu_frozen"  # the exporter answers with values that stand still under work
GPU_MISSING = "gpu_missing"  # some GPUs of the cell are not on the page
ENGINE_METRICS_STALE = "engine_metrics_stale"  # the engine's metrics page cannot be read
ENGINE_ASLEEP = "engine_asleep"


class CacheSource(Protocol):
    """What the engine's KV events say of its cache."""

    def read(self, now_s: float) -> CacheReading | str:
        """As of now, or why nothing is known."""
        ...

    def engine_restarted(self, now_s: float) -> None:
        """The engine's process has ended or is another one."""
        ...


class CellTelemetry:
    """Fed by the agent's scrapes, read at every heartbeat. Times come in as now_s of one monotonic clock."""

    def __init__(self, *, scrape_s: float, gpu_source: bool, cache: CacheSource | None = None) -> None:
        """gpu_source: False when no GPU telemetry is configured; then its absence is no fallback. cache: None where
        nobody listens to KV events; then nothing is said of them."""
        stale_after_s = 3.0 * scrape_s + 0.5
        self._engine: Hold[EngineScrape] = Hold(stale_after_s)
        self._gpu: Hold[GpuScrape] = Hold(stale_after_s)
        self._host: Hold[HostReading] = Hold(stale_after_s)
        self._gpu_source = gpu_source
        self._cache = cache
        self._frozen = FrozenWatch()
        self._each: dict[str, FrozenWatch] = {}  # by GPU: one may stand still beside others that move
        self._work: tuple[float | None, ...] | None = None
        self._worked_s: float | None = None  # when the engine's counters were last seen to advance
        self._work_window_s = 2.0 * scrape_s + 0.5
        self._awake_since_gauge = False

    def engine_hit(self, scrape: EngineScrape, at_s: float) -> None:
        """A page was read at at_s; a page of no known engine counts as a miss."""
        if scrape.kind is None:
            self.engine_miss(scrape.unknown[0].reason)
            return
        work = _work_counters(scrape.reading)
        advanced = self._work is not None and work != self._work and any(value is not None for value in work)
        if advanced:
            self._worked_s = at_s
        if not scrape.asleep:
            self._awake_since_gauge = False
        elif advanced:
            self._awake_since_gauge = True
        self._work = work
        self._engine.hit(scrape, at_s)

    def engine_miss(self, reason: str) -> None:
        self._engine.miss(reason)

    def engine_restarted(self, reason: str) -> None:
        """Nothing read from the old process holds for the new one."""
        self._engine.forget(reason)
        self._work, self._worked_s, self._awake_since_gauge = None, None, False

    def engine_ended(self, reason: str, at_s: float) -> None:
        """The process is gone, and its cache with it."""
        self.engine_restarted(reason)
        if self._cache is not None:
            self._cache.engine_restarted(at_s)

    def engine_served(self) -> None:
        """A request has just been answered: vLLM's sleep gauge, if up, is left over from a resume."""
        self._awake_since_gauge = True

    def gpu_hit(self, scrape: GpuScrape, at_s: float) -> None:
        if scrape.reading is None:
            self.gpu_miss(scrape.unknown[0].reason)
            return
        worked = self._worked_s is not None and at_s - self._worked_s <= self._work_window_s
        self._frozen.look(scrape.fingerprint, engine_worked=worked, now_s=at_s)
        self._each = {gpu: self._each.get(gpu) or FrozenWatch() for gpu, _ in scrape.energies}
        for gpu, energy in scrape.energies:
            self._each[gpu].look(hash(energy), engine_worked=worked, now_s=at_s)
        self._gpu.hit(scrape, at_s)

    def gpu_miss(self, reason: str) -> None:
        self._gpu.miss(reason)

    def host_read(self, reading: HostReading | None, at_s: float) -> None:
        if reading is None:
            self._host.miss("no CPU limit, or not on this host")
        else:
            self._host.hit(reading, at_s)

    def telemetry(self, now_s: float) -> Telemetry:
        """Everything as of now_s; unknown is None, never zero, and named with its reason."""
        engine, gpu, host = self._engine.read(now_s), self._gpu.read(now_s), self._host.read(now_s)
        unknown: list[UnknownSignal] = []
        flags: set[str] = set()
        if engine.value is None:
            unknown.append(UnknownSignal(signal="engine", reason=engine.reason))
            if self._engine.missed:
                flags.add(ENGINE_METRICS_STALE)
        else:
            unknown.extend(engine.value.unknown)
        reading = None if engine.value is None else self._awake(engine.value)
        if reading is not None and reading.sleeping:
            flags.add(ENGINE_ASLEEP)
        gpu_reading, gpu_unknown, gpu_flags = self._gpu_view(gpu.value, gpu.reason)
        unknown.extend(gpu_unknown)
        cache = None if self._cache is None else self._cache.read(now_s)
        if isinstance(cache, str):
            unknown.append(UnknownSignal(signal="cache", reason=cache))
        return Telemetry(
            engine=reading,
            engine_age_s=engine.age_s,
            gpu=gpu_reading,
            gpu_age_s=None if gpu_reading is None else gpu.age_s,
            gpu_interval_s=self._frozen.interval_s,
            host=host.value,
            unknown=tuple(unknown[:MAX_UNKNOWN]),
            flags=tuple(sorted(flags | gpu_flags)),
            cache=cache if isinstance(cache, CacheReading) else None,
        )

    def _gpu_view(
        self, scrape: GpuScrape | None, reason: str
    ) -> tuple[GpuReading | None, list[UnknownSignal], set[str]]:
        if not self._gpu_source:
            return None, [UnknownSignal(signal="gpu", reason="no GPU telemetry is configured")], set()
        flags = {DCGM_FALLBACK} if self._gpu.missed else set()
        if scrape is None:
            return None, [UnknownSignal(signal="gpu", reason=reason)], flags
        if frozen := self._frozen_values():
            what = f"{frozen} while the engine worked"
            return None, [UnknownSignal(signal="gpu", reason=what)], {DCGM_FALLBACK, GPU_FROZEN}
        unknown = list(scrape.unknown)
        if scrape.missing:
            flags.add(GPU_MISSING)
            unknown.extend(
                UnknownSignal(signal=f"gpu {gpu[:MAX_GPU_NAME]}", reason="not on the page") for gpu in scrape.missing
            )
        return scrape.reading, unknown, flags

    def _frozen_values(self) -> str:
        """What stands still, "" if nothing does. The energy of a GPU counts only if it was seen to move under work."""
        if self._frozen.is_frozen:
            return f"values stood still for {self._frozen.still_s:.0f} s"
        still = {gpu: watch for gpu, watch in self._each.items() if watch.is_frozen and watch.interval_s is not None}
        return next((f"{gpu} stood still for {watch.still_s:.0f} s" for gpu, watch in still.items()), "")

    def _awake(self, scrape: EngineScrape) -> EngineReading:
        """The gauge stays up after /resume; an engine that has served since then is awake all the same."""
        reading = scrape.reading
        return replace(reading, sleeping=False) if reading.sleeping and self._awake_since_gauge else reading


def _work_counters(reading: EngineReading) -> tuple[float | None, ...]:
    return reading.generation_tokens_total, reading.prompt_tokens_total, reading.steps_total


def reasons(unknown: Iterable[UnknownSignal]) -> dict[str, str]:
    """Signal to reason, for tables and logs."""
    return {entry.signal: entry.reason for entry in unknown}
