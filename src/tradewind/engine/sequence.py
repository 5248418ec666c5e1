"""One sequence inside the engine: what was asked, how far it is, when things happened."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "abort"]


class SequenceRequest(msgspec.Struct, frozen=True, kw_only=True):
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
class StepClock:
    """The steps that an engine has ended: each decoding sequence moves on by one token with each of them."""

    steps: int = 0
    ended_s: float = 0.0  # when the newest one ended


@dataclass(slots=True)
class Sequence:
    """State of one sequence; drivers read it, the scheduler writes it. Times are the driver's clock, in seconds.

    While it decodes, how far it is follows from the engine's step clock, so that a step writes nothing here.
    """

    request: SequenceRequest
    arrival_s: float
    ready_s: float  # arrival plus ingest: when the scheduler sees it
    cached_tokens: int = 0  # of the prompt, found in the prefix cache at first admission
    preemptions: int = 0
    scheduled_s: float | None = None  # first time in a step
    first_token_s: float | None = None
    finished_s: float | None = None
    finish_reason: FinishReason | None = None
    blocks: list[int] = field(default_factory=list)
    published_blocks: int = 0
    chunk_tokens: int = 0  # prefill tokens of the step in progress
    admission: int = 0  # ascending over the engine's admissions, a new one after each preemption
    queued: bool = False  # in the scheduler's queue
    cancelled: bool = False
    _clock: StepClock | None = None  # of the engine, while it decodes
    _since: int = 0  # that clock's steps when the decode began
    _generated: int = 0  # until then
    _computed_tokens: int = 0
    _last_token_s: float | None = None

    @property
    def decoding(self) -> bool:
        """Everything but the newest token is in the KV cache: one token per step from here."""
        return self._clock is not None

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        clock = self._clock
        return self._generated if clock is None else self._generated + clock.steps - self._since

    @property
    def total_tokens(self) -> int:
        """Prompt and output so far."""
        return self.request.prompt_tokens + self.generated

    @property
    def computed_tokens(self) -> int:
        """Tokens whose KV is in blocks, the step in progress excluded."""
        return self._computed_tokens if self._clock is None else self.total_tokens - 1

    @property
    def last_token_s(self) -> float | None:
        """When the newest token of the answer came."""
        clock = self._clock
        return self._last_token_s if clock is None or clock.steps == self._since else clock.ended_s

    @property
    def order(self) -> tuple[int, int]:
        """Priority first, then arrival."""
        return (self.request.priority, self.request.seq_id)

    def computed(self, tokens: int) -> None:
        """So many tokens have their KV in blocks now; not for a sequence that decodes."""
        self._computed_tokens = tokens

    def add_token(self, *, now_s: float) -> None:
        """The prefill is through and has given the next token of the answer."""
        self._generated += 1
        self._last_token_s = now_s

    def begin_decode(self, clock: StepClock) -> None:
        """From the clock's next step on, one token each."""
        self._clock, self._since = clock, clock.steps

    def end_decode(self) -> None:
        """What the clock has given so far stays; it gives no more."""
        generated, last_token_s = self.generated, self.last_token_s
        self._computed_tokens = self.computed_tokens
        self._generated, self._last_token_s, self._clock = generated, last_token_s, None
