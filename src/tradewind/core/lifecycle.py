"""The life of one cell as control sees it: evidence in, state and events out; `step` is the only way to change it.

| heartbeats | engine on loopback | gateways | state |
| fresh | serving, model listed, warmed up | - | READY |
| fresh | loading | - | LOADING |
| fresh | refused or dead | - | FAULTED at once |
| silent | ? | failing | FAULTED |
| silent | ? | succeeding, or no word | as it was, telemetry unknown |

A drain turns READY into DRAINING. Beats are ordered by (incarnation, sequence), never by clocks.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tradewind.model.cell import Cell, CellState
from tradewind.model.heartbeat import Evidence, Heartbeat
from tradewind.model.routing import Event
from tradewind.model.telemetry import Telemetry
from tradewind.model.view import PathReading

HEARTBEAT_TTL_S = 0.75
REPORT_TTL_S = 2.0  # a gateway's word counts for so long
TAKEOVER_S = 5.0  # after so long a silence an older agent that still beats is heard again
CONFLICT_REPEAT_S = 30.0
MAX_OLD_INCARNATIONS = 16
MAX_GATEWAYS = 64
MIN_FAILURES = 3  # requests of one report that must fail, and none succeed, to speak against a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat has arrived."""

    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A gateway has reported on its path to the cell."""

    gateway_id: str
    reading: PathReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed. `observer_blind`: all cells look dead at once, so silence proves nothing."""

    observer_blind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """An operator drains (`on`) or undrains the cell."""

    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """The cell is gone for good, unless a new agent brings it back."""


LifeEvent = Beat | Word | Tick | Drain | Terminate


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWord:
    """The newest word of one gateway."""

    gateway_id: str
    at_s: float
    failing: bool
    succeeding: bool
    in_flight: int = 0


_NO_TELEMETRY = Telemetry()


class Life(NamedTuple):
    """Everything control knows of one cell. Times are control's own monotonic clock.

    A tuple, since each heartbeat makes one and a frozen dataclass of so many fields costs several times as much.
    """

    cell: Cell
    ttl_s: float = HEARTBEAT_TTL_S  # without a heartbeat for longer, the cell is silent
    state: CellState = CellState.LOADING
    reason: str = "registered"
    incarnation: str = ""
    sequence: int = -1
    heard_s: float | None = None  # None: not yet, since this control started
    evidence: Evidence | None = None  # None: restored from a saved view
    serving: CellState = CellState.LOADING  # what the last evidence says, drains aside
    telemetry: Telemetry = _NO_TELEMETRY
    silent: bool = True
    drained: bool = False  # by an operator, here or at the agent
    gateways: tuple[GatewayWord, ...] = ()
    old: tuple[tuple[str, int], ...] = ()  # incarnations that were replaced, with their last sequence
    rival: str = ""  # a second live agent with this cell's id
    rival_said_s: float | None = None


def step(life: Life, event: LifeEvent, now_s: float) -> tuple[Life, tuple[Event, ...]]:
    """The state after `event` and what happened; idempotent for late, repeated and foreign beats."""
    match event:
        case Beat(heartbeat=heartbeat):
            after, events = _on_beat(life, heartbeat, now_s)
        case Word(gateway_id=gateway_id, reading=reading):
            after, events = _settle(with_word(life, gateway_id, reading, now_s), now_s, observer_blind=False), ()
        case Tick(observer_blind=observer_blind):
            after, events = _settle(life, now_s, observer_blind=observer_blind), ()
        case Drain(on=on):
            after, events = _settle(life._replace(drained=on), now_s, observer_blind=False), ()
        case Terminate():
            after, events = life._replace(state=CellState.TERMINATED, reason="terminated"), ()
    return after, events if after is life else (*events, *_changes(life, after, now_s))


def is_failing(life: Life, now_s: float) -> bool:
    """Some gateway fails to reach the cell and none succeeds."""
    fresh = [word for word in life.gateways if now_s - word.at_s <= REPORT_TTL_S]
    return any(word.failing for word in fresh) and not any(word.succeeding for word in fresh)


def is_silent(life: Life, now_s: float) -> bool:
    """No heartbeat within the TTL."""
    return life.heard_s is None or now_s - life.heard_s > life.ttl_s


def in_flight(life: Life, now_s: float) -> int:
    """Requests that gateways have outstanding at the cell, by reports that are still fresh."""
    return sum(word.in_flight for word in life.gateways if now_s - word.at_s <= REPORT_TTL_S)


# --- heartbeats -------------------------------------------------------------------------------------------------


def _on_beat(life: Life, beat: Heartbeat, now_s: float) -> tuple[Life, tuple[Event, ...]]:
    if beat.incarnation == life.incarnation:
        if beat.sequence <= life.sequence:
            return life, (_event(life, now_s, "heartbeat.late", f"sequence {beat.sequence} after {life.sequence}"),)
        return _accept(life, beat, now_s), ()
    silent_s = None if life.heard_s is None else now_s - life.heard_s
    old_sequence = dict(life.old).get(beat.incarnation)
    if old_sequence is not None:
        if beat.sequence <= old_sequence or (silent_s is not None and silent_s <= TAKEOVER_S):
            return life, (_event(life, now_s, "heartbeat.late", f"incarnation {beat.incarnation} was replaced"),)
    elif silent_s is not None and silent_s <= life.ttl_s:
        return _refuse_rival(life, beat, now_s)
    old = tuple(entry for entry in life.old if entry[0] != beat.incarnation)
    if life.incarnation:
        old = (*old, (life.incarnation, life.sequence))[-MAX_OLD_INCARNATIONS:]
    fresh = life._replace(old=old, rival="", rival_said_s=None, telemetry=_NO_TELEMETRY, gateways=())
    return _accept(fresh, beat, now_s), ()


