"""What an outcome says of the cell that gave it: served, refused, failed, asked for less, or nothing (line 12)."""

from enum import Enum

from tradewind.model.outcome import Outcome


class Kind(Enum):
    """The meaning of one outcome for its cell."""

    SERVED = "served"
    REFUSAL = "refusal"  # the cell says the request is wrong; evidence only where its peers disagree
    FAILURE = "failure"  # the cell broke
    UNREACHED = "unreached"  # no connection, or reset before an answer
    BACKPRESSURE = "backpressure"
    IGNORED = "ignored"  # the client's or our own doing

    __hash__ = object.__hash__  # members are singletons; Enum's own hash is a call into Python, per request


_REFUSALS = frozenset({400, 404, 413, 422})
_FAILURES = frozenset({500, 502, 504})
_UNREACHED_FLAGS = frozenset({"UF", "UC", "LR", "UR", "UPE"})
_CELL_SLOW_FLAGS = frozenset({"UT", "SI"})
_OURS_FLAGS = frozenset({"UO", "UH", "NR", "NC", "DC", "RL", "UAEX", "DT", "OM"})


def kind_of(outcome: Outcome) -> Kind:
    """Classifies by response flags first, since a status that Envoy made up is not the engine's."""
    if outcome.synthetic or outcome.cell_id is None or outcome.client_cancelled:
        return Kind.IGNORED
    if outcome.flags:
        flags = set(outcome.flags.split(","))
        if flags & _OURS_FLAGS:
            return Kind.IGNORED
        if flags & _UNREACHED_FLAGS:
            return Kind.UNREACHED
        if flags & _CELL_SLOW_FLAGS:
            return Kind.FAILURE
    if outcome.stream_error_code is not None:
        return Kind.REFUSAL if outcome.stream_error_code in _REFUSALS else Kind.FAILURE
    if outcome.status == 200:
        empty = outcome.ttft_s is None and outcome.response_bytes == 0
        return Kind.FAILURE if empty else Kind.SERVED
    return kind_of_status(outcome.status)


def kind_of_status(status: int) -> Kind:
    """The same for a bare status, as a probe brings it; 0 is no answer."""
    if 200 <= status < 300:
        return Kind.SERVED
    if status in _REFUSALS:
        return Kind.REFUSAL
    if status in _FAILURES:
        return Kind.FAILURE
    if status in (429, 503):
        return Kind.BACKPRESSURE
    return Kind.UNREACHED if status == 0 else Kind.IGNORED


def kind_of_attempt(reason: str) -> Kind:
    """An attempt that failed before another cell was tried: Envoy's flags, or the engine's status as digits.

    Neither a status nor a flag ("0") is an attempt that Envoy gave up since another one had won.
    """
    if reason == "0":
        return Kind.IGNORED
    if reason.isdigit():
        return kind_of_status(int(reason))
    return Kind.UNREACHED if not reason or set(reason.split(",")) & _UNREACHED_FLAGS else Kind.IGNORED
