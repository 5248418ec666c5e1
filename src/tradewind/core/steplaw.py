"""What a step of an engine costs on each hardware class: the priors that scoring and picking start from."""

import math
from typing import NamedTuple


class StepLaw(NamedTuple):
    """Milliseconds of engine time per step, weights, token, sequence, KV token, and token times context token.

    step = a0 + sqrt(weights(m)^2 + (b*m)^2) + c*sequences + d*kv_tokens + e*sum(k*(context + k/2)); m tokens a step.
    For a mixture of experts the weights that a step reads grow with its tokens.
    """

    a0: float
    w: float
    b: float
    c: float
    d: float
    e: float
    kv_capacity_tokens: int  # for an engine that does not say
    source: str
    moe_w: float = 0.0
    moe_share: float = 0.0  # experts per token / experts
    ingest: float = 15.0  # per request before the scheduler sees it: HTTP, tokenizer, IPC

    def weights(self, tokens: float) -> float:
        """Milliseconds to read the weights that a step of so many tokens touches."""
        if not self.moe_w:
            return self.w
        return self.w + self.moe_w * (1.0 - math.pow(1.0 - self.moe_share, tokens))


# The step-time study, table 3.3. Sources in short; the picker corrects what is wrong by what it sees, per class.
_LAWS = (
    (
        "rtxpro6000",
        StepLaw(
            a0=3.5,
            w=24.0,
            b=0.50,
            c=0.10,
            d=2.3e-4,
            e=8.6e-6,
            kv_capacity_tokens=140_000,
            source="70B in 4 bits on one card: published per-layer profile scaled to 80 layers; d, e measured",
        ),
    ),
    (
        "h200",
        StepLaw(
            a0=9.0,
            w=11.2,
            b=0.30,
            c=0.06,
            d=0.9e-4,
            e=3e-6,
            kv_capacity_tokens=265_000,
            source="as h100 with 4.8 TB/s of memory bandwidth",
        ),
    ),
    (
        "h100",
        StepLaw(
            a0=9.0,
            w=15.0,
            b=0.30,
            c=0.06,
            d=1.2e-4,
            e=3e-6,
            kv_capacity_tokens=95_000,
            source="70B in 4 bits on one card: Vidur's H100 Llama-2-70b profile; w, a0 from a published run",
        ),
    ),
    (
        "l40s",
        StepLaw(
            a0=5.0,
            w=1.5,
            b=0.10,
            c=0.05,
            d=2e-5,
            e=1e-6,
            kv_capacity_tokens=1_500_000,
            source="35B-A3B FP8 over two cards: fitted to published inter-token latencies, +-40 %",
            moe_w=20.0,
            moe_share=8 / 256,
        ),
    ),
)
_DEFAULT_LAW = StepLaw(
    a0=2.0,
    w=3.0,
    b=0.02,
    c=0.02,
    d=1e-5,
    e=2e-7,
    kv_capacity_tokens=200_000,
    source="assumed: a fast small model",
    ingest=0.0,
)


def step_law(hardware: str | None) -> StepLaw:
    """The law of a hardware class by its name, e.g. "rtx-pro-6000" or "NVIDIA H100 80GB HBM3"."""
    name = "".join(character for character in (hardware or "").lower() if character.isalnum())
    for key, law in _LAWS:
        if key in name:
            return law
    return _DEFAULT_LAW


def scaled(law: StepLaw, factor: float) -> StepLaw:
    """The law of an engine whose steps take `factor` as long; ingest is the host's and stays."""
    if factor == 1.0:
        return law
    terms = {name: factor * getattr(law, name) for name in ("a0", "w", "b", "c", "d", "e", "moe_w")}
    return law._replace(**terms)
