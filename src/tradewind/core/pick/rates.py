"""The step-time law of a hardware class in seconds, laid out for the per-request arithmetic."""

from collections.abc import Sequence
from math import ceil, prod, sqrt

from tradewind.core.steplaw import StepLaw, scaled, step_law

CHUNK_TOKENS = 2_048  # prefill budget of one step, vLLM's default
_TABLE = 1_024  # sequences; from there on the last step's growth goes on


class Rates:
    """One hardware class. `prefill_factor`, `decode_factor` are what slow calibration found; 1 = as the table says."""

    __slots__ = (
        "a0_s",
        "attend_s",
        "b_s",
        "c_s",
        "chunk_w_s",
        "d_s",
        "decode_factor",
        "e_s",
        "hardware",
        "ingest_s",
        "kv_capacity_tokens",
        "number",
        "prefill_factor",
        "step_s",
        "trials",
    )

    def __init__(self, hardware: str, law: StepLaw, number: int) -> None:
        self.hardware = hardware
        self.number = number  # small and unique among the classes of one picker
        self.a0_s, self.b_s, self.c_s = law.a0 / 1e3, law.b / 1e3, law.c / 1e3
        self.d_s, self.e_s, self.ingest_s = law.d / 1e3, law.e / 1e3, law.ingest / 1e3
        self.chunk_w_s = law.weights(CHUNK_TOKENS) / 1e3
        self.kv_capacity_tokens = law.kv_capacity_tokens
        self.step_s = tuple(  # decode step of n sequences without their KV
            self.a0_s + sqrt((law.weights(n) / 1e3) ** 2 + (self.b_s * n) ** 2) + self.c_s * n for n in range(_TABLE)
        )
        self.trials = 0  # requests that are still to go out as if the class were fast
        self.prefill_factor = 1.0
        self.set_decode_factor(1.0)

    def set_decode_factor(self, factor: float) -> None:
        """Takes what slow calibration found."""
        self.decode_factor = factor
        self.attend_s = factor * self.d_s  # of one decode step, per token of context

    def chunks(self, uncached_tokens: float) -> int:
        """Steps that a prefill takes."""
        return max(1, ceil(uncached_tokens / CHUNK_TOKENS))

    def prompt_s(self, uncached_tokens: float, prompt_tokens: float, chunks: int) -> float:
        """The part of a prefill that does not depend on what else is in the batch: weights, matrices, attention."""
        return sqrt((chunks * self.chunk_w_s) ** 2 + (self.b_s * uncached_tokens) ** 2) + self.e_s * uncached_tokens * (
            prompt_tokens - uncached_tokens / 2
        )

    def prefill_s(self, uncached_tokens: float, prompt_tokens: float, step_s: float) -> float:
        """pre(u, L) of the recipe; `step_s` = a0 + c*decodes + d*their KV tokens, per chunk."""
        chunks = self.chunks(uncached_tokens)
        return self.prefill_factor * (chunks * step_s + self.prompt_s(uncached_tokens, prompt_tokens, chunks))

    def decode_s(self, sequences: int, kv_tokens: float) -> float:
        """dec(n, kv) of the recipe: one decode step."""
        return self.decode_factor * (self.step_s[min(sequences, _TABLE - 1)] + self.d_s * kv_tokens)


class RateTable:
    """One `Rates` per hardware class seen. `factors`: class, "" = every one -> by how much its times differ from here.

    For experiments with a table that is wrong, and for an operator who knows better.
    """

    def __init__(self, factors: Sequence[tuple[str, float]] = (), *, trials: int = 0) -> None:
        """`trials`: of each class, as soon as there are two to compare."""
        self._by_class: dict[str, Rates] = {}
        self._factors = factors
        self._trials = trials

    def of(self, hardware: str | None) -> Rates:
        """The class of this name; an unknown one is a class of its own."""
        name = hardware or ""
        rates = self._by_class.get(name)
        if rates is None:
            factor = prod(factor for wanted, factor in self._factors if wanted in ("", name))
            rates = self._by_class[name] = Rates(name, scaled(step_law(hardware), factor), len(self._by_class))
            self._try(rates)
        return rates

    def _try(self, newest: Rates) -> None:
        """The second class puts the first one on trial, too."""
        if newest.number == 1:
            for rates in self._by_class.values():
                rates.trials = self._trials
        elif newest.number > 1:
            newest.trials = self._trials

    def all(self) -> tuple[Rates, ...]:
        """In order of first sight."""
        return tuple(self._by_class.values())
