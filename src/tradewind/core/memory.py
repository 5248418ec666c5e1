"""What a gateway has learned that is worth a restart: verdicts, suspicion, error rates, lengths and limits, as ages.

A gateway that comes back without it sends long prompts to the cell that it had found to refuse them, and counts two
more refusals before it knows again. Ages travel, never times: who reads it adds how long it lay.
"""

import math
from dataclasses import dataclass, replace

MAX_ROWS = 65_536  # of any one list; more than that is cut off when written, and refused when read
MAX_NAME_CHARS = 4096
MAX_REASON_CHARS = 1000
MAX_BIN = 200  # half-octaves
MEASURES = 2  # of a request's length: what an engine may hold against its limit


def _sane(*values: float) -> None:
    if not all(0.0 <= value < math.inf for value in values):
        raise ValueError("a negative or infinite value")


def _few(*lists: tuple[object, ...]) -> None:
    if any(len(rows) > MAX_ROWS for rows in lists):
        raise ValueError(f"more than {MAX_ROWS} rows")


def _short(text: str) -> None:
    if len(text) > MAX_REASON_CHARS:
        raise ValueError(f"a reason of more than {MAX_REASON_CHARS} characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A cell that is held. `canary`: it gets a little traffic meanwhile."""

    cell_id: str
    age_s: float
    reason: str
    request_bytes: int
    refused_from: int = 0
    statistical: bool = True
    canary: bool = False
    by_canary: bool = False
    hold_s: float = 0.0

    def __post_init__(self) -> None:
        _sane(self.age_s, self.request_bytes, self.refused_from, self.hold_s)
        _short(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is remembered of a cell between cases; an age is None for what has not happened."""

    cell_id: str
    misled: bool = False
    canary_hold_s: float = 0.0
    released_age_s: float | None = None
    exonerated_age_s: float | None = None
    largest_bytes: int = 0  # refused since it was last well

    def __post_init__(self) -> None:
        _sane(self.canary_hold_s, self.released_age_s or 0.0, self.exonerated_age_s or 0.0, self.largest_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRate:
    """Errors among requests of one cell over the last hour, forgotten exponentially."""

    cell_id: str
    errors: float
    requests: float
    age_s: float

    def __post_init__(self) -> None:
        _sane(self.errors, self.requests, self.age_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The evidence of the last minute: requests by (cell, size bin), and errors in their order."""

    age_s: float = 0.0  # of the newest
    requests: tuple[tuple[str, int, int], ...] = ()
    errors: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _few(self.requests, self.errors)
        _sane(self.age_s, *(count for _, _, count in self.requests))
        if any(not 0 <= size <= MAX_BIN for size in (*(row[1] for row in self.requests), *(e[1] for e in self.errors))):
            raise ValueError("a size that no request has")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMemory:
    """Everything of one model and one kind of error."""

    model: str
    kind: str
    verdicts: tuple[Verdict, ...] = ()
    records: tuple[Record, ...] = ()
    rates: tuple[ErrorRate, ...] = ()
    recent: Recent = Recent()

    def __post_init__(self) -> None:
        _few(self.verdicts, self.records, self.rates)
        if len(self.model) > MAX_NAME_CHARS:
            raise ValueError("a model's name that is too long")

    @property
    def is_empty(self) -> bool:
        return not (self.verdicts or self.records or self.rates or self.recent.errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The longest prompts of one pool: (age in seconds, tokens), tokens falling."""

    pool: str
    maxima: tuple[tuple[float, float], ...]
    requests: int
    watched_s: float
    tokens_per_byte: float | None = None

    def __post_init__(self) -> None:
        _few(self.maxima)
        _sane(*(value for pair in self.maxima for value in pair), self.requests, self.watched_s)
        if self.tokens_per_byte is not None and not 0.0 < self.tokens_per_byte < math.inf:
            raise ValueError("a ratio of tokens to bytes that cannot be")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsMemory:
    """One row of refusals; lengths by each measure, None where it is not what is refused, or nothing is due."""

    count: int
    before: tuple[int, ...]
    since: tuple[int, ...]
    refused: tuple[float | None, ...]
    hard: bool = True
    fell: bool = False
    trial_in_s: float | None = None
    tries: int = 0
    bytes_per_token: float = 4.0

    def __post_init__(self) -> None:
        if not len(self.before) == len(self.since) == len(self.refused) == MEASURES:
            raise ValueError(f"a length that is not given by {MEASURES} measures")
        _sane(self.count, *self.before, *self.since, *(one or 0.0 for one in self.refused))
        _sane(self.trial_in_s or 0.0, self.tries, self.bytes_per_token)
        if not self.bytes_per_token:
            raise ValueError("tokens without bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMemory:
    """What the picker has learned of one cell's limit, in tokens."""

    cell_id: str
    served: tuple[int, int]
    rows: tuple[RefusalsMemory, ...]
    unexplained: bool = False
    engine_start_s: float | None = None  # of the engine that refused, by its own clock; None = it does not say

    def __post_init__(self) -> None:
        _few(self.rows)
        _sane(*self.served, self.engine_start_s or 0.0)

    @property
    def refusals(self) -> int:
        """Counted, over all rows."""
        return sum(row.count for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """All of one scorer, and a picker's limits. Raises ValueError where a value cannot be, or a list is too long."""

    cases: tuple[JudgeMemory, ...] = ()
    lengths: tuple[Lengths, ...] = ()
    limits: tuple[LimitMemory, ...] = ()

    def __post_init__(self) -> None:
        _few(self.cases, self.lengths, self.limits)

    @property
    def verdicts(self) -> tuple[tuple[str, str, str], ...]:
        """(model, kind, cell id) of every verdict: what must not be lost, however the process ends."""
        return tuple((case.model, case.kind, verdict.cell_id) for case in self.cases for verdict in case.verdicts)

    @property
    def refusals(self) -> tuple[tuple[str, int], ...]:
        """(cell id, refusals) of every learned limit: likewise."""
        return tuple((limit.cell_id, limit.refusals) for limit in self.limits)

    def aged(self, by_s: float) -> "Memory":
        """The same, `by_s` later."""
        return Memory(
            cases=tuple(_aged_case(case, by_s) for case in self.cases),
            lengths=tuple(
                replace(
                    item,
                    maxima=tuple((age_s + by_s, tokens) for age_s, tokens in item.maxima),
                    watched_s=item.watched_s + by_s,
                )
                for item in self.lengths
            ),
            limits=tuple(replace(item, rows=tuple(_aged_row(row, by_s) for row in item.rows)) for item in self.limits),
        )


def _aged_row(row: RefusalsMemory, by_s: float) -> RefusalsMemory:
    return replace(row, trial_in_s=None if row.trial_in_s is None else max(0.0, row.trial_in_s - by_s))


def _aged_case(case: JudgeMemory, by_s: float) -> JudgeMemory:
    def older(age_s: float | None) -> float | None:
        return None if age_s is None else age_s + by_s

    return replace(
        case,
        verdicts=tuple(replace(item, age_s=item.age_s + by_s) for item in case.verdicts),
        records=tuple(
            replace(
                item,
                released_age_s=older(item.released_age_s),
                exonerated_age_s=older(item.exonerated_age_s),
            )
            for item in case.records
        ),
        rates=tuple(replace(item, age_s=item.age_s + by_s) for item in case.rates),
        recent=replace(case.recent, age_s=case.recent.age_s + by_s),
    )
