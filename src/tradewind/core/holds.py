"""What overrides a cell's weight: ejection, verdict, stated limit, alert; and how much of a pool that may take."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.core.alerts import Symptom
from tradewind.core.capability import LongestPrompt, too_small
from tradewind.core.settings import ScoringSettings
from tradewind.core.track import CellTrack
from tradewind.core.verdicts import Hold, Phase
from tradewind.model.routing import Event


@dataclass(slots=True)
class PoolCells:
    """The READY cells of one pool, sorted by id."""

    longest: LongestPrompt
    cells: list[CellTrack] = field(default_factory=list)
    observer_blind: bool = False
    cut_off: bool = False  # more cells look unreachable than can be believed
    small: dict[str, str] = field(default_factory=dict)  # cells left out for a stated limit, and why
    held_back: frozenset[str] = frozenset()  # cells under any overlay, to notice changes


@dataclass(frozen=True, slots=True)
class Overlay:
    """The strongest thing that holds one cell down."""

    cap: int
    drained: bool
    reason: str


@dataclass(slots=True)
class Found:
    """Overlays of one pool and what happened on the way."""

    by_cell: dict[str, Overlay] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    changed: bool = False


def overlays(
    pool: PoolCells, verdicts: Mapping[str, Hold], settings: ScoringSettings, now_s: float, *, full: bool
) -> Found:
    """All overlays of a pool. Removal never takes the last cell; judgement (verdict, alert) at most a third."""
    found = Found()
    _eject(pool, settings, found, now_s)
    if full:
        _stated_limits(pool, settings, found, now_s)
    for cell_id, why in pool.small.items():
        found.by_cell.setdefault(cell_id, Overlay(1, drained=True, reason=why))
    budget = _Budget(pool, found, settings)
    for track in pool.cells:
        hold = verdicts.get(track.cell_id) if verdicts else None
        if hold is not None and track.cell_id not in found.by_cell:
            if hold.phase is Phase.CANARY:
                cap = settings.verdicts.canary_weight
                found.by_cell[track.cell_id] = Overlay(cap, drained=False, reason=f"canary: {hold.reason}")
            else:
                found.by_cell[track.cell_id] = Overlay(1, drained=budget.take(), reason=f"verdict: {hold.reason}")
    for track in pool.cells:
        if track.symptoms or track.alerts.alert is not None or full:
            _alert(pool, track, budget, settings, found, now_s)
    held_back = frozenset(found.by_cell)
    found.changed = held_back != pool.held_back
    pool.held_back = held_back
    return found


class _Budget:
    """How many more cells of a pool may be held down by judgement, and whether as removal."""

    def __init__(self, pool: PoolCells, found: Found, settings: ScoringSettings) -> None:
        self._in = len(pool.cells) - len(found.by_cell)
        self._left = math.floor(settings.alerts.max_share * len(pool.cells) + 1e-9)
        self._min_others = settings.alerts.min_others

    @property
    def exhausted(self) -> bool:
        """No further alert may take effect."""
        return self._left <= 0

    def take(self) -> bool:
        """Uses one place; True when the cell may be removed rather than held at weight 1."""
        removable = self._left > 0 and self._in - 1 >= self._min_others
        self._left -= 1
        self._in -= removable
        return removable


def _eject(pool: PoolCells, settings: ScoringSettings, found: Found, now_s: float) -> None:
    watched = [track for track in pool.cells if not track.ejection.quiet]
    if not watched:
        pool.cut_off = False
        return
    bad = sum(1 for t in watched if t.ejection.ejected_s is not None or t.ejection.suspect(settings.ejection, now_s))
    allowed = bad <= settings.ejection.observer_share * len(pool.cells)
    if pool.cut_off == allowed:
        pool.cut_off = not allowed
        name = "observer.reached" if allowed else "observer.cut-off"
        found.events.append(
            Event(at_s=now_s, name=name, cell_id=None, detail=f"{bad} of {len(pool.cells)} unreachable")
        )
    for track in watched:
        if track.ejection.update(settings.ejection, now_s, allowed=allowed):
            out = track.ejection.ejected_s is not None
            name = "cell.ejected" if out else "cell.readmitted"
            found.events.append(Event(at_s=now_s, name=name, cell_id=track.cell_id, detail=track.ejection.reason))
            if not out:  # stays out for this tick: its ramp begins with the next
                track.ramp.begin(now_s, linear_s=settings.verdicts.ramp_s)
                track.dirty = True
            found.by_cell[track.cell_id] = Overlay(1, drained=True, reason=f"ejected: {track.ejection.reason}")
        elif track.ejection.ejected_s is not None:
            found.by_cell[track.cell_id] = Overlay(1, drained=True, reason=f"ejected: {track.ejection.reason}")


def _stated_limits(pool: PoolCells, settings: ScoringSettings, found: Found, now_s: float) -> None:
    limits = {track.cell_id: track.view.cell.capabilities.max_model_len for track in pool.cells}
    small = too_small(limits, pool.longest, settings.capability, now_s)
    for cell_id, why in small.items():
        if cell_id not in pool.small:
            found.events.append(Event(at_s=now_s, name="capability.short", cell_id=cell_id, detail=why))
    for cell_id in pool.small:
        if cell_id not in small:
            found.events.append(Event(at_s=now_s, name="capability.enough", cell_id=cell_id, detail=""))
    pool.small = small


def _alert(
    pool: PoolCells, track: CellTrack, budget: _Budget, settings: ScoringSettings, found: Found, now_s: float
) -> None:
    fresh = now_s - track.gpu_read_s <= settings.signals.stale_s
    symptoms = list(track.symptoms) if fresh else []
    reading = track.window.newest
    kv = reading.kv_fill_max_ratio if reading is not None else None
    if kv is not None and settings.signals.kv_alert_ratio <= kv <= 1.0 and not _pool_is_full(pool, settings):
        symptoms.append(Symptom("kv", f"KV cache {kv:.2f} full"))
    interval_s = track.view.telemetry.gpu_interval_s
    promised = interval_s is None or interval_s <= settings.alerts.interval_max_s
    was = track.alerts.alert
    change = track.alerts.settle(symptoms, promised=promised, settings=settings.alerts, now_s=now_s)
    alert = track.alerts.alert
    if change == "cleared" and was is not None:
        track.ramp.begin(now_s)
        track.dirty = True
        found.events.append(Event(at_s=now_s, name=f"alert.{was.cause}.cleared", cell_id=track.cell_id, detail=""))
        alert = was  # stays in force for this tick: the ramp begins with the next
    if change == "raised" and alert is not None:
        lead = "" if promised else "; GPU values change too rarely: lead not promised, set the exporter to 1 s"
        detail = alert.detail + lead
        found.events.append(Event(at_s=now_s, name=f"alert.{alert.cause}", cell_id=track.cell_id, detail=detail))
    if alert is None or track.cell_id in found.by_cell or budget.exhausted:
        return
    reason = f"alert {alert.cause}: {alert.detail}"
    found.by_cell[track.cell_id] = Overlay(1, drained=budget.take(), reason=reason)


def _pool_is_full(pool: PoolCells, settings: ScoringSettings) -> bool:
    fills = sorted(
        track.window.newest.kv_fill_ratio
        for track in pool.cells
        if track.window.newest is not None and track.window.newest.kv_fill_ratio is not None
    )
    return not fills or fills[len(fills) // 2] >= settings.alerts.kv_pool_median
