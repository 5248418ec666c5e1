"""One sequence inside the engine: what was asked, how far it is, when things happened."""

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest:
    """What a driver submits. `block_hashes` may run past the prompt into the output, which is known beforehand here."""

    seq_id: int  # unique and ascending with arrival
    prompt_tokens: int
    output_tokens: int  # exactly so many are generated
    finish_reason: FinishReason = "length"
    priority: int = 0  # lower is sooner
    block_hashes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.prompt_tokens > 0
        assert self.output_tokens > 0


@dataclass(slots=True)
class Sequence:
    """State of one sequence; drivers read it, the scheduler writes it. Times are the driver's clock, in seconds."""

    request: SequenceRequest
    arrival_s: float
    ready_s: float  # arrival plus ingest: when the scheduler sees it
    generated: int = 0
    computed_tokens: int = 0  # tokens whose KV is in blocks, chunk in progress excluded
    cached_tokens: int = 0  # of the prompt, found in the prefix cache at first admission
    preemptions: int = 0
    scheduled_s: float | None = None  # first time in a step
    first_token_s: float | None = None
    last_token_s: float | None = None
    finished_s: float | None = None
    finish_reason: FinishReason | None = None
    blocks: list[int] = field(default_factory=list)
    published_blocks: int = 0
    chunk_tokens: int = 0  # prefill tokens of the step in progress
    queued: bool = False  # in the scheduler's queue
    cancelled: bool = False

    @property
    def total_tokens(self) -> int:
        """Prompt and output so far."""
        return self.request.prompt_tokens + self.generated

    @property
    def in_decode(self) -> bool:
        """Everything but the newest token is in the KV cache: one token per step from here."""
        return self.generated > 0 and self.computed_tokens == self.total_tokens - 1

    @property
    def order(self) -> tuple[int, int]:
        """Priority first, then arrival."""
        return (self.request.priority, self.request.seq_id)
