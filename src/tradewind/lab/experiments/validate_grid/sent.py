"""What a live client sent and got, small enough to ship: one entry per request, times in milliseconds."""

import gzip
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from tradewind.measure.record import Record
from tradewind.workload.mooncake import Trace, TracedRequest

RECORDED = "live_runs.json.gz"


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """One request that was served."""

    sent_ms: float
    content_ms: float
    end_ms: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    cell: str
    block_ids: tuple[int, ...]

    @property
    def ttft_s(self) -> float:
        """From the actual sending."""
        return (self.content_ms - self.sent_ms) / 1e3

    @property
    def e2e_s(self) -> float:
        """From the actual sending."""
        return (self.end_ms - self.sent_ms) / 1e3


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the machine was: what a live figure is worth."""

    at: str
    cores: int
    busy_before_ratio: float | None  # of all cores, by others, in the seconds before the grid began
    busy_ratio: float | None  # of all cores, by all, during the load
    load_before: float  # the load average of a minute
    load_after: float
    late_p50_ms: float | None  # how late the client sent
    late_p95_ms: float | None


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's course."""

    policy: str
    seed: int
    for_s: float
    commit: str
    asked: int
    failures: dict[str, int]
    machine: Machine
    sent: list[Sent]


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that ship."""

    runs: list[LiveRun]


def sent_of(records: Iterable[Record], trace: Trace, *, prefix: str) -> list[Sent]:
    """The served requests of a load in order of sending."""
    blocks = {f"{prefix}-{number}": request.block_ids for number, request in enumerate(trace.requests)}
    found = [
        Sent(
            round(1e3 * record.sent_s, 2), round(1e3 * record.content_s, 2), round(1e3 * record.end_s, 2),
            record.usage_prompt_tokens or record.prompt_tokens, record.usage_completion_tokens or record.output_tokens,
            record.usage_cached_tokens or 0, record.cell or "", blocks[record.request_id],
        )
        for record in records
        if record.ok and record.sent_s is not None and record.content_s is not None and record.end_s is not None
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.sent_ms)


def traced(sent: Sequence[Sent]) -> list[TracedRequest]:
    """The requests again, at the times at which they were sent."""
    return [
        TracedRequest(
            at_s=one.sent_ms / 1e3,
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
            block_ids=one.block_ids,
        )
        for one in sent
    ]


def recorded_runs() -> list[LiveRun]:
    """The runs that ship with the project."""
    packed = resources.files(__package__).joinpath("data", RECORDED).read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=Recording).runs


def write_recording(path: Path, runs: Sequence[LiveRun]) -> int:
    """Returns the bytes written. Raises OSError."""
    data = gzip.compress(msgspec.json.encode(Recording(runs=list(runs))), 9, mtime=0)
    return path.write_bytes(data)
