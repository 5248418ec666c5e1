"""The weights of `routing: weights`: pressure, speed and capacity to integers, with verdicts, alerts and ramps.

Each second: signals -> load pressure -> attraction -> weight relative to the pool's best. Over that lie, strongest
first, what takes a cell out or holds it down: local ejection, limits it stated itself, verdicts, alerts, blindness.
Ticks in between only act on what has happened, and cost little more than a walk over the cells.
"""

import math
import sys
from collections.abc import Collection
from itertools import zip_longest
from random import Random

from tradewind.core.blind import blind_weight
from tradewind.core.fleet import Fleet
from tradewind.core.holds import Overlay, PoolCells, overlays
from tradewind.core.judges import Judges
from tradewind.core.memory import MAX_ROWS, Memory
from tradewind.core.numbers import ewma, median
from tradewind.core.outcomes import Kind, kind_of, kind_of_attempt
from tradewind.core.pressure import load_pressure, named
from tradewind.core.projection import PushGate, attraction, weight_of
from tradewind.core.settings import ScoringSettings
from tradewind.core.speed import class_medians
from tradewind.core.track import CellTrack
from tradewind.model.outcome import Outcome
from tradewind.model.routing import Event, ProbeOrder, WeightDecision, WeightRow
from tradewind.model.view import CellView, GridView, PathReading

_FREE = Overlay(sys.maxsize, drained=False, reason="")
FULL_TICK_S = 0.9  # a little under a second, so that a ticker with jitter does not skip one


