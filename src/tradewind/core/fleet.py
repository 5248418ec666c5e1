"""Which cells a scorer follows, and how they group into pools and classes as views come and go."""

from tradewind.core.capability import LongestPrompt
from tradewind.core.holds import PoolCells
from tradewind.core.judges import Judges
from tradewind.core.memory import Lengths
from tradewind.core.numbers import clip
from tradewind.core.pools import pool_keys
from tradewind.core.pressure import ClassMeans, Signals
from tradewind.core.settings import ScoringSettings
from tradewind.core.steplaw import step_law
from tradewind.core.track import CellTrack
from tradewind.model.cell import CellState
from tradewind.model.view import CellView


class Fleet:
    """Tracks by cell id; READY ones sorted into pools."""

    def __init__(self, settings: ScoringSettings, judges: Judges) -> None:
        self._settings = settings
        self._judges = judges
        self._prior = dict(settings.capacity_prior)
        self.tracks: dict[str, CellTrack] = {}
        self.pools: dict[str, PoolCells] = {}
        self.means: dict[str, ClassMeans] = {}
        self._regroup = True  # pools must be found anew: a cell is new, or serves other models
        self._moved = False  # a cell joined or left since the last settle
        self._seen_view = False
        self._recalled: dict[
            str, LongestPrompt
        ] = {}  # pool key -> lengths from before a restart, until the pool is there

    def remembered(self, now_s: float) -> tuple[Lengths, ...]:
        """The prompt lengths of every pool, for a restart."""
        found = (pool.longest.remembered(key, now_s) for key, pool in sorted(self.pools.items()))
        return tuple(lengths for lengths in found if lengths is not None)

    def recall(self, lengths: tuple[Lengths, ...], now_s: float) -> None:
        """Goes on from remembered lengths, before the first view."""
        settings = self._settings.capability
        self._recalled = {item.pool: LongestPrompt.recalled(item, settings, now_s) for item in lengths}

    def take(self, cells: tuple[CellView, ...], now_s: float) -> tuple[list[CellTrack], bool]:
        """Takes a view; (tracks to score at once, whether a tick should not wait)."""
        touched: list[CellTrack] = []
        urgent = False
        for cell in cells:
            track = self.tracks.get(cell.cell.cell_id)
            if track is None:
                touched.append(self._add(cell, now_s))
                urgent |= touched[-1].ready
            elif track.view is not cell:
                old = track.view
                urgent |= self._replace(track, cell, now_s)
                flagged = cell.telemetry.flags != old.telemetry.flags  # shown to operators, who wait for it
                if flagged or cell.silent != old.silent or cell.state is not old.state:
                    touched.append(track)
        if len(cells) != len(self.tracks):
            urgent |= self._drop({cell.cell.cell_id for cell in cells})
        self._seen_view = self._seen_view or bool(cells)
        return touched, urgent

    def settle(self) -> bool:
        """Brings pools up to date before a tick; True when a cell joined or left."""
        if self._regroup:
            self._group()
            self._regroup = False
            self._moved = True
        moved, self._moved = self._moved, False
        if moved:
            self._judges.set_cells([track for pool in self.pools.values() for track in pool.cells])
        return moved

    def update_means(self, now_s: float) -> None:
        """Class means of the signals of now."""
        members: dict[str, list[Signals]] = {}
        for pool in self.pools.values():
            for track in pool.cells:
                members.setdefault(track.speed_class, []).append(track.signals)
        for name, means in self.means.items():
            means.update(members.get(name, ()))
        span_s = self._settings.signals.own_mean_s
        for pool in self.pools.values():
            for track in pool.cells:
                if self.means[track.speed_class].members == 1:
                    track.own_means.update(track.signals, span_s=span_s, now_s=now_s)

    def watch(self, track: CellTrack) -> None:
        """Notes a cell with signs of being unreachable."""
        if not track.ejection.quiet and track.ready and track.pool in self.pools:
            self.pools[track.pool].watched[track.cell_id] = track

    def _add(self, cell: CellView, now_s: float) -> CellTrack:
        track = CellTrack(cell, weight=self._settings.projection.best)
        track.law = step_law(cell.cell.capabilities.hardware)
        limits = self._settings.projection
        track.capacity = clip(self._prior.get(track.cell_id) or 1.0, limits.capacity_min, limits.capacity_max)
        self.tracks[track.cell_id] = track
        if self._seen_view and track.ready:
            track.ramp.begin(now_s)
        self._regroup = True
        track.take_telemetry(now_s, self._settings)
        return track

    def _replace(self, track: CellTrack, cell: CellView, now_s: float) -> bool:
        old, track.view = track.view, cell
        capabilities, before = cell.cell.capabilities, old.cell.capabilities
        relimited = capabilities.max_model_len != before.max_model_len
        if cell.incarnation != old.incarnation or relimited:
            self._forget(track)
        if relimited and track.pool in self.pools:
            self.pools[track.pool].relimit = True
        if capabilities.models != before.models or capabilities.hardware != before.hardware:
            track.law = step_law(capabilities.hardware)
            self._regroup = True
        moved = cell.state is not old.state
        if moved:
            self._move(track, old.state, now_s)
        restarts = track.window.restarts
        track.take_telemetry(now_s, self._settings)
        if track.window.restarts != restarts:
            self._forget(track)
        alarming = bool(track.symptoms) and track.alerts.alert is None
        if alarming and track.ready and track.pool in self.pools:
            self.pools[track.pool].alarming = True
        return moved or alarming or relimited or cell.cell.address != old.cell.address

    def _move(self, track: CellTrack, before: CellState, now_s: float) -> None:
        if track.ready and before in (CellState.LOADING, CellState.FAULTED):
            track.ramp.begin(now_s)
            self._forget(track)
        pool = self.pools.get(track.pool)
        if self._regroup or pool is None:
            self._regroup = True
        elif track.ready:
            pool.join(track)
            self._moved = True
        elif before is CellState.READY:
            pool.leave(track)
            self._moved = True

    def _forget(self, track: CellTrack) -> None:
        """A new engine: what the old one did is no evidence."""
        self._judges.forget(track.cell_id)
        track.ejection.forget()

    def _drop(self, present: set[str]) -> bool:
        gone = [cell_id for cell_id in self.tracks if cell_id not in present]
        for cell_id in gone:
            del self.tracks[cell_id]
            self._judges.forget(cell_id)
        self._regroup = self._regroup or bool(gone)
        return bool(gone)

    def _group(self) -> None:
        """Sorts all cells into pools and classes anew; what a pool has learned stays with its key."""
        ordered = [track for _, track in sorted(self.tracks.items())]
        keys = pool_keys(track.view.cell.capabilities.models for track in ordered)
        longest = {key: pool.longest for key, pool in self.pools.items()}
        self.pools, self.means = {}, {}
        for track in ordered:
            capabilities = track.view.cell.capabilities
            track.pool = keys[capabilities.models]
            track.speed_class = f"{track.pool}|{capabilities.hardware or ''}"
            self.means.setdefault(track.speed_class, ClassMeans())
            if track.pool not in self.pools:
                kept = longest.get(track.pool) or self._recalled.pop(track.pool, None)
                kept = kept or LongestPrompt(self._settings.capability)
                self.pools[track.pool] = PoolCells(longest=kept)
            if track.ready:
                self.pools[track.pool].cells.append(track)
        for track in ordered:
            self.watch(track)
