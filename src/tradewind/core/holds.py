"""What overrides a cell's weight: ejection, verdict, stated limit, alert; and how much of a pool that may take."""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.core.alerts import Symptom
from tradewind.core.capability import LongestPrompt, too_small
from tradewind.core.judges import Held
from tradewind.core.numbers import median
from tradewind.core.settings import ScoringSettings
from tradewind.core.track import CellTrack
from tradewind.core.verdicts import Phase
from tradewind.model.routing import Event, WeightRow


@dataclass(frozen=True, slots=True)
class Overlay:
    """The strongest thing that holds one cell down."""

    cap: int
    drained: bool
    reason: str
    short: bool = False  # only prompts over its stated limit are the trouble
    refuses: tuple[tuple[str, int], ...] = ()  # only requests of a model from so many bytes on are


@dataclass(slots=True)
class PoolCells:
    """The READY cells of one pool, sorted by id."""

    longest: LongestPrompt
    cells: list[CellTrack] = field(default_factory=list)
    observer_blind: bool = False
    cut_off: bool = False  # more cells look unreachable than can be believed
    small: dict[str, str] = field(default_factory=dict)  # cells left out for a stated limit, and why
    relimit: bool = True  # somebody's stated limit is news: look at them in the next tick, whatever it is
    alarming: bool = False  # a cell has symptoms or an alert
    watched: dict[str, CellTrack] = field(default_factory=dict)  # cells with any sign of being unreachable
    by_cell: dict[str, Overlay] = field(default_factory=dict)  # what holds cells down, as of the last tick
    best: float = 0.0
    rows: list[WeightRow] = field(default_factory=list)

    def join(self, track: CellTrack) -> None:
        """A cell has become READY."""
        insort(self.cells, track, key=_cell_id)
        self.relimit = True
        self.rows.clear()

    def leave(self, track: CellTrack) -> None:
        """A cell is READY no more."""
        index = bisect_left(self.cells, track.cell_id, key=_cell_id)
        assert self.cells[index] is track
        del self.cells[index]
        self.watched.pop(track.cell_id, None)
        self.small.pop(track.cell_id, None)
        self.rows.clear()


def _cell_id(track: CellTrack) -> str:
    return track.cell_id


@dataclass(slots=True)
class Found:
    """Overlays of one pool and what happened on the way."""

    by_cell: dict[str, Overlay] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    changed: bool = False
    touched: list[CellTrack] = field(default_factory=list)  # cells whose ramp has begun


def overlays(
    pool: PoolCells, verdicts: Mapping[str, Held], settings: ScoringSettings, now_s: float, *, full: bool
) -> Found:
    """All overlays of a pool. Removal never takes the last cell; judgement (verdict, alert) at most a third."""
    found = Found()
    _eject(pool, settings, found, now_s)
    if full or pool.relimit:
        _stated_limits(pool, settings, found, now_s)
        pool.relimit = False
    for cell_id, why in pool.small.items():
        found.by_cell.setdefault(cell_id, Overlay(1, drained=True, reason=why, short=True))
    budget = _Budget(pool, found, settings)
    for track in pool.cells if verdicts else ():
        hold = verdicts.get(track.cell_id)
        if hold is not None and track.cell_id not in found.by_cell:
            if hold.phase is Phase.CANARY:
                cap = settings.verdicts.canary_weight
                found.by_cell[track.cell_id] = Overlay(cap, drained=False, reason=f"canary: {hold.reason}")
            else:
                out, why = budget.take(), f"verdict: {hold.reason}"
                found.by_cell[track.cell_id] = Overlay(1, drained=out, reason=why, refuses=hold.refuses if out else ())
    kv_alert = settings.signals.kv_alert_ratio
    for track in pool.cells if full or pool.alarming else ():
        if track.symptoms or track.alerts.alert is not None or (track.kv_max or 0.0) >= kv_alert:
            _alert(pool, track, budget, settings, found, now_s)
    pool.alarming = (
        any(track.symptoms or track.alerts.alert is not None for track in pool.cells) if full else pool.alarming
    )
    found.changed = found.by_cell.keys() != pool.by_cell.keys()
    pool.by_cell = found.by_cell
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
    watched = [track for _, track in sorted(pool.watched.items()) if not track.ejection.quiet]
    if len(watched) < len(pool.watched):
        pool.watched = {track.cell_id: track for track in watched}
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
                found.touched.append(track)
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
    kv = track.kv_max
    if kv is not None and kv >= settings.signals.kv_alert_ratio and not _pool_is_full(pool, settings):
        symptoms.append(Symptom("kv", f"KV cache {kv:.2f} full"))
    interval_s = track.view.telemetry.gpu_interval_s
    promised = interval_s is None or interval_s <= settings.alerts.interval_max_s
    was = track.alerts.alert
    change = track.alerts.settle(symptoms, promised=promised, settings=settings.alerts, now_s=now_s)
    alert = track.alerts.alert
    if change == "cleared" and was is not None:
        track.ramp.begin(now_s)
        found.touched.append(track)
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
    middle = median(track.kv for track in pool.cells if track.kv is not None)
    return middle is None or middle >= settings.alerts.kv_pool_median
