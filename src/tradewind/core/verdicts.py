"""Finds the cell that refuses or breaks what its peers serve, and lets it back when probes pass (lines 12-15).

One `Judge` per model name and kind of error. Two ways to a verdict: the likelihood ratio over what clients sent, and,
as soon as one refusal is seen, an experiment: the refused shape goes as a probe to the suspect and, if it refuses
again, to one peer; only when the peer serves it is the suspect guilty. The experiment costs at most one prefill and
saves the second and third refusal that statistics need.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random

from tradewind.core.evidence import Evidence
from tradewind.core.memory import MAX_REASON_CHARS, MAX_ROWS, JudgeMemory, Record, Verdict
from tradewind.core.outcomes import Kind, kind_of_status
from tradewind.core.settings import VerdictSettings
from tradewind.model.routing import Event, ProbeOrder

JUDGE_GAP_S = 0.02
CHEAP_ERRORS = 32


class Phase(Enum):
    """Where a case against one cell stands."""

    PENDING = "pending"  # nearly proven; stands if still so after `later_s`
    HELD = "held"  # no traffic (or weight 1); waits for probes
    CANARY = "canary"  # a little real traffic, where probes prove nothing


@dataclass(slots=True)
class Hold:
    """A case against one cell."""

    phase: Phase
    since_s: float
    reason: str
    request_bytes: int  # the largest refused: a cell is well when it serves all of it
    refused_from: int = 0  # bytes, where size explains the refusals; 0 = it does not
    statistical: bool = True  # open to retro-release while young
    passes: int = 0
    next_probe_s: float = 0.0
    probe_sent_s: float | None = None
    hold_s: float = 0.0  # canary mode: how long to stay held
    by_canary: bool = False


@dataclass(slots=True)
class Experiment:
    """The active comparison of a suspect with one peer."""

    suspect: str
    request_bytes: int
    since_s: float
    refusals: int = 0  # of the suspect so far; after `experiment_refusals` a peer is asked
    asked: str | None = None  # the cell whose answer is awaited


@dataclass(slots=True)
class _Past:
    """What is remembered of a cell between cases."""

    released_s: float = float("-inf")
    misled: bool = False  # probes passed and clients were refused again
    canary_hold_s: float = 0.0
    experiment_s: float = float("-inf")  # newest experiment
    experiment_gap_s: float = 0.0
    judged_s: float = float("-inf")
    exonerated_s: float = float("-inf")  # newest experiment in which it served what it had refused


@dataclass(slots=True)
class Judge:
    """All cases of one model and one kind of error. `kind` is REFUSAL or FAILURE."""

    model: str
    kind: Kind
    settings: VerdictSettings
    probes: bool
    evidence: Evidence = field(init=False)
    holds: dict[str, Hold] = field(default_factory=dict)
    past: dict[str, _Past] = field(default_factory=dict)
    experiment: Experiment | None = None
    largest: dict[str, int] = field(default_factory=dict)  # cell -> largest request with an error
    events: list[Event] = field(default_factory=list)
    unjudged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.settings, by_size=self.kind is Kind.REFUSAL)

    def held(self) -> frozenset[str]:
        """Cells under a verdict."""
        return frozenset(cell_id for cell_id, hold in self.holds.items() if hold.phase is not Phase.PENDING)

    def on_outcome(
        self, cell_id: str, request_bytes: int, *, error: bool, cells: Collection[str], now_s: float
    ) -> bool:
        """Counts one client request; True when a verdict changed. `cells`: the READY cells of this model."""
        if not error:
            return self.on_served(cell_id, request_bytes, now_s)
        self.evidence.add(cell_id, request_bytes, error=True, now_s=now_s)
        hold = self.holds.get(cell_id)
        if hold is not None and hold.phase is not Phase.PENDING:
            return self._on_held_outcome(cell_id, hold, request_bytes, error=True, now_s=now_s)
        self.largest[cell_id] = max(request_bytes, self.largest.get(cell_id, 0))
        released = self._release_common(cells, now_s)
        past = self.past.setdefault(cell_id, _Past())
        if now_s - past.judged_s >= JUDGE_GAP_S or self.evidence.errors_of(cell_id) <= CHEAP_ERRORS:
            past.judged_s = now_s
            if self._judge(cell_id, cells, now_s):
                return True
        else:
            self.unjudged.add(cell_id)  # in a storm of errors the tick judges
        self._consider_experiment(cell_id, request_bytes, cells, now_s)
        return released

    def on_served(self, cell_id: str, request_bytes: int, now_s: float) -> bool:
        """Counts one client request without an error of this kind; True when a verdict changed."""
        self.evidence.add(cell_id, request_bytes, error=False, now_s=now_s)
        hold = self.holds.get(cell_id) if self.holds else None
        if hold is None or hold.phase is not Phase.CANARY:
            return False
        return self._on_held_outcome(cell_id, hold, request_bytes, error=False, now_s=now_s)

    def on_probe(self, cell_id: str, status: int, *, now_s: float) -> bool:
        """An answer to one of `orders`; True when a verdict changed."""
        answer = kind_of_status(status)
        hold = self.holds.get(cell_id)
        if hold is not None and hold.phase is Phase.HELD and hold.probe_sent_s is not None:
            return self._on_recovery_probe(cell_id, hold, answer, now_s)
        if self.experiment is not None and self.experiment.asked == cell_id:
            return self._on_experiment(self.experiment, cell_id, answer, now_s)
        return False

    def tick(self, cells: Collection[str], now_s: float) -> bool:
        """Lets pending cases stand or fall, moves canaries on, drops lost probes; True when a verdict changed."""
        self.evidence.expire(now_s)
        changed = False
        for cell_id in sorted(self.unjudged - self.held()):
            changed |= self._judge(cell_id, cells, now_s)
        self.unjudged.clear()
        for cell_id, hold in list(self.holds.items()):
            if hold.phase is Phase.PENDING and now_s - hold.since_s >= self.settings.later_s:
                del self.holds[cell_id]
                changed |= self._judge(cell_id, cells, now_s, later=True)
            elif hold.phase is Phase.HELD and hold.by_canary and now_s - hold.since_s >= hold.hold_s:
                hold.phase, hold.passes, hold.since_s = Phase.CANARY, 0, now_s
                changed = True
            elif hold.probe_sent_s is not None and now_s - hold.probe_sent_s > self.settings.probe_timeout_s:
                hold.probe_sent_s = None
        if self.experiment is not None and now_s - self.experiment.since_s > self.settings.probe_timeout_s:
            self.experiment = None
        return changed

    def orders(self, cells: Collection[str], rng: Random, now_s: float) -> list[ProbeOrder]:
        """Probes to send now; each is asked for once."""
        orders: list[ProbeOrder] = []
        experiment = self.experiment
        if experiment is not None and experiment.asked is None:
            peers = sorted(cell for cell in cells if cell != experiment.suspect and cell not in self.holds)
            if peers:  # another peer each time: one peer may have the same fault
                experiment.asked = rng.choice(peers) if self._confirmed(experiment) else experiment.suspect
                orders.append(self._order(experiment.asked, experiment.request_bytes))
            else:
                self.experiment = None
        for cell_id, hold in sorted(self.holds.items()):
            due = hold.phase is Phase.HELD and not hold.by_canary and now_s >= hold.next_probe_s
            if due and hold.probe_sent_s is None:
                hold.probe_sent_s = now_s
                orders.append(self._order(cell_id, hold.request_bytes))
        return orders

    def forget(self, cell_id: str) -> bool:
        """A new engine or a changed limit clears every case against a cell."""
        self.evidence.clear(cell_id)
        self.past.pop(cell_id, None)
        self.largest.pop(cell_id, None)
        if self.experiment is not None and cell_id in (self.experiment.suspect, self.experiment.asked):
            self.experiment = None
        return self.holds.pop(cell_id, None) is not None

    def remembered(self, now_s: float) -> JudgeMemory:
        """Everything that outlives a restart, as ages; pending cases and experiments do not."""
        rates, recent = self.evidence.remembered(now_s)
        held = [(cell_id, hold) for cell_id, hold in sorted(self.holds.items()) if hold.phase is not Phase.PENDING]
        return JudgeMemory(
            model=self.model,
            kind=self.kind.value,
            verdicts=tuple(_verdict(cell_id, hold, now_s) for cell_id, hold in held[:MAX_ROWS]),
            records=tuple(self._record(cell_id, now_s) for cell_id in sorted(self.past)[:MAX_ROWS]),
            rates=rates,
            recent=recent,
        )

    def recall(self, memory: JudgeMemory, cells: Collection[str], now_s: float) -> None:
        """Goes on from what was remembered of `cells`; the next probe of a held cell is due after the usual pause."""
        self.evidence.recall(memory.rates, memory.recent, cells, now_s)
        for record in memory.records:
            if record.cell_id in cells:
                self.past[record.cell_id] = _Past(
                    released_s=_then(record.released_age_s, now_s),
                    misled=record.misled,
                    canary_hold_s=min(record.canary_hold_s, self.settings.canary_hold_max_s),
                    exonerated_s=_then(record.exonerated_age_s, now_s),
                )
                if record.largest_bytes:
                    self.largest[record.cell_id] = record.largest_bytes
        for verdict in memory.verdicts:
            if verdict.cell_id in cells:
                self.holds[verdict.cell_id] = Hold(
                    Phase.CANARY if verdict.canary else Phase.HELD,
                    now_s - verdict.age_s,
                    verdict.reason,
                    verdict.request_bytes,
                    verdict.refused_from,
                    statistical=verdict.statistical,
                    next_probe_s=now_s + self.settings.probe_interval_s,
                    hold_s=min(verdict.hold_s, self.settings.canary_hold_max_s),
                    by_canary=verdict.by_canary or not self.probes,
                )

    def _record(self, cell_id: str, now_s: float) -> Record:
        past = self.past[cell_id]
        return Record(
            cell_id=cell_id,
            misled=past.misled,
            canary_hold_s=past.canary_hold_s,
            released_age_s=_age(past.released_s, now_s),
            exonerated_age_s=_age(past.exonerated_s, now_s),
            largest_bytes=self.largest.get(cell_id, 0),
        )

    # --- statistics -----------------------------------------------------------------------------------------

    def _judge(self, cell_id: str, cells: Collection[str], now_s: float, *, later: bool = False) -> bool:
        case = self.evidence.case(cell_id, cells=len(cells), held=self.held())
        if case is None or case.errors < self.settings.min_errors:
            return False
        exonerated = now_s - self.past.setdefault(cell_id, _Past()).exonerated_s < self.settings.window_s
        bound = self.settings.likelihood_noisy if case.noisy or exonerated else self.settings.likelihood
        if case.likelihood < bound or case.concentration > self.settings.concentration_later:
            return False
        if case.concentration <= self.settings.concentration_now or later:
            reason = f"{case.errors} of its own: L {case.likelihood:.1f}, C {case.concentration:.3f}"
            self._hold(cell_id, reason, statistical=True, now_s=now_s)
            return True
        if cell_id not in self.holds:
            self.holds[cell_id] = Hold(Phase.PENDING, now_s, "", self.largest.get(cell_id, 1))
        return False

    def _release_common(self, cells: Collection[str], now_s: float) -> bool:
        """A young statistical verdict falls when the peers come to refuse the same."""
        changed = False
        for cell_id, hold in list(self.holds.items()):
            young = hold.phase is Phase.HELD and now_s - hold.since_s <= self.settings.release_window_s
            if not young or not hold.statistical:
                continue
            case = self.evidence.case(cell_id, cells=len(cells), held=self.held() - {cell_id})
            if case is None or case.concentration > self.settings.release_concentration:
                del self.holds[cell_id]
                self._event(now_s, "released", cell_id, "its peers refuse the same")
                changed = True
        return changed

    # --- experiment -----------------------------------------------------------------------------------------

    def _consider_experiment(self, cell_id: str, request_bytes: int, cells: Collection[str], now_s: float) -> None:
        past = self.past.setdefault(cell_id, _Past())
        gap_s = max(past.experiment_gap_s, self.settings.experiment_interval_s)
        if not self.probes or self.experiment is not None or past.misled or now_s - past.experiment_s < gap_s:
            return
        if len([peer for peer in cells if peer not in self.holds]) < 2:
            return
        past.experiment_s = now_s
        past.experiment_gap_s = min(self.settings.experiment_interval_max_s, 2 * gap_s)
        self.experiment = Experiment(cell_id, request_bytes, now_s)

    def _confirmed(self, experiment: Experiment) -> bool:
        return experiment.refusals >= self.settings.experiment_refusals

    def _on_experiment(self, experiment: Experiment, cell_id: str, answer: Kind, now_s: float) -> bool:
        if not self._confirmed(experiment):
            again = replace(experiment, since_s=now_s, refusals=experiment.refusals + 1, asked=None)
            self.experiment = again if answer is self.kind else None
            if answer is Kind.SERVED:
                self.past.setdefault(experiment.suspect, _Past()).exonerated_s = now_s
            return False
        self.experiment = None
        hold = self.holds.get(experiment.suspect)
        if answer is not Kind.SERVED or (hold is not None and hold.phase is not Phase.PENDING):
            return False
        reason = f"a probe of {experiment.request_bytes} bytes fails here and is served by {cell_id}"
        self._hold(experiment.suspect, reason, statistical=False, proven_bytes=experiment.request_bytes, now_s=now_s)
        return True

    # --- recovery -------------------------------------------------------------------------------------------

    def _hold(self, cell_id: str, reason: str, *, statistical: bool, now_s: float, proven_bytes: int = 0) -> None:
        past = self.past.setdefault(cell_id, _Past())
        past.experiment_gap_s = 0.0
        past.misled = past.misled or now_s - past.released_s < self.settings.relapse_s
        by_canary = past.misled or not self.probes
        if by_canary:
            cap_s = self.settings.canary_hold_max_s
            past.canary_hold_s = min(cap_s, 2 * past.canary_hold_s) or self.settings.canary_hold_s
        self.holds[cell_id] = Hold(
            Phase.HELD,
            now_s,
            reason,
            self.largest.get(cell_id, 1),
            self._refused_from(cell_id, proven_bytes),
            statistical=statistical,
            next_probe_s=now_s + self.settings.probe_interval_s,
            hold_s=past.canary_hold_s,
            by_canary=by_canary,
        )
        self._event(now_s, "", cell_id, reason)

    def _on_held_outcome(self, cell_id: str, hold: Hold, request_bytes: int, *, error: bool, now_s: float) -> bool:
        if hold.phase is not Phase.CANARY:
            return error and request_bytes < hold.refused_from and self._widened(cell_id, hold, now_s)
        if error:
            self._hold(cell_id, "the canary was refused", statistical=False, now_s=now_s)
            return True
        hold.passes += 1
        if hold.passes < self.settings.canary_successes:
            return False
        self._release(cell_id, "the canary was served", now_s)
        return True

    def _widened(self, cell_id: str, hold: Hold, now_s: float) -> bool:
        """A held cell refused something shorter: True when it is held for more than before."""
        past = self.past.setdefault(cell_id, _Past())
        if now_s - past.judged_s < JUDGE_GAP_S:
            return False
        past.judged_s = now_s
        if not self.evidence.guilty_below(cell_id, hold.refused_from, self.held()):
            return False
        wider = self._refused_from(cell_id)
        hold.refused_from = wider if wider < hold.refused_from else 0
        return True

    def _refused_from(self, cell_id: str, proven_bytes: int = 0) -> int:
        if not self.evidence.by_size:
            return 0
        return self.evidence.refused_from(cell_id, self.held(), proven_bytes=proven_bytes)

    def _on_recovery_probe(self, cell_id: str, hold: Hold, answer: Kind, now_s: float) -> bool:
        hold.probe_sent_s = None
        hold.passes = hold.passes + 1 if answer is Kind.SERVED else 0
        if hold.passes >= self.settings.probe_passes:
            self._release(cell_id, f"{hold.passes} probes of {hold.request_bytes} bytes served", now_s)
            return True
        wait_s = self.settings.probe_confirm_s if hold.passes else self.settings.probe_interval_s
        hold.next_probe_s = now_s + wait_s
        return False

    def _release(self, cell_id: str, reason: str, now_s: float) -> None:
        del self.holds[cell_id]
        self.evidence.clear(cell_id)
        self.largest.pop(cell_id, None)
        past = self.past.setdefault(cell_id, _Past())
        past.released_s = now_s
        self._event(now_s, "cleared", cell_id, reason)

    def _order(self, cell_id: str, request_bytes: int) -> ProbeOrder:
        return ProbeOrder(
            cell_id=cell_id, model=self.model, prompt_bytes=request_bytes, max_tokens=self.settings.probe_max_tokens
        )

    def _event(self, now_s: float, what: str, cell_id: str, detail: str) -> None:
        name = f"verdict.{self.kind.value}" + (f".{what}" if what else "")
        self.events.append(Event(at_s=now_s, name=name, cell_id=cell_id, detail=detail))


def _verdict(cell_id: str, hold: Hold, now_s: float) -> Verdict:
    return Verdict(
        cell_id=cell_id,
        age_s=max(0.0, now_s - hold.since_s),
        reason=hold.reason[:MAX_REASON_CHARS],
        request_bytes=hold.request_bytes,
        refused_from=hold.refused_from,
        statistical=hold.statistical,
        canary=hold.phase is Phase.CANARY,
        by_canary=hold.by_canary,
        hold_s=hold.hold_s,
    )


def _age(at_s: float, now_s: float) -> float | None:
    return max(0.0, now_s - at_s) if at_s > -math.inf else None


def _then(age_s: float | None, now_s: float) -> float:
    return -math.inf if age_s is None else now_s - age_s
