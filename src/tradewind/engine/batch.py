"""The sequences in the batch, and what falls due at which step.

All decoding sequences move on together, so a step in which no block fills and nobody ends costs the same for one
sequence as for two hundred.
"""

import heapq

from tradewind.engine.sequence import Sequence, StepClock

_Due = tuple[int, int, Sequence]  # step, admission, sequence; void once the admission is over


class Batch:
    """Sequences in prefill and in decode, each in order of admission."""

    def __init__(self, *, block_size_tokens: int) -> None:
        self.clock = StepClock()
        self.prefills: dict[int, Sequence] = {}
        self.decodes: dict[int, Sequence] = {}
        self.kv_tokens = 0  # total context of the decodes
        self._block_size_tokens = block_size_tokens
        self._admissions = 0
        self._full: list[_Due] = []  # when a decode's last block fills
        self._ends: list[_Due] = []  # when a decode gives its last token

    def __len__(self) -> int:
        return len(self.prefills) + len(self.decodes)

    def __contains__(self, sequence: Sequence) -> bool:
        seq_id = sequence.request.seq_id
        return seq_id in self.decodes or seq_id in self.prefills

    def admit(self, sequence: Sequence) -> None:
        """Its prefill begins."""
        self._admissions += 1
        sequence.admission = self._admissions
        self.prefills[sequence.request.seq_id] = sequence

    def begin_decode(self, sequence: Sequence) -> None:
        """Its prefill is through: one token with each step from the next one on."""
        seq_id, steps = sequence.request.seq_id, self.clock.steps
        del self.prefills[seq_id]
        total_tokens = sequence.total_tokens
        room = len(sequence.blocks) * self._block_size_tokens - total_tokens + 1
        heapq.heappush(self._full, (steps + room, sequence.admission, sequence))
        left = sequence.request.prompt_tokens + sequence.request.output_tokens - total_tokens
        heapq.heappush(self._ends, (steps + left, sequence.admission, sequence))
        sequence.begin_decode(self.clock)
        self.decodes[seq_id] = sequence
        self.kv_tokens += total_tokens

    def remove(self, sequence: Sequence) -> None:
        """It leaves the batch, wherever it is in it."""
        seq_id = sequence.request.seq_id
        if not sequence.decoding:
            del self.prefills[seq_id]
            return
        del self.decodes[seq_id]
        self.kv_tokens -= sequence.total_tokens
        sequence.end_decode()

    def advance(self, steps: int, *, ended_s: float) -> None:
        """So many steps have ended, the last one at `ended_s`."""
        self.clock.steps += steps
        self.clock.ended_s = ended_s
        self.kv_tokens += steps * len(self.decodes)

    def take_full(self) -> list[Sequence]:
        """The decodes whose last block has filled by now, in order of step and admission; each is told once."""
        return self._take(self._full)

    def take_ended(self) -> list[Sequence]:
        """The decodes that have given their last token by now, in order of admission; each is told once."""
        return self._take(self._ends)

    def grown(self, sequence: Sequence) -> None:
        """A decode whose last block had filled has one more."""
        room = len(sequence.blocks) * self._block_size_tokens - sequence.computed_tokens
        heapq.heappush(self._full, (self.clock.steps + room, sequence.admission, sequence))

    def steps_to_end(self) -> int:
        """Steps from now to the next end of a decode; there must be a decode."""
        while not _valid(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] - self.clock.steps

    def _take(self, due: list[_Due]) -> list[Sequence]:
        taken, steps = [], self.clock.steps
        while due and due[0][0] <= steps:
            entry = heapq.heappop(due)
            if _valid(entry):
                taken.append(entry[2])
        return taken


def _valid(entry: _Due) -> bool:
    _, admission, sequence = entry
    return sequence.decoding and sequence.admission == admission