def _refuse_rival(life: Life, beat: Heartbeat, now_s: float) -> tuple[Life, tuple[Event, ...]]:
    """A newcomer while the owner still beats: a quick restart becomes the owner within the TTL, a rival never does."""
    said_s = life.rival_said_s
    if life.rival == beat.incarnation and said_s is not None and now_s - said_s < CONFLICT_REPEAT_S:
        return life, (_event(life, now_s, "heartbeat.refused", beat.incarnation),)
    detail = f"{beat.cell.address} ({beat.incarnation}) refused, {life.cell.address} ({life.incarnation}) is alive"
    told = life._replace(rival=beat.incarnation, rival_said_s=now_s)
    return told, (_event(life, now_s, "heartbeat.conflict", detail),)


def _accept(life: Life, beat: Heartbeat, now_s: float) -> Life:
    serving, reason = _serving(beat.evidence)
    state = CellState.LOADING if life.state is CellState.TERMINATED else life.state
    heard = life._replace(
        cell=beat.cell,
        state=state,
        incarnation=beat.incarnation,
        sequence=beat.sequence,
        heard_s=now_s,
        evidence=beat.evidence,
        serving=serving,
        telemetry=beat.telemetry,
        reason=reason,
    )
    return _settle(heard, now_s, observer_blind=False)


def _serving(evidence: Evidence) -> tuple[CellState, str]:
    """What an agent's evidence says of its engine."""
    if evidence.reachable is False:
        return CellState.FAULTED, evidence.reason or "engine refuses connections"
    if evidence.reachable is None:
        return CellState.LOADING, evidence.reason or "engine not looked at yet"
    if not evidence.model_listed:
        return CellState.LOADING, evidence.reason or "model not listed"
    if not evidence.warmed_up:
        return CellState.LOADING, evidence.reason or "not warmed up"
    return CellState.READY, ""


# --- gateways ---------------------------------------------------------------------------------------------------


def with_word(life: Life, gateway_id: str, reading: PathReading, now_s: float) -> Life:
    """The life with a gateway's newest word noted and no verdict drawn from it yet."""
    broken = reading.failed >= MIN_FAILURES and not reading.succeeded
    word = GatewayWord(
        gateway_id=gateway_id,
        at_s=now_s,
        failing=reading.reachable is False or broken,
        succeeding=not broken and (reading.reachable is True or reading.succeeded > 0),
        in_flight=max(0, reading.in_flight),
    )
    others = tuple(
        old for old in life.gateways if old.gateway_id != gateway_id and now_s - old.at_s <= 10 * REPORT_TTL_S
    )
    return life._replace(gateways=(*others, word)[-MAX_GATEWAYS:])


# --- the verdict ------------------------------------------------------------------------------------------------


def _settle(life: Life, now_s: float, *, observer_blind: bool) -> Life:
    """The state that the evidence of now asks for."""
    silent = is_silent(life, now_s)
    if life.state is CellState.TERMINATED:
        return life._replace(silent=silent) if silent != life.silent else life
    state, reason = life.serving, life.reason
    if silent:
        if state is CellState.READY and _presumed_dead(life, now_s) and not observer_blind:
            state, reason = CellState.FAULTED, "no heartbeat and gateways fail to reach it"
        elif state is CellState.READY:
            reason = "no heartbeat; telemetry unknown"
    elif state is CellState.READY:
        reason = ""
    draining = life.drained or (life.evidence is not None and life.evidence.draining)
    if state is CellState.READY and draining:
        state, reason = CellState.DRAINING, reason or "drained by an operator"
    if (state, reason, silent) == (life.state, life.reason, life.silent):
        return life
    return life._replace(state=state, reason=reason, silent=silent)


def _presumed_dead(life: Life, now_s: float) -> bool:
    """Of a silent cell. Once presumed so, only a success (or a heartbeat) brings it back, not the lack of news."""
    if life.state is not CellState.FAULTED:
        return is_failing(life, now_s)
    return not any(word.succeeding for word in life.gateways if now_s - word.at_s <= REPORT_TTL_S)


def _changes(before: Life, after: Life, now_s: float) -> tuple[Event, ...]:
    events: list[Event] = []
    if after.state is not before.state:
        detail = f"{before.state.value} -> {after.state.value}" + (f": {after.reason}" if after.reason else "")
        events.append(_event(after, now_s, f"cell.{after.state.value}", detail))
    if after.silent != before.silent and before.heard_s is not None:
        events.append(_event(after, now_s, "cell.silent" if after.silent else "cell.heard", after.reason))
    return tuple(events)


def _event(life: Life, now_s: float, name: str, detail: str) -> Event:
    return Event(at_s=now_s, name=name, cell_id=life.cell.cell_id, detail=detail)
