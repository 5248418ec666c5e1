"""What the picker decided for one request, and why.

A decision and its candidates are made for every request, so they are tuples; give their fields by name.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

SHOWN_TERMS = 3  # in a reason


class Candidate(NamedTuple):
    """One eligible cell with its cost; `terms` sum up to `cost_s`."""

    cell_id: str
    address: str  # "ip:port" as this gateway reaches the cell
    cost_s: float
    terms: tuple[tuple[str, float], ...] = ()  # term name -> seconds
    matched_tokens: int = 0  # of the prompt, believed to be in the cell's prefix cache
    slowness: float = 1.0  # learned; 1 = as its hardware class
    probability: float = 0.0  # of being drawn


class Decision(NamedTuple):
    """A cell for one request. `candidates` is ordered by cost, the chosen one is anywhere in it."""

    decision_id: str  # unique within one gateway process
    request_id: str
    policy: str
    cell_id: str
    address: str
    alternatives: tuple[str, ...] = ()  # cell ids to try next, best first
    cost_s: float = 0.0
    probability: float = 1.0  # of this choice, given everything the picker knew
    expected_ttft_s: float | None = None
    prompt_tokens: int = 0
    matched_tokens: int = 0  # predicted hit on the chosen cell
    candidates: tuple[Candidate, ...] = ()  # at most a handful, cheapest first
    excluded: tuple[tuple[str, str], ...] = ()  # cell id -> why it was not eligible; bounded

    @property
    def reason(self) -> str:
        """One line for people: why this cell and not the next. Worded when somebody asks."""
        chosen = next((candidate for candidate in self.candidates if candidate.cell_id == self.cell_id), None)
        other = next((candidate for candidate in self.candidates if candidate is not chosen), None)
        if chosen is None or other is None:
            return f"{self.cell_id}: the only cell that may serve it"
        if len(chosen.terms) < 2:
            return f"{self.cell_id}: by {self.policy} ({self.cost_s:g}; {other.cell_id} {other.cost_s:g})"
        largest = sorted(chosen.terms, key=_seconds, reverse=True)[:SHOWN_TERMS]
        parts = ", ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in largest if seconds)
        drawn = f"; drawn with chance {self.probability:.2f}" if self.probability < 1.0 else ""
        gap_ms = (other.cost_s - self.cost_s) * 1e3
        return f"{self.cell_id}: {self.cost_s * 1e3:.0f} ms ({parts}); {other.cell_id} {gap_ms:+.0f} ms{drawn}"


def _seconds(term: tuple[str, float]) -> float:
    return term[1]


class RefusalKind(StrEnum):
    """Why no cell was chosen."""

    UNKNOWN_MODEL = "unknown_model"  # no pool has this name: 404
    TOO_LONG = "too_long"  # every cell says that the prompt does not fit: 400
    BUSY = "busy"  # every eligible cell asked for less: 429 with Retry-After
    NO_CELL = "no_cell"  # nothing READY, or residency leaves nothing: 503
    UNSUPPORTED = "unsupported"  # no cell serves this modality: 400
    TOO_LARGE = "too_large"  # packed so that it would unpack beyond any bound: 413
    ENDS_ENGINES = "ends_engines"  # engines died under its like: 422, which no client library tries again
    UNREADABLE = "unreadable"  # no request that names a model: 400; 413 when it is only partly here


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No cell for this request."""

    request_id: str
    kind: RefusalKind
    message: str  # for the client; names no cell
    retry_after_s: float | None = None
    excluded: tuple[tuple[str, str], ...] = ()  # cell id -> why; bounded
