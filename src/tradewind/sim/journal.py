"""What happened in a run: one entry per request, and a hash over every decision and its times."""

import struct
from dataclasses import dataclass, field

import xxhash

from tradewind.measure.record import Failure, Record
from tradewind.sim.status import HTTP_OK, HTTP_UNAVAILABLE
from tradewind.workload.mooncake import TracedRequest


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
    late_s: float = 0.0  # jitter on the way back
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
        self._hash.update(kind + struct.pack("<dqq", at_s, number, cell))

    @property
    def trace_hash(self) -> str:
        """Equal for two runs only if they made the same decisions at the same times with the same results."""
        return self._hash.hexdigest()


def to_record(entry: Entry, cell_ids: tuple[str, ...]) -> Record:
    """The entry as its client saw it; what had not ended when the run did is a timeout."""
    traced = entry.traced
    failure = Failure.STATUS if entry.refused else Failure.NONE if entry.end_s is not None else Failure.TIMEOUT
    return Record(
        request_id=f"r{entry.number}",
        kind=traced.kind,
        intended_s=traced.at_s,
        sent_s=traced.at_s,
        headers_s=entry.first_s,
        content_s=entry.first_s,
        end_s=entry.end_s,
        status=HTTP_UNAVAILABLE if entry.refused else HTTP_OK,
        failure=failure,
        prompt_tokens=traced.prompt_tokens,
        output_tokens=traced.output_tokens,
        usage_prompt_tokens=traced.prompt_tokens,
        usage_cached_tokens=entry.cached_tokens,
        usage_completion_tokens=traced.output_tokens if entry.end_s is not None else None,
        cell=None if entry.cell is None else cell_ids[entry.cell],
        attempts=1,
    )
