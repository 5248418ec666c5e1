"""What was measured, and the coefficients of the step-time law that stand for it.

Each run's a0 and b, and Qwen3-32B's `mixed`, were fitted on the requests that arrived in the first half of the run;
`lab run validate-engine` fits a0 and b again. w, d and e come from a layer profile of Qwen3-32B on this card
(LLMServingSim, profiler/perf/RTXPRO6000: 0.67-0.72 ms to read a layer, 1.0e-4 ms per KV token over 64 layers), scaled
by parameters, layers and cards. The mixture of experts has Qwen3-32B's `mixed` (the same eight query heads to one of
KV); its a0, b, c and moe_w were fitted on its whole run, since the first half does not tell them apart.
"""

from dataclasses import dataclass, replace

from tradewind.engine.profiles import PROFILES, Profile
from tradewind.engine.scheduler import EngineLimits
from tradewind.lab.experiments.validate_engine.compare import ALL, HELD_OUT

_MS = 1e-3
# Of Qwen3-30B-A3B's active parameters per layer: 8 experts of 3 x 2,048 x 768, beside 18.9 million of attention.
_EXPERTS = 0.66
MAX_NUM_SEQS, TOKEN_BUDGET = 128, 2_048  # of all three runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run."""

    run: str  # its name in the measurements
    title: str
    ranks: int = 1  # engines behind one address that step together (vLLM's data parallelism with expert parallelism)
    experts: float = 0.0  # share of a token's work that is the experts', which all ranks share
    profile: Profile
    bounded: tuple[str, ...] = (ALL, HELD_OUT)  # parts that have to be met within the bound
    note: str = ""

    @property
    def limits(self) -> EngineLimits:
        """Of each rank. No prompt of these runs shares a prefix, and no KV cache filled up."""
        return EngineLimits(max_num_seqs=MAX_NUM_SEQS, token_budget=TOKEN_BUDGET, schedules_ahead=True)


def _profile(
    name: str, *, a0: float, w: float, b: float, c: float, d: float, e: float, kv_tokens: int, moe_w: float = 0.0,
    moe_share: float = 0.0, mixed: float = 1.0, source: str,
) -> Profile:  # fmt: skip
    """Times in milliseconds, as in the literature."""
    return replace(
        PROFILES["rtx-pro-6000"], name=name, a0_s=a0 * _MS, w_s=w * _MS, b_s=b * _MS, c_s=c * _MS, d_s=d * _MS,
        e_s=e * _MS, moe_w_s=moe_w * _MS, moe_share=moe_share, mixed=mixed, kv_capacity_tokens=kv_tokens, ingest_s=0.0,
        source=source,
    )  # fmt: skip


CASES = (
    Case(
        run="llama-3.1-8b",
        title="Llama-3.1-8B, BF16, one card",
        profile=_profile(
            "llama-3.1-8b", a0=3.88, w=10.85, b=0.0442, c=0.0005, d=8.55e-5, e=2.21e-6, kv_tokens=520_000,
            source="layer profile of Qwen3-32B scaled to 32 layers; a0 and b fitted on the first half of the run",
        ),
    ),
    Case(
        run="qwen3-32b-tp2",
        title="Qwen3-32B, BF16, two cards, tensor parallel over PCIe",
        profile=_profile(
            "qwen3-32b-tp2", a0=17.5, w=22.0, b=0.1629, c=0.0005, d=8.5e-5, e=2.6e-6, kv_tokens=400_000, mixed=2.3,
            source="layer profile halved; a0, b, mixed fitted on the first half: a0 and b hold the exchange over PCIe",
        ),
    ),
    Case(
        run="qwen3-30b-a3b-dp2",
        title="Qwen3-30B-A3B, BF16, two ranks of data parallel with expert parallel",
        ranks=2,
        experts=_EXPERTS,
        bounded=(ALL,),
        note="four coefficients were fitted on the whole run, so no half of it is out of sample",
        profile=_profile(
            "qwen3-30b-a3b-dp2", a0=16.2, w=2.0, b=0.0539, c=0.0428, d=7.3e-5, e=1.5e-6, kv_tokens=600_000,
            moe_w=6.86, moe_share=8 / 128, mixed=2.3,
            source="d: 98 KB a token at the profile's 1.35 TB/s; a0, b, c and moe_w fitted; mixed is Qwen3-32B's",
        ),
    ),
)  # fmt: skip


def case_named(run: str) -> Case:
    """The case of a run. Raises KeyError."""
    return {case.run: case for case in CASES}[run]
