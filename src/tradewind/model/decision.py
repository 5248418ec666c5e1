"""What the picker decided for one request, and why."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One eligible cell with its cost; `terms` sum up to `cost_s`."""

    cell_id: str
    address: str  # "ip:port" as this gateway reaches the cell
    cost_s: float
    terms: tuple[tuple[str, float], ...] = ()  # term name -> seconds
    matched_tokens: int = 0  # of the prompt, believed to be in the cell's prefix cache
    slowness: float = 1.0  # learned; 1 = as its hardware class
    probability: float = 0.0  # of being drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A cell for one request. `candidates` is ordered by cost, the chosen one is anywhere in it."""

    decision_id: str  # unique within one gateway process
    request_id: str
    policy: str
    cell_id: str
    address: str
    alternatives: tuple[str, ...] = ()  # cell ids to try next, best first
    cost_s: float = 0.0
    probability: float = 1.0  # of this choice, given everything the picker knew
    reason: str = ""  # one line for people: why this cell and not the next
    expected_ttft_s: float | None = None
    prompt_tokens: int = 0
    matched_tokens: int = 0  # predicted hit on the chosen cell
    candidates: tuple[Candidate, ...] = ()  # at most a handful, cheapest first
    excluded: tuple[tuple[str, str], ...] = ()  # cell id -> why it was not eligible; bounded


class RefusalKind(StrEnum):
    """Why no cell was chosen."""

    UNKNOWN_MODEL = "unknown_model"  # no pool has this name: 404
    TOO_LONG = "too_long"  # every cell says that the prompt does not fit: 400
    BUSY = "busy"  # every eligible cell asked for less: 429 with Retry-After
    NO_CELL = "no_cell"  # nothing READY, or residency leaves nothing: 503
    UNSUPPORTED = "unsupported"  # no cell serves this modality: 400
    UNREADABLE = "unreadable"  # no request that names a model: 400; 413 when it is only partly here


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No cell for this request."""

    request_id: str
    kind: RefusalKind
    message: str  # for the client; names no cell
    retry_after_s: float | None = None
    excluded: tuple[tuple[str, str], ...] = ()  # cell id -> why; bounded
