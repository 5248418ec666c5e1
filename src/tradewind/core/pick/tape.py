"""Everything that enters a picker, in order, and what it decided: enough to drive a fresh one to the same decisions.

A tape hears each input as it comes. `perform` gives one heard input to another picker. What a decision depends on is
here and nowhere else: views, paths, weights, others' work, requests, first tokens, outcomes, the times of all of them,
and the seed of the stream that near ties are drawn from.
"""

from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, cast

from tradewind.core.prefix.index import PrefixIndex
from tradewind.model.decision import Decision, Refusal
from tradewind.model.request import Request

if TYPE_CHECKING:
    from tradewind.core.pick.picker import Picker


class Heard(StrEnum):
    """Kinds of notes, each with its value."""

    VIEW = "view"  # GridView
    PATH = "path"  # PathReading
    PRESSURE = "pressure"  # WeightRow, ...
    OTHERS = "others"  # cell id -> OthersLoad
    PLACED = "placed"  # Placed, ... of other gateways
    RENAMED = "renamed"  # None: blocks are hashed by another key
    REACH = "reach"  # cell id -> address
    UNROUTABLE = "unroutable"  # cell id, ...
    PROBE_SERVED = "probe_served"  # cell id, bytes and tokens of the prompt
    RECALL = "recall"  # LimitMemory, ...
    ORDER = "order"  # TuningOrder, or None
    CAPACITY = "capacity"  # cell id, blocks that the prefix index may keep of it; None = it has left
    PICK = "pick"  # Request; what was decided follows as the next note
    DECISION = "decision"  # Decision
    REFUSAL = "refusal"  # Refusal
    FIRST_TOKEN = "first_token"  # decision id
    SERVED_BY = "served_by"  # decision id, cell id
    FINISHED = "finished"  # decision id, Outcome
    RELEASE = "release"  # decision id
    EXPIRE = "expire"  # None


class Tape(Protocol):
    """Whoever keeps what a picker hears."""

    def note(self, kind: Heard, now_s: float, value: object) -> None:
        """One input at its time, before it takes effect; or an answer."""
        ...


class OutOfOrderError(ValueError):
    """A tape that no picker can have made."""


_INPUTS: dict[Heard, Callable[["Picker", float, Any], object]] = {
    Heard.VIEW: lambda picker, now_s, view: picker.observe_view(view, now_s),
    Heard.PATH: lambda picker, now_s, reading: picker.observe_path(reading, now_s),
    Heard.PRESSURE: lambda picker, now_s, rows: picker.observe_pressure(rows, now_s),
    Heard.OTHERS: lambda picker, now_s, loads: picker.observe_others(loads, now_s),
    Heard.PLACED: lambda picker, now_s, placed: picker.observe_placed(placed, now_s),
    Heard.RENAMED: lambda picker, now_s, _: picker.renamed(now_s),
    Heard.REACH: lambda picker, _, reach: picker.set_reach(reach),
    Heard.UNROUTABLE: lambda picker, _, cell_ids: picker.set_unroutable(frozenset(cell_ids)),
    Heard.PROBE_SERVED: lambda picker, now_s, told: picker.probe_served(told[0], told[1], told[2], now_s),
    Heard.ORDER: lambda picker, _, order: picker.set_order(order),
    Heard.RECALL: lambda picker, now_s, limits: picker.recall(limits, now_s),
    Heard.FIRST_TOKEN: lambda picker, now_s, decision_id: picker.first_token(decision_id, now_s),
    Heard.SERVED_BY: lambda picker, now_s, both: picker.served_by(both[0], both[1], now_s),
    Heard.FINISHED: lambda picker, now_s, both: picker.finished(both[0], both[1], now_s),
    Heard.RELEASE: lambda picker, now_s, decision_id: picker.release(decision_id, now_s),
    Heard.EXPIRE: lambda picker, now_s, _: picker.expire(now_s),
}


def perform(
    picker: "Picker", index: PrefixIndex, kind: Heard, now_s: float, value: object, rng: Random
) -> Decision | Refusal | None:
    """Let a picker hear one input; returns what it decides of a request, None of all else. Raises OutOfOrderError."""
    if kind is Heard.PICK:
        return picker.pick(cast("Request", value), now_s=now_s, rng=rng)
    if kind is Heard.CAPACITY:
        _keep(index, *cast("tuple[str, int | None]", value))
        return None
    if kind not in _INPUTS:
        raise OutOfOrderError("a decision without its request")
    _INPUTS[kind](picker, now_s, value)
    return None


def _keep(index: PrefixIndex, cell_id: str, blocks: int | None) -> None:
    if blocks is None:
        index.remove_cell(cell_id)
    else:
        index.set_capacity(cell_id, blocks)


def answer_kind(found: Decision | Refusal) -> Heard:
    """As what an answer is noted."""
    return Heard.DECISION if isinstance(found, Decision) else Heard.REFUSAL
