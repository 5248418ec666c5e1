"""The step-time law: how long one scheduler step takes on a profile, with a slow-down per term.

Formula: the "soft roofline" of the project's simulation reference, section 3.2.
"""

import math
from dataclasses import dataclass, fields

import msgspec

from tradewind.engine.profiles import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDown:
    """Factors > 0 on each term's time; 1 = healthy.

    Core-clock throttling acts on b, e (and part of c), memory throttling on w, d, a busy host or PCIe link on a0, c and
    ingest.
    """

    w: float = 1.0
    b: float = 1.0
    c: float = 1.0
    d: float = 1.0
    e: float = 1.0
    a0: float = 1.0
    ingest: float = 1.0

    def times(self, other: "SlowDown") -> "SlowDown":
        """Both at once: the factors multiply."""
        return SlowDown(**{name: getattr(self, name) * getattr(other, name) for name in TERMS})


TERMS: tuple[str, ...] = tuple(field.name for field in fields(SlowDown))
HEALTHY = SlowDown()


def clock_slow_down(clock_ratio: float) -> SlowDown:
    """The slow-down of an SM clock at `clock_ratio` (0..1]: compute terms in full, per-sequence work by half."""
    slower = 1.0 / clock_ratio
    return SlowDown(b=slower, e=slower, c=0.5 + 0.5 * slower)


class StepLoad(msgspec.Struct, frozen=True):
    """What one step works on: tokens, sequences, and tokens squared for `attention`."""

    prefill_tokens: int
    decodes: int
    kv_tokens: int  # total context of the decoding sequences
    attention: float  # sum over prefill chunks of k * (ctx + k/2)


def step_s(profile: Profile, load: StepLoad, slow: SlowDown = HEALTHY) -> float:
    """Seconds of one step."""
    tokens = load.prefill_tokens + load.decodes
    compute_s = slow.b * profile.b_s * tokens
    return (
        slow.a0 * profile.a0_s
        + math.hypot(slow.w * weights_s(profile, tokens), compute_s)
        + slow.c * profile.c_s * load.decodes
        + context_s(profile, load, slow)
        + slow.e * profile.e_s * load.attention
    )


def context_s(profile: Profile, load: StepLoad, slow: SlowDown = HEALTHY) -> float:
    """Seconds to read the context of the sequences that decode."""
    return slow.d * profile.d_s * load.kv_tokens * (profile.mixed if load.prefill_tokens else 1.0)


def decode_steps_s(profile: Profile, load: StepLoad, slow: SlowDown, *, steps: int) -> list[float]:
    """Seconds of each of the `steps` steps after one of `load`, all decodes; each step adds a token per sequence."""
    assert not load.prefill_tokens, "a prefill is not repeated"
    tokens = load.decodes
    # Summed in the order of `step_s`, so that a run of steps ends bit for bit where single steps end.
    fixed_s = (
        slow.a0 * profile.a0_s
        + math.hypot(slow.w * weights_s(profile, tokens), slow.b * profile.b_s * tokens)
        + slow.c * profile.c_s * tokens
    )
    per_kv_s = slow.d * profile.d_s
    first = load.kv_tokens + tokens
    return [fixed_s + per_kv_s * kv_tokens for kv_tokens in range(first, first + steps * tokens, tokens)]


def weights_s(profile: Profile, tokens: int) -> float:
    """Seconds to read the weights that a step of `tokens` tokens touches."""
    if not profile.moe_w_s:
        return profile.w_s
    return profile.w_s + profile.moe_w_s * (1.0 - (1.0 - profile.moe_share) ** tokens)


def tensor_share(profile: Profile, load: StepLoad, slow: SlowDown = HEALTHY) -> float:
    """b*T / sqrt(w^2 + (b*T)^2): how much of a step's matrix work is bound by the tensor pipes, 0..1."""
    tokens = load.prefill_tokens + load.decodes
    compute_s = slow.b * profile.b_s * tokens
    whole_s = math.hypot(slow.w * weights_s(profile, tokens), compute_s)
    return compute_s / whole_s if whole_s else 0.0
