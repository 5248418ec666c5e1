"""All verdict machines of one gateway: one per model name and kind of error."""

from collections.abc import Collection, Iterable, Iterator
from random import Random
from typing import NamedTuple

from tradewind.core.memory import JudgeMemory
from tradewind.core.outcomes import Kind
from tradewind.core.settings import ScoringSettings
from tradewind.core.track import CellTrack
from tradewind.core.verdicts import Judge, Phase
from tradewind.model.outcome import Outcome
from tradewind.model.routing import Event, ProbeOrder

MAX_MODELS = 1024  # names come from the grid's own cells; an unknown one is filed under its cell's pool


class Held(NamedTuple):
    """The verdicts that one cell is under, as one."""

    phase: Phase
    reason: str
    refuses: tuple[tuple[str, int], ...] = ()  # (model, bytes): all that it is held for is refusals from these sizes on


def _both(first: Held, second: Held) -> Held:
    """The stricter of two, or what both are about."""
    if Phase.CANARY in (first.phase, second.phase):
        return second if first.phase is Phase.CANARY else first
    if first.refuses and second.refuses:
        return second._replace(refuses=first.refuses + second.refuses)
    return first if second.refuses else second


class Judges:
    """Routes outcomes and probe answers to the right judge and gathers what they say."""

    def __init__(self, settings: ScoringSettings) -> None:
        self._settings = settings
        self._pairs: dict[str, tuple[Judge, Judge]] = {}  # model -> judges of failures and of refusals
        self._cells: dict[str, tuple[str, ...]] = {}  # model -> READY cells that serve it
        self._ready: list[CellTrack] = []
        self._holds: dict[str, Held] | None = None

    @property
    def wants_probe(self) -> bool:
        """An experiment waits for its next probe."""
        return any(judge.experiment is not None and judge.experiment.asked is None for judge in self._all())

    def set_cells(self, ready: list[CellTrack]) -> None:
        """The READY cells; sorted by model only when somebody asks."""
        self._ready = ready
        self._cells.clear()

    def _cells_of(self, model: str) -> tuple[str, ...]:
        cells = self._cells.get(model)
        if cells is None:
            cells = tuple(
                track.cell_id
                for track in self._ready
                if model in track.view.cell.capabilities.models or not track.view.cell.capabilities.models
            )
            if len(self._cells) < MAX_MODELS:
                self._cells[model] = cells
        return cells

    def on_outcome(self, track: CellTrack, kind: Kind, outcome: Outcome, now_s: float) -> bool:
        """Counts one client request; True when a verdict changed."""
        models = track.view.cell.capabilities.models
        model = outcome.model if outcome.model is not None and outcome.model in models else (*models, "")[0]
        pair = self._pairs.get(model) or self._pair(model)
        if pair is None:
            return False
        failure, refusal = pair
        cell_id, size = track.cell_id, outcome.request_bytes
        if kind is Kind.SERVED:
            changed = failure.on_served(cell_id, size, now_s)
            changed |= refusal.on_served(cell_id, size, now_s)
        elif kind is Kind.REFUSAL:
            changed = failure.on_served(cell_id, size, now_s)
            changed |= refusal.on_outcome(cell_id, size, error=True, cells=self._cells_of(model), now_s=now_s)
        else:
            changed = failure.on_outcome(cell_id, size, error=True, cells=self._cells_of(model), now_s=now_s)
        return self._noted(changed)

    def _pair(self, model: str) -> tuple[Judge, Judge] | None:
        """The judges of failures and of refusals of one model; None for one model too many."""
        if len(self._pairs) >= MAX_MODELS:
            return None
        settings = self._settings
        failure = Judge(model, Kind.FAILURE, settings.verdicts, probes=settings.probes)
        refusal = Judge(model, Kind.REFUSAL, settings.verdicts, probes=settings.probes)
        self._pairs[model] = failure, refusal
        return failure, refusal

    def _all(self) -> Iterator[Judge]:
        for pair in self._pairs.values():
            yield from pair

    def on_probe(self, cell_id: str, order: ProbeOrder, status: int, now_s: float) -> bool:
        """The answer to a probe; True when a verdict changed."""
        changed = False
        for judge in self._pairs.get(order.model, ()):
            changed |= judge.on_probe(cell_id, status, now_s=now_s)
        return self._noted(changed)

    def tick(self, now_s: float) -> bool:
        """Moves every case on; True when a verdict changed."""
        changed = False
        for judge in self._all():
            changed |= judge.tick(self._cells_of(judge.model), now_s)
        return self._noted(changed)

    def orders(self, rng: Random, now_s: float) -> list[ProbeOrder]:
        """All probes to send now."""
        orders: list[ProbeOrder] = []
        for judge in self._all():
            orders += judge.orders(self._cells_of(judge.model), rng, now_s)
        return orders

    def holds(self) -> dict[str, Held]:
        """Cell id -> the verdict it is under, the strictest where several are."""
        if self._holds is None:
            self._holds = {}
            for judge in self._all():
                for cell_id, hold in judge.holds.items():
                    if hold.phase is not Phase.PENDING:
                        refuses = ((judge.model, hold.refused_from),) if hold.refused_from else ()
                        held, known = Held(hold.phase, hold.reason, refuses), self._holds.get(cell_id)
                        self._holds[cell_id] = held if known is None else _both(known, held)
        return self._holds

    def forget(self, cell_id: str) -> None:
        """A new engine, or a cell that has left."""
        for judge in self._all():
            self._noted(judge.forget(cell_id))

    def remembered(self, now_s: float) -> tuple[JudgeMemory, ...]:
        """What outlives a restart, of every judge that has something to say."""
        memories = (judge.remembered(now_s) for _, pair in sorted(self._pairs.items()) for judge in pair)
        return tuple(memory for memory in memories if not memory.is_empty)

    def recall(self, memories: Iterable[JudgeMemory], cells: Collection[str], now_s: float) -> None:
        """Goes on from what was remembered of `cells`, before the first outcome."""
        for memory in memories:
            pair = self._pairs.get(memory.model) or self._pair(memory.model)
            for judge in pair or ():
                if judge.kind.value == memory.kind:
                    judge.recall(memory, cells, now_s)
        self._holds = None

    def take_events(self) -> list[Event]:
        """What the judges have to say since the last call."""
        events: list[Event] = []
        for judge in self._all():
            events += judge.events
            judge.events.clear()
        return events

    def _noted(self, changed: bool) -> bool:
        if changed:
            self._holds = None
        return changed
