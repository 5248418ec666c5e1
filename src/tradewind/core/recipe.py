"""The weights of `routing: weights`: pressure, speed and capacity to integers, with verdicts, alerts and ramps.

Each tick: signals -> load pressure -> attraction -> weight relative to the pool's best. Over that lie, strongest first,
what takes a cell out or holds it down: local ejection, verdicts, limits it stated itself, alerts, blindness.
"""

import math
from random import Random

from tradewind.core.blind import blind_weight
from tradewind.core.capability import LongestPrompt
from tradewind.core.holds import Overlay, PoolCells, overlays
from tradewind.core.judges import Judges
from tradewind.core.numbers import clip, ewma, median
from tradewind.core.outcomes import Kind, kind_of
from tradewind.core.pools import pool_keys
from tradewind.core.pressure import UNKNOWN, ClassMeans, load_pressure, named
from tradewind.core.projection import PushGate, attraction, weight_of
from tradewind.core.settings import ScoringSettings
from tradewind.core.speed import class_medians, step_law
from tradewind.core.track import CellTrack
from tradewind.model.cell import CellState
from tradewind.model.outcome import Outcome
from tradewind.model.routing import Event, ProbeOrder, WeightDecision, WeightRow
from tradewind.model.view import CellView, GridView, PathReading

FULL_TICK_S = 0.9  # scores move once a second; ticks in between only act on what has happened


