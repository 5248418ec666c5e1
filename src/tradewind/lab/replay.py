"""A captured picker again: everything it heard is given to a fresh one, and each decision is compared."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.core.pick.picker import Picker
from tradewind.core.pick.policies.own import path_of
from tradewind.core.pick.tape import Heard, OutOfOrderError, answer_kind, perform
from tradewind.core.prefix.index import PrefixIndex
from tradewind.gateway.pick.capture import Begin, CaptureError, Note, as_written, read_capture
from tradewind.model.decision import Decision, Refusal

MAX_SHOWN = 20  # differences that are kept; all are counted
_ANSWERS = (Heard.DECISION, Heard.REFUSAL)


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a replay found."""

    policy: str
    version: str  # of the gateway that wrote the capture
    notes: int = 0
    decisions: int = 0
    refusals: int = 0
    drawn: int = 0  # decisions among near ties
    different: int = 0
    differences: list[str] = field(default_factory=list)  # the first of them
    heard: dict[str, int] = field(default_factory=dict)  # notes by kind
    for_s: float = 0.0  # from the first note with a time to the last

    @property
    def equal(self) -> bool:
        """Whether there was something to compare, and all of it was equal."""
        return self.different == 0 and self.decisions + self.refusals > 0


def replay_file(path: Path) -> Replayed:
    """Raises OSError; CaptureError for what is no capture."""
    begin, notes = read_capture(path)
    return replay(begin, notes)


def replay(begin: Begin, notes: Iterable[Note]) -> Replayed:
    """Drive a fresh picker. Raises CaptureError where a note is out of place."""
    index, rng = PrefixIndex(), random.Random(begin.seed)
    if path_of(begin.policy):  # a capture is data: no code is run for it
        raise CaptureError(
            f"line 1: it was decided by {begin.policy}, and only the project's own policies are replayed"
        )
    try:
        picker = Picker(begin.settings, policy=begin.policy, index=index)
    except ValueError as error:
        raise CaptureError(f"line 1: {error}") from error
    found = Replayed(policy=begin.policy, version=begin.version)
    open_answer: Decision | Refusal | None = None
    first_s: float | None = None
    for number, note in enumerate(notes, start=2):
        found.notes += 1
        found.heard[note.kind.value] = found.heard.get(note.kind.value, 0) + 1
        if note.now_s:
            first_s = note.now_s if first_s is None else first_s
            found.for_s = note.now_s - first_s
        if (note.kind in _ANSWERS) is not (open_answer is not None):
            raise CaptureError(f"line {number}: {note.kind.value} does not follow on what was there before")
        if open_answer is not None:
            _compare(found, number, note, open_answer)
            open_answer = None
            continue
        try:
            open_answer = perform(picker, index, note.kind, note.now_s, note.value, rng)
        except OutOfOrderError as error:
            raise CaptureError(f"line {number}: {error}") from error
    return found


def _compare(found: Replayed, number: int, logged: Note, again: Decision | Refusal) -> None:
    """Floats are written so that they read back bit for bit, so equal texts are equal decisions."""
    names = Decision._fields if logged.kind is Heard.DECISION else ()
    was, now = logged.value, as_written(again)
    if logged.kind is Heard.DECISION:
        found.decisions += 1
        found.drawn += isinstance(again, Decision) and again.probability < 1.0
    else:
        found.refusals += 1
    if was == now and logged.kind is answer_kind(again):
        return
    found.different += 1
    if len(found.differences) < MAX_SHOWN:
        found.differences.append(f"line {number}: {_difference(names, was, now)}")


def _difference(names: Sequence[str], was: object, now: object) -> str:
    """The first field that differs, of two decisions; both, of anything else."""
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now) == len(names):
        name, old, new = next(field for field in zip(names, was, now, strict=True) if field[1] != field[2])
        return f"request {was[names.index('request_id')]}: {name} was {old!r:.160}, and is {new!r:.160}"
    return f"was {was!r:.200}, and is {now!r:.200}"
