"""What happened in a run: one entry per request, and a hash over every decision and its times."""

import struct
from dataclasses import dataclass, field

import xxhash

from tradewind.measure.record import Failure, Record
from tradewind.model.outcome import Outcome
from tradewind.sim.status import HTTP_OK, HTTP_UNAVAILABLE, HTTP_UNPROCESSABLE
from tradewind.workload.mooncake import TracedRequest

BYTES_PER_TOKEN = 4  # of a body, where a verdict looks at its size

_EVENT = struct.Struct("<dqq")


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request on its way. Times in seconds of the run; None = it did not come to that."""

    number: int
    traced: TracedRequest
    gateway: int
    cell: int | None = None
    decision_id: str = ""
    predicted_tokens: int = 0  # of the prompt, that the policy believed to be cached on the chosen cell
    cached_tokens: int = 0  # that the engine served from its cache
    first_s: float | None = None
    end_s: float | None = None
    attempts: list[int] = field(default_factory=list)  # cells in order, the newest last
    failures: list[str] = field(default_factory=list)  # why each attempt that was made good was lost
    alternatives: tuple[str, ...] = ()
    attempt_s: float = 0.0  # start of the newest attempt
    deaths: int = 0  # engines that ended under it before its first token
    failure: Failure = Failure.NONE  # once it has ended
    status: int = 0
    flags: str = ""  # Envoy's, of a failure
    hashes: tuple[int, ...] = ()  # of the prompt's blocks
    noise: tuple[float, float] = (0.0, 0.0)  # there and back, in deviations of a noisy path
    there_s: float = 0.0  # jitter on the way there
    late_s: float = 0.0  # ... and back
    due_s: float = 0.0  # when the newest byte of the response gets to the gateway
    refused: bool = False
    outcomes: int = 0


@dataclass(slots=True)
class Journal:
    """All entries of a run in order of arrival."""

    entries: list[Entry] = field(default_factory=list)
    _hash: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)

    def note(self, kind: bytes, at_s: float, number: int, cell: int) -> None:
        """Add one event to the trace hash; floats enter bit by bit."""
        self._hash.update(kind + _EVENT.pack(at_s, number, cell))

    @property
    def trace_hash(self) -> str:
        """Equal for two runs only if they made the same decisions at the same times with the same results."""
        return self._hash.hexdigest()


def to_outcome(entry: Entry, cells: tuple[str, ...], *, model: str) -> Outcome:
    """The entry's line in the access log. `cells`: those that were tried, in order."""
    assert entry.end_s is not None
    at_s, served = entry.traced.at_s, entry.failure is Failure.NONE
    gate_refused = entry.status == HTTP_UNPROCESSABLE
    return Outcome(
        request_id=f"r{entry.number}",
        cell_id=None if gate_refused else cells[-1],
        model=model,
        status=entry.status,
        flags="" if served else entry.flags,
        attempts=len(cells),
        attempted_cells=cells if len(cells) > 1 else (),
        attempt_failures=tuple(entry.failures),
        request_bytes=BYTES_PER_TOKEN * entry.traced.prompt_tokens,
        ttft_s=None if entry.first_s is None else entry.first_s - at_s,
        attempt_s=entry.attempt_s - at_s,
        duration_s=entry.end_s - at_s,
        prompt_tokens=entry.traced.prompt_tokens,
        cached_tokens=entry.cached_tokens if served else None,
        completion_tokens=entry.traced.output_tokens if served else None,
        deaths=entry.deaths,
    )


def to_record(entry: Entry, cell_ids: tuple[str, ...]) -> Record:
    """The entry as its client saw it; what had not ended when the run did is a timeout."""
    traced = entry.traced
    failure = Failure.STATUS if entry.refused else Failure.TIMEOUT if entry.end_s is None else entry.failure
    return Record(
        request_id=f"r{entry.number}",
        kind=traced.kind,
        intended_s=traced.at_s,
        sent_s=traced.at_s,
        headers_s=entry.first_s,
        content_s=entry.first_s,
        end_s=entry.end_s,
        status=HTTP_UNAVAILABLE if entry.refused else entry.status or HTTP_OK,
        failure=failure,
        prompt_tokens=traced.prompt_tokens,
        output_tokens=traced.output_tokens,
        usage_prompt_tokens=traced.prompt_tokens,
        usage_cached_tokens=entry.cached_tokens,
        usage_completion_tokens=traced.output_tokens if failure is Failure.NONE else None,
        cell=None if entry.cell is None else cell_ids[entry.cell],
        attempts=max(1, len(entry.attempts)),
        attempted=tuple(cell_ids[index] for index in entry.attempts),
        attempt_s=entry.attempt_s if entry.attempts else None,
    )