class WeightScorer:
    """The recipe, as one gateway runs it over the cells of its view."""

    def __init__(self, settings: ScoringSettings) -> None:
        self._settings = settings
        self._prior = dict(settings.capacity_prior)
        self._tracks: dict[str, CellTrack] = {}
        self._pools: dict[str, PoolCells] = {}
        self._means: dict[str, ClassMeans] = {}
        self._judges = Judges(settings)
        self._gate = PushGate(settings.projection)
        self._events: list[Event] = []
        self._seen_view = False
        self._regroup = False
        self._urgent = False
        self._full_s = -math.inf

    # --- observations ---------------------------------------------------------------------------------------

    def observe_view(self, view: GridView | tuple[CellView, ...], now_s: float) -> bool:
        """Takes what is new in the view; a cell whose `CellView` is the same object costs nothing."""
        cells = view.cells if isinstance(view, GridView) else view
        urgent = False
        for cell in cells:
            track = self._tracks.get(cell.cell.cell_id)
            if track is None:
                urgent |= self._add(cell, now_s)
            elif track.view is not cell:
                urgent |= self._replace(track, cell, now_s)
        if len(cells) != len(self._tracks):
            urgent |= self._drop({cell.cell.cell_id for cell in cells})
        self._seen_view = self._seen_view or bool(cells)
        self._urgent |= urgent
        return urgent

    def observe_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """Evidence for verdicts, back-pressure, ramps, blindness and reachability."""
        for cell_id in outcome.attempted_cells[:-1]:
            attempted = self._tracks.get(cell_id)
            if attempted is not None and cell_id != outcome.cell_id:
                attempted.ejection.on_retried(now_s)
        track = self._tracks.get(outcome.cell_id or "")
        kind = kind_of(outcome)
        if track is None or kind is Kind.IGNORED:
            return False
        if kind is Kind.BACKPRESSURE:
            track.backpressure.on_refused(outcome.retry_after_s, self._settings.backpressure, now_s)
            track.dirty = True
            return True
        self._note(track, kind, outcome, now_s)
        changed = self._judges.on_outcome(track.cell_id, kind, outcome, now_s)
        self._urgent |= changed
        return changed or kind is Kind.UNREACHED or self._judges.wants_probe

    def observe_path(self, reading: PathReading, now_s: float) -> bool:
        """RTT, jitter and reachability as this gateway measures them."""
        track = self._tracks.get(reading.cell_id)
        if track is None:
            return False
        track.path.update(reading, self._settings.signals, now_s)
        before = track.ejection.unreachable
        track.ejection.on_path(reachable=reading.reachable, now_s=now_s)
        return track.ejection.unreachable != before

    def observe_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """The answer to one of the decision's probes."""
        changed = self._judges.on_probe(cell_id, order, status, now_s)
        self._urgent |= changed
        return changed or self._judges.wants_probe

    def _note(self, track: CellTrack, kind: Kind, outcome: Outcome, now_s: float) -> None:
        if kind is Kind.UNREACHED:
            track.ejection.on_unreached(now_s)
        else:
            track.ejection.on_answered()
        if kind in (Kind.UNREACHED, Kind.FAILURE):
            track.evidence.on_failed(now_s)
        if kind is Kind.SERVED:
            track.ramp.on_served(now_s)
            track.evidence.on_served(outcome.ttft_s, now_s)
            pool = self._pools.get(track.pool)
            if pool is not None:
                pool.longest.on_request(
                    request_bytes=outcome.request_bytes,
                    prompt_tokens=outcome.prompt_tokens,
                    completion_tokens=outcome.completion_tokens,
                    now_s=now_s,
                )

    # --- membership -----------------------------------------------------------------------------------------

    def _add(self, cell: CellView, now_s: float) -> bool:
        track = CellTrack(cell)
        self._tracks[cell.cell.cell_id] = track
        track.weight = self._settings.projection.best
        if self._seen_view and track.ready:
            track.ramp.begin(now_s)
        self._regroup = True
        track.take_telemetry(now_s, self._settings)
        return track.ready

    def _replace(self, track: CellTrack, cell: CellView, now_s: float) -> bool:
        old, track.view = track.view, cell
        capabilities, before = cell.cell.capabilities, old.cell.capabilities
        if cell.incarnation != old.incarnation or capabilities.max_model_len != before.max_model_len:
            self._forget(track, now_s)
        moved = cell.state is not old.state
        if moved and cell.state is CellState.READY and old.state in (CellState.LOADING, CellState.FAULTED):
            track.ramp.begin(now_s)
            self._forget(track, now_s)
        if moved or capabilities != before:
            self._regroup = True
        restarts = track.window.restarts
        track.take_telemetry(now_s, self._settings)
        if track.window.restarts != restarts:
            self._forget(track, now_s)
        if cell.silent != old.silent:
            track.dirty = True
        alarming = bool(track.symptoms) and track.alerts.alert is None
        return moved or alarming or cell.cell.address != old.cell.address

    def _forget(self, track: CellTrack, now_s: float) -> None:
        """A new engine: what the old one did is no evidence."""
        self._judges.forget(track.cell_id, now_s)
        track.ejection.forget()

    def _drop(self, present: set[str]) -> bool:
        gone = [cell_id for cell_id in self._tracks if cell_id not in present]
        for cell_id in gone:
            track = self._tracks.pop(cell_id)
            self._judges.forget(cell_id, 0.0)
            self._regroup |= track.ready
        return bool(gone)

    def _group(self) -> None:
        """Sorts the READY cells into pools and classes; class means start over from what their members know."""
        ready = sorted((track for track in self._tracks.values() if track.ready), key=lambda track: track.cell_id)
        keys = pool_keys(track.view.cell.capabilities.models for track in ready)
        longest = {key: pool.longest for key, pool in self._pools.items()}
        self._pools, self._means = {}, {}
        for track in ready:
            capabilities = track.view.cell.capabilities
            track.pool = keys[capabilities.models]
            track.speed_class = f"{track.pool}|{capabilities.hardware or ''}"
            track.law = step_law(capabilities.hardware)
            prior = self._prior.get(track.cell_id) or 1.0
            track.capacity = clip(prior, self._settings.projection.capacity_min, self._settings.projection.capacity_max)
            if track.pool not in self._pools:
                kept = longest.get(track.pool) or LongestPrompt(self._settings.capability)
                self._pools[track.pool] = PoolCells(longest=kept)
            self._pools[track.pool].cells.append(track)
            means = self._means.setdefault(track.speed_class, ClassMeans())
            means.members += 1
            means.replace(UNKNOWN, track.counted)
        self._judges.set_cells(ready)
        self._regroup = False
        self._urgent = True

    # --- the tick -------------------------------------------------------------------------------------------

    def tick(self, now_s: float, rng: Random) -> WeightDecision:
        """Weights, events and probes of now."""
        if self._regroup:
            self._group()
        self._urgent |= self._judges.tick(now_s)
        self._take_judgements(now_s)
        full = now_s - self._full_s >= FULL_TICK_S
        dt_s = now_s - self._full_s if full else 0.0
        self._refresh(now_s, full=full)
        self._score(now_s, dt_s=dt_s, full=full)
        if full:
            self._full_s = now_s
        rows: list[WeightRow] = []
        for _, pool in sorted(self._pools.items()):
            rows += self._project(pool, now_s, full=full)
        rows.sort(key=lambda row: row.cell_id)
        weights = {row.cell_id: row.weight for row in rows if not row.drained}
        push = self._gate.decide(weights, now_s, urgent=self._urgent)
        self._urgent = False
        events, self._events = tuple(self._events), []
        return WeightDecision(rows=tuple(rows), push=push, events=events, probes=tuple(self._judges.orders(rng, now_s)))

    def _refresh(self, now_s: float, *, full: bool) -> None:
        """Signals of the cells that have news (all of them once a second), kept in step with the class means."""
        for pool in self._pools.values():
            for track in pool.cells:
                if full or track.dirty:
                    track.refresh(now_s, self._settings)
                    if track.signals != track.counted:
                        self._means[track.speed_class].replace(track.counted, track.signals)
                        track.counted = track.signals
                    track.moved = True

    def _score(self, now_s: float, *, dt_s: float, full: bool) -> None:
        settings = self._settings
        medians: dict[str, float] = {}
        if full:
            medians = class_medians(
                (track.speed_class, track.work.rate) for pool in self._pools.values() for track in pool.cells
            )
        half_life_s = settings.signals.pressure_half_life_s
        for pool in self._pools.values():
            for track in pool.cells:
                if full or track.pressure is None:
                    load = load_pressure(track.signals, self._means[track.speed_class], track.own_means)
                    if load is not None:
                        track.pressure = ewma(track.pressure, load, dt_s=dt_s, half_life_s=half_life_s)
                    work = track.work.update(medians.get(track.speed_class), settings.speed, min(dt_s, 10.0))
                    track.speed = min(work, track.clock.value(settings.speed, now_s))
                if full or track.moved:
                    self._attract(track, now_s)
                    track.moved = False

    def _attract(self, track: CellTrack, now_s: float) -> None:
        settings = self._settings
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
        found = overlays(pool, self._judges.holds(), self._settings, now_s, full=full)
        self._events += found.events
        self._urgent |= found.changed
        blind = [track for track in pool.cells if track.is_blind]
        observer_blind = len(blind) > self._settings.blind.observer_share * len(pool.cells)
        best = max((track.attraction for track in pool.cells if not track.is_blind), default=0.0)
        seeing: list[int] = []
        for track in pool.cells:
            is_blind = track.is_blind
            if track.blind.update(blind=is_blind, weight=track.weight, now_s=now_s):
                self._event(now_s, "cell.blind" if is_blind else "cell.seen", track)
            if not is_blind and not observer_blind:
                track.weight = weight_of(track.attraction, best, self._settings.projection)
                seeing.append(track.weight)
        if blind and not observer_blind:
            self._weigh_blind(pool, blind, seeing, now_s)
        if observer_blind != pool.observer_blind:
            pool.observer_blind = observer_blind
            name = "observer.blind" if observer_blind else "observer.seeing"
            detail = (
                f"{len(blind)} of {len(pool.cells)} cells without telemetry: weights kept" if observer_blind else ""
            )
            self._events.append(Event(at_s=now_s, name=name, cell_id=None, detail=detail))
        return [self._row(track, found.by_cell.get(track.cell_id), full=full) for track in pool.cells]

    def _weigh_blind(self, pool: PoolCells, blind: list[CellTrack], seeing: list[int], now_s: float) -> None:
        span_s = self._settings.blind.proof_s
        ttfts = [
            ttft_s for track in pool.cells if not track.is_blind for ttft_s in track.evidence.recent(span_s, now_s)
        ]
        middle, pool_ttft_s = median(seeing), median(ttfts)
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

    def _row(self, track: CellTrack, overlay: Overlay | None, *, full: bool) -> WeightRow:
        weight = track.weight
        drained, reason = False, ""
        if overlay is not None:
            weight = min(weight, overlay.cap)
            drained, reason = overlay.drained, overlay.reason
        old = track.row
        same = old is not None and old.weight == weight and old.drained == drained and old.reason == reason
        if old is not None and same and not full:
            return old
        track.row = WeightRow(
            cell_id=track.cell_id,
            weight=weight,
            pressure=track.pressure,
            speed=track.speed,
            capacity=track.capacity,
            ramp=track.ramp_value,
            backpressure=track.backpressure_value,
            blind=track.is_blind,
            drained=drained,
            reason=reason,
            signals=named(track.signals),
            flags=track.flags,
        )
        return track.row

    def _take_judgements(self, now_s: float) -> None:
        for event in self._judges.take_events():
            self._events.append(event)
            track = self._tracks.get(event.cell_id or "")
            if track is not None and event.name.endswith(".cleared"):
                track.ramp.begin(now_s, linear_s=self._settings.verdicts.ramp_s)
                track.dirty = True

    def _event(self, now_s: float, name: str, track: CellTrack) -> None:
        self._events.append(Event(at_s=now_s, name=name, cell_id=track.cell_id, detail=track.view.reason))
