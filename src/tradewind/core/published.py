"""The published scorer, for comparison: a weighted mean of eight (v2) or ten (v3) signals, gamma 4, hysteresis.

Source: the Solyx AI Grid paper: engine 4 (queue, P95 TTFT, error rate, KV), hardware 4 (utilisation, VRAM, SM/tensor
activity, DRAM), network 2 (RTT, jitter). Its weights are not published; ours follow the "published-like" arm of the
pressure study (hardware 0.30). Missing signals drop out and the rest is renormalised.
"""

import math
from random import Random

from tradewind.core.membership import MembershipWatch
from tradewind.core.numbers import ewma, ratio
from tradewind.core.outcomes import Kind, kind_of
from tradewind.core.pressure import weighted
from tradewind.core.projection import PushGate
from tradewind.core.settings import ScoringSettings
from tradewind.core.signals import SIGNAL_NAMES
from tradewind.core.track import CellTrack
from tradewind.model.cell import CellState
from tradewind.model.outcome import Outcome
from tradewind.model.routing import ProbeOrder, WeightDecision, WeightRow
from tradewind.model.view import CellView, GridView, PathReading

GAMMA = 4.0
ERROR_SPAN_S = 10.0
_NAMES = ("queue", "ttft", "errors", "kv", "util", "vram", "sm", "dram", "rtt", "jitter")
_WEIGHTS = (0.20, 0.15, 0.15, 0.10, 0.08, 0.06, 0.08, 0.08, 0.06, 0.04)


class _ErrorRate:
    """Share of a cell's outcomes that were errors of any class, forgotten over ten seconds."""

    def __init__(self) -> None:
        self.errors = self.requests = 0.0
        self.at_s = 0.0

    def add(self, *, error: bool, now_s: float) -> None:
        keep = math.exp(-max(0.0, now_s - self.at_s) / ERROR_SPAN_S)
        self.errors, self.requests, self.at_s = self.errors * keep + error, self.requests * keep + 1.0, now_s

    def value(self, now_s: float) -> float | None:
        requests = self.requests * math.exp(-max(0.0, now_s - self.at_s) / ERROR_SPAN_S)
        return self.errors / self.requests if requests > 0.1 else None


class PublishedScorer:
    """v2 (`signals` 8) or v3 (10). READY cells only, weights absolute: 134 * (1 - p)^4."""

    def __init__(self, settings: ScoringSettings, *, signals: int) -> None:
        self._settings = settings
        self._count = signals
        self._tracks: dict[str, CellTrack] = {}
        self._errors: dict[str, _ErrorRate] = {}
        self._members = MembershipWatch()
        self._gate = PushGate(settings.projection)
        self._ticked_s = -math.inf

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        """Files new telemetry; True when the READY set changed."""
        cells = view.cells if isinstance(view, GridView) else view
        tracks: dict[str, CellTrack] = {}
        for cell in cells:
            track = self._tracks.get(cell.cell.cell_id) or CellTrack(cell)
            track.view = cell
            track.take_telemetry(now_s, self._settings)
            tracks[cell.cell.cell_id] = track
        self._tracks = tracks
        return self._members.update(view)

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """Counts errors as the paper does: 4xx and 5xx alike."""
        kind = kind_of(outcome)
        if outcome.cell_id in self._tracks and kind is not Kind.IGNORED and outcome.cell_id is not None:
            rate = self._errors.setdefault(outcome.cell_id, _ErrorRate())
            rate.add(error=kind is not Kind.SERVED, now_s=now_s)
        return False

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        """RTT and jitter."""
        track = self._tracks.get(reading.cell_id)
        if track is not None:
            track.path.update(reading, self._settings.signals, now_s)
        return False

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """No probe is ever ordered."""
        return False

    def tick(self, now_s: float, rng: Random) -> WeightDecision:
        """Scores, projects and applies the hysteresis."""
        dt_s, self._ticked_s = now_s - self._ticked_s, now_s
        rows = tuple(
            self._row(track, dt_s, now_s)
            for cell_id, track in sorted(self._tracks.items())
            if track.view.state is CellState.READY
        )
        urgent = self._members.take_change()
        push = self._gate.decide({row.cell_id: row.weight for row in rows}, now_s, urgent=urgent)
        return WeightDecision(rows=rows, push=push)

    def _row(self, track: CellTrack, dt_s: float, now_s: float) -> WeightRow:
        track.refresh(now_s, self._settings)
        signals = self._signals(track, now_s)
        pressure = weighted(signals, _WEIGHTS[: self._count])
        if pressure is not None:
            half_life_s = self._settings.signals.pressure_half_life_s
            track.pressure = ewma(track.pressure, pressure, dt_s=min(dt_s, 60.0), half_life_s=half_life_s)
        best = self._settings.projection.best
        weight = max(1, min(best, round(best * (1.0 - (track.pressure or 0.0)) ** GAMMA)))
        return WeightRow(
            cell_id=track.cell_id,
            weight=weight,
            pressure=track.pressure,
            blind=track.is_blind,
            signals=tuple(zip(_NAMES, signals, strict=False)),
            flags=track.flags,
        )

    def _signals(self, track: CellTrack, now_s: float) -> tuple[float | None, ...]:
        known = dict(zip(SIGNAL_NAMES, track.signals, strict=True))
        rate = self._errors.get(track.cell_id)
        known["errors"] = rate.value(now_s) if rate is not None else None
        active = [value for value in (known["sm"], known["tensor"]) if value is not None]
        known["sm"] = sum(active) / len(active) if active else None
        gpu = track.gpu
        known["vram"] = ratio(gpu.vram_ratio) if gpu is not None and known["vram"] is not None else None
        return tuple(known[name] for name in _NAMES[: self._count])
