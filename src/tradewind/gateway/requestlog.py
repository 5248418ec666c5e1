"""A bounded NDJSON log of requests, two files at most; never a prompt, never a key."""

import logging
import os
from collections import deque
from pathlib import Path

import msgspec

from tradewind.gateway.pick.memory import Sent
from tradewind.model.outcome import Outcome
from tradewind.runtime.log import log_event

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 16 * 2**20
MAX_WAITING_LINES = 20_000  # between two flushes; beyond it the oldest are dropped and counted
MAX_TEXT = 200  # characters of any string that a client or an engine chose


class PickLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the picker had decided for a request; a decision of an earlier process is known by its name alone."""

    decision: str
    policy: str = ""
    cell: str | None = None  # where it differs from the one that answered
    cost_s: float | None = None  # of the cell that was picked; not seconds where the policy has a measure of its own
    probability: float = 1.0  # of this choice
    expected_ttft_s: float | None = None
    prompt_tokens: int | None = None  # as estimated
    cached_tokens: int | None = None  # as predicted


class RequestLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One request as it is logged; times in seconds. Only `line_of` makes one."""

    at_unix_s: float  # when it ended
    id: str
    cell: str | None = None
    model: str | None = None
    status: int = 0
    flags: str = ""
    attempts: int = 1
    attempted: tuple[str, ...] = ()
    attempted_because: tuple[str, ...] = ()  # why each earlier attempt failed
    attempt_s: float | None = None  # request start to the start of the last attempt
    ttft_s: float | None = None
    duration_s: float = 0.0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    stream_error_code: int | None = None
    client_cancelled: bool = False
    request_bytes: int = 0
    response_bytes: int = 0
    pick: PickLine | None = None  # None: it went by the weights


def line_of(outcome: Outcome, *, at_unix_s: float, sent: Sent | None = None) -> RequestLine:
    """The line of one outcome and of the decision that it followed, with every foreign string cut."""
    request_id, model, flags = outcome.request_id, outcome.model, outcome.flags
    return RequestLine(  # by position: naming so many arguments costs as much as all the rest
        int(at_unix_s * 1e3 + 0.5) / 1e3,
        request_id if len(request_id) <= MAX_TEXT else request_id[:MAX_TEXT],
        outcome.cell_id,
        model if model is None or len(model) <= MAX_TEXT else model[:MAX_TEXT],
        outcome.status,
        flags if len(flags) <= MAX_TEXT else flags[:MAX_TEXT],
        outcome.attempts,
        outcome.attempted_cells[:8],
        outcome.attempt_failures[:8],
        outcome.attempt_s,
        outcome.ttft_s,
        outcome.duration_s,
        outcome.prompt_tokens,
        outcome.cached_tokens,
        outcome.completion_tokens,
        outcome.stream_error_code,
        outcome.client_cancelled,
        outcome.request_bytes,
        outcome.response_bytes,
        _pick_of(outcome, sent) if outcome.decision_id else None,
    )


def _pick_of(outcome: Outcome, sent: Sent | None) -> PickLine:
    if sent is None:
        return PickLine(outcome.decision_id[:MAX_TEXT])
    expected_s = sent.expected_ttft_s
    return PickLine(
        outcome.decision_id,
        sent.policy,
        sent.cell_id if sent.cell_id != outcome.cell_id else None,
        round(sent.cost_s, 6),
        round(sent.probability, 4),
        None if expected_s is None else round(expected_s, 6),
        sent.prompt_tokens,
        sent.matched_tokens,
    )


def _append(path: Path, data: bytes) -> None:
    """All of `data` or nothing: half a line would spoil the next one, too. A line that a kill cut is ended first."""
    with path.open("a+b", buffering=0) as out:
        size = os.fstat(out.fileno()).st_size
        cut = size > 0 and os.pread(out.fileno(), 1, size - 1) != b"\n"
        left = memoryview(b"\n" + data if cut else data)
        try:
            while left:
                left = left[out.write(left) :]
        except OSError:
            out.truncate(size)
            raise


class RequestLog:
    """Collects lines in memory and appends them in batches."""

    def __init__(self, path: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._max_file_bytes = max_file_bytes
        self._waiting: deque[RequestLine] = deque()
        self._last_error = ""
        self.dropped = 0

    def add(self, line: RequestLine) -> None:
        """Keep a line for the next flush."""
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(line)

    def take(self) -> list[RequestLine]:
        """What waits, to be written; call it where `add` is called."""
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    def write(self, lines: list[RequestLine]) -> None:
        """Append lines; a disk that refuses costs them, and they are counted. Blocking: belongs in a thread."""
        if not lines:
            return
        data = msgspec.json.Encoder().encode_lines(lines)
        try:
            self._rotate(len(data))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _append(self._path, data)
            self._last_error = ""
        except OSError as error:
            self.dropped += len(lines)
            if str(error) != self._last_error:
                log_event(log, "request_log.not_written", level=logging.WARNING, path=self._path, error=error)
            self._last_error = str(error)

    def _rotate(self, coming_bytes: int) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        if size and size + coming_bytes > self._max_file_bytes:
            self._path.replace(self._path.with_suffix(self._path.suffix + ".1"))