class WeightScorer:
    """The recipe, as one gateway runs it over the cells of its view."""

    def __init__(self, settings: ScoringSettings) -> None:
        self._settings = settings
        self._judges = Judges(settings)
        self._fleet = Fleet(settings, self._judges)
        self._gate = PushGate(settings.projection)
        self._touched: dict[str, CellTrack] = {}  # cells to score again before the next full tick
        self._events: list[Event] = []
        self._urgent = False
        self._full_s = -math.inf

    # --- observations ---------------------------------------------------------------------------------------

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        """Takes what is new in the view; a cell whose `CellView` is the same object costs nothing."""
        touched, urgent = self._fleet.take(view.cells if isinstance(view, GridView) else view, now_s)
        for track in touched:
            self._touched[track.cell_id] = track
        self._urgent |= urgent
        return urgent

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """Evidence for verdicts, back-pressure, ramps, blindness and reachability."""
        if outcome.attempt_failures or len(outcome.attempted_cells) > 1:
            self._note_attempts(outcome, now_s)
        track = self._fleet.tracks.get(outcome.cell_id or "")
        kind = kind_of(outcome)
        if track is None or kind is Kind.IGNORED:
            return False
        if kind is Kind.SERVED:
            self._note_served(track, outcome, now_s)
            changed = self._judges.on_outcome(track, kind, outcome, now_s)
            self._urgent |= changed
            return changed
        if kind is Kind.BACKPRESSURE:
            track.backpressure.on_refused(outcome.retry_after_s, self._settings.backpressure, now_s)
            track.ejection.on_answered()
            self._touched[track.cell_id] = track
            return True
        self._note(track, kind, now_s)
        changed = self._judges.on_outcome(track, kind, outcome, now_s)
        self._urgent |= changed
        return changed or kind is Kind.UNREACHED or self._judges.wants_probe

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        """RTT, jitter and reachability as this gateway measures them."""
        track = self._fleet.tracks.get(reading.cell_id)
        if track is None:
            return False
        track.path.update(reading, self._settings.signals, now_s)
        before = track.ejection.unreachable
        track.ejection.on_path(reachable=reading.reachable)
        self._fleet.watch(track)
        return track.ejection.unreachable != before

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """The answer to one of the decision's probes."""
        changed = self._judges.on_probe(cell_id, order, status, now_s)
        self._urgent |= changed
        return changed or self._judges.wants_probe

    # --- restarts -------------------------------------------------------------------------------------------

    def remembered(self, now_s: float) -> Memory:
        """What is worth a restart, as ages."""
        return Memory(cases=self._judges.remembered(now_s)[:MAX_ROWS], lengths=self._fleet.remembered(now_s)[:MAX_ROWS])

    def recall(self, memory: Memory, cells: Collection[str], now_s: float) -> None:
        """Goes on from what was remembered of `cells`; before the first view."""
        self._judges.recall(memory.cases, cells, now_s)
        self._fleet.recall(memory.lengths, now_s)
        self._urgent = True

    def _note_attempts(self, outcome: Outcome, now_s: float) -> None:
        for cell_id, reason in zip_longest(outcome.attempted_cells[:-1], outcome.attempt_failures, fillvalue=""):
            track = self._fleet.tracks.get(cell_id)
            if track is not None and cell_id != outcome.cell_id:
                self._note_attempt(track, kind_of_attempt(reason), outcome, now_s)

    def _note_attempt(self, track: CellTrack, kind: Kind, outcome: Outcome, now_s: float) -> None:
        """A failed attempt of a request that went on to another cell."""
        if kind is Kind.BACKPRESSURE:
            track.backpressure.on_refused(None, self._settings.backpressure, now_s)
            self._touched[track.cell_id] = track
        elif kind is Kind.UNREACHED:
            track.ejection.on_retried(now_s)
        elif kind is Kind.FAILURE:
            self._urgent |= self._judges.on_outcome(track, kind, outcome, now_s)

    def _note(self, track: CellTrack, kind: Kind, now_s: float) -> None:
        if kind is Kind.UNREACHED:
            track.ejection.on_unreached(now_s)
            self._fleet.watch(track)
        else:
            track.ejection.on_answered()
        if kind is not Kind.REFUSAL:
            track.evidence.on_failed(now_s)

    def _note_served(self, track: CellTrack, outcome: Outcome, now_s: float) -> None:
        if track.ejection.failures:
            track.ejection.on_answered()
        if track.ramp.started_s is not None:
            track.ramp.on_served(now_s)
        track.evidence.on_served(outcome.ttft_s, now_s)
        pool = self._fleet.pools.get(track.pool)
        if pool is not None:
            pool.longest.on_request(
                request_bytes=outcome.request_bytes,
                prompt_tokens=outcome.prompt_tokens,
                completion_tokens=outcome.completion_tokens,
                now_s=now_s,
            )

    # --- the tick -------------------------------------------------------------------------------------------

    def tick(self, now_s: float, rng: Random) -> WeightDecision:
        """Weights, events and probes of now."""
        self._urgent |= self._fleet.settle()
        self._urgent |= self._judges.tick(now_s)
        self._take_judgements(now_s)
        full = now_s - self._full_s >= FULL_TICK_S
        if full:
            self._score_all(now_s)
        else:
            self._score_touched(now_s)
        pools = [pool for _, pool in sorted(self._fleet.pools.items())]
        rows = [row for pool in pools for row in self._project(pool, now_s, full=full)]
        if len(pools) > 1:
            rows.sort(key=lambda row: row.cell_id)
        weights = {row.cell_id: row.weight for row in rows if not row.drained}
        push = self._gate.decide(weights, now_s, urgent=self._urgent)
        self._urgent = False
        events, self._events = tuple(self._events), []
        return WeightDecision(rows=tuple(rows), push=push, events=events, probes=tuple(self._judges.orders(rng, now_s)))

    def _score_all(self, now_s: float) -> None:
        settings, fleet = self._settings, self._fleet
        tracks = [track for pool in fleet.pools.values() for track in pool.cells]
        for track in tracks:
            track.refresh(now_s, settings)
        fleet.update_means(now_s)
        medians = class_medians((track.speed_class, track.work.rate) for track in tracks)
        dt_s = min(10.0, now_s - self._full_s)
        for track in tracks:
            self._press(track, dt_s)
            work = track.work.update(medians.get(track.speed_class), settings.speed, dt_s)
            track.speed = min(work, track.clock.value(settings.speed, now_s))
            self._attract(track, now_s)
        self._full_s = now_s
        self._touched.clear()

    def _score_touched(self, now_s: float) -> None:
        for track in self._touched.values():
            if track.ready and track.pool in self._fleet.pools:
                track.refresh(now_s, self._settings)
                if track.pressure is None:
                    self._press(track, 0.0)
                self._attract(track, now_s)
                track.row = None
                self._fleet.pools[track.pool].rows.clear()
        self._touched.clear()

    def _press(self, track: CellTrack, dt_s: float) -> None:
        load = load_pressure(track.signals, self._fleet.means[track.speed_class], track.own_means)
        if load is not None:
            half_life_s = self._settings.signals.pressure_half_life_s
            track.pressure = ewma(track.pressure, load, dt_s=dt_s, half_life_s=half_life_s)

    def _attract(self, track: CellTrack, now_s: float) -> None:
        settings = self._settings
        track.ramp_value = 1.0
        if track.ramp.started_s is not None:
            track.ramp_value = track.ramp.value(now_s, settings.slow_start, reuse_ratio=track.reuse_ratio())
        track.backpressure_value = track.backpressure.current(settings.backpressure, now_s)
        track.attraction = attraction(
            pressure=track.pressure or 0.0,
            speed=track.speed,
            capacity=track.capacity,
            ramp=track.ramp_value,
            backpressure=track.backpressure_value,
            gamma=settings.projection.gamma,
            exponent=settings.speed.exponent,
        )

    def _project(self, pool: PoolCells, now_s: float, *, full: bool) -> list[WeightRow]:
        """Weights of one pool, then everything that overrides them."""
        held_before = pool.by_cell
        found = overlays(pool, self._judges.holds(), self._settings, now_s, full=full)
        self._events += found.events
        self._urgent |= found.changed
        for track in found.touched:
            self._touched[track.cell_id] = track
        if not full and pool.rows and found.by_cell == held_before:
            return pool.rows
        if full or not pool.rows:
            self._weigh(pool, now_s, full=full)
        by_cell = found.by_cell
        for track in pool.cells:
            overlay = by_cell.get(track.cell_id)
            if track.row is None or overlay is not None or track.cell_id in held_before:
                track.row = self._row(track, overlay)
        pool.rows = [track.row for track in pool.cells if track.row is not None]
        return pool.rows

    def _weigh(self, pool: PoolCells, now_s: float, *, full: bool) -> None:
        """Weights from attractions; when the best has not moved, only those of cells that were touched."""
        scored = [track for track in pool.cells if not track.is_blind]
        free = [track.attraction for track in scored if track.cell_id not in pool.by_cell]
        best = max(free or [track.attraction for track in scored], default=0.0)
        every, pool.best = full or best != pool.best, best
        blind = [track for track in pool.cells if track.is_blind]
        kept = len(blind) > self._settings.blind.observer_share * len(pool.cells)
        for track in pool.cells:
            if track.is_blind is (track.blind.since_s is None):
                track.blind.update(blind=track.is_blind, weight=track.weight, now_s=now_s)
                name = "cell.blind" if track.is_blind else "cell.seen"
                self._events.append(Event(at_s=now_s, name=name, cell_id=track.cell_id, detail=track.view.reason))
            if every:
                track.row = None
            if track.row is None and not track.is_blind and not kept:
                track.weight = weight_of(track.attraction, best, self._settings.projection)
        if blind and not kept:
            self._weigh_blind(pool, blind, now_s)
        if kept != pool.observer_blind:
            pool.observer_blind = kept
            detail = f"{len(blind)} of {len(pool.cells)} cells without telemetry"
            name = "observer.blind" if kept else "observer.seeing"
            self._events.append(Event(at_s=now_s, name=name, cell_id=None, detail=detail))

    def _weigh_blind(self, pool: PoolCells, blind: list[CellTrack], now_s: float) -> None:
        span_s = self._settings.blind.proof_s
        peers = [track for track in pool.cells if not track.is_blind]
        pool_ttft_s = median(ttft_s for track in peers for ttft_s in track.evidence.recent(span_s, now_s))
        middle = median(track.weight for track in peers)
        for track in blind:
            track.weight = blind_weight(
                track.blind,
                track.evidence,
                pool_median=middle,
                pool_ttft_s=pool_ttft_s,
                slo_ttft_s=self._settings.signals.slo_ttft_s,
                settings=self._settings.blind,
                now_s=now_s,
            )
            track.row = None

    @staticmethod
    def _row(track: CellTrack, overlay: Overlay | None) -> WeightRow:
        shown = overlay or _FREE
        return WeightRow(
            cell_id=track.cell_id,
            weight=min(track.weight, shown.cap),
            pressure=track.pressure,
            speed=track.speed,
            capacity=track.capacity,
            ramp=track.ramp_value,
            backpressure=track.backpressure_value,
            blind=track.is_blind,
            drained=shown.drained,
            short=shown.short,
            refuses=shown.refuses,
            reason=shown.reason,
            signals=named(track.signals),
            flags=track.flags,
        )

    def _take_judgements(self, now_s: float) -> None:
        for event in self._judges.take_events():
            self._events.append(event)
            track = self._fleet.tracks.get(event.cell_id or "")
            if track is not None and event.name.endswith(".cleared"):
                track.ramp.begin(now_s, linear_s=self._settings.verdicts.ramp_s)
                self._touched[track.cell_id] = track
