"""Coefficients of the step-time law per hardware class, with the GPU that stands behind them.

Source: the project's simulation reference, section 3.3 (basis per row in `source`). Times there are in milliseconds;
here everything is in seconds and tokens.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The board an engine runs on."""

    model_name: str
    count: int
    tdp_w: float
    idle_w: float
    vram_mib: float
    sm_clock_hz: float
    memory_clock_hz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Coefficients of `engine.law` for one (model, GPU) pair.

    step_s = a0 + sqrt(w^2 + (b*tokens)^2) + c*decodes + d*kv_tokens + e*sum(k*(ctx + k/2)); for a mixture of experts
    the weights read grow with the tokens m of the step: w = w + moe_w*(1 - (1 - moe_share)^m). In a step that also
    prefills, the decodes' context takes `mixed` times as long.
    """

    name: str
    a0_s: float
    w_s: float
    b_s: float  # per token of the step
    c_s: float  # per decoding sequence
    d_s: float  # per token of KV context that the decodes read
    e_s: float  # per (prefill token x context token)
    kv_capacity_tokens: int
    ingest_s: float  # per request, before the scheduler sees it: HTTP, tokenizer, IPC
    gpu: Gpu
    moe_w_s: float = 0.0
    moe_share: float = 0.0  # experts per token / experts
    mixed: float = 1.0  # attention kernels made for long queries read the context of a decode less well
    source: str


_RTX = Gpu(
    model_name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    count=1,
    tdp_w=600.0,
    idle_w=35.0,
    vram_mib=97_887.0,
    sm_clock_hz=2.43e9,
    memory_clock_hz=12.481e9,
)

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="rtx-pro-6000",
            a0_s=3.5e-3,
            w_s=24e-3,
            b_s=0.50e-3,
            c_s=0.10e-3,
            d_s=2.3e-7,
            e_s=8.6e-9,
            kv_capacity_tokens=140_000,
            ingest_s=15e-3,
            gpu=_RTX,
            source="70B AWQ, TP1; layer profile scaled to 80 layers, d and e measured, dequantisation assumed",
        ),
        Profile(
            name="h100",
            a0_s=9e-3,
            w_s=15e-3,
            b_s=0.30e-3,
            c_s=0.06e-3,
            d_s=1.2e-7,
            e_s=3e-9,
            kv_capacity_tokens=95_000,
            ingest_s=15e-3,
            gpu=Gpu(
                model_name="NVIDIA H100 80GB HBM3",
                count=1,
                tdp_w=700.0,
                idle_w=70.0,
                vram_mib=81_559.0,
                sm_clock_hz=1.98e9,
                memory_clock_hz=2.619e9,
            ),
            source="70B AWQ, TP1; Vidur's H100 Llama-2-70b profile, w and a0 from a published heterogeneous run",
        ),
        Profile(
            name="h200",
            a0_s=9e-3,
            w_s=11.2e-3,
            b_s=0.30e-3,
            c_s=0.06e-3,
            d_s=0.9e-7,
            e_s=3e-9,
            kv_capacity_tokens=265_000,
            ingest_s=15e-3,
            gpu=Gpu(
                model_name="NVIDIA H200",
                count=1,
                tdp_w=700.0,
                idle_w=75.0,
                vram_mib=143_771.0,
                sm_clock_hz=1.98e9,
                memory_clock_hz=3.201e9,
            ),
            source="70B AWQ, TP1; as h100 with 4.8 TB/s of memory bandwidth",
        ),
        Profile(
            name="2xl40s",
            a0_s=5e-3,
            w_s=1.5e-3,
            b_s=0.10e-3,
            c_s=0.05e-3,
            d_s=2e-8,
            e_s=1e-9,
            kv_capacity_tokens=1_500_000,
            ingest_s=15e-3,
            gpu=Gpu(
                model_name="NVIDIA L40S",
                count=2,
                tdp_w=350.0,
                idle_w=35.0,
                vram_mib=46_068.0,
                sm_clock_hz=2.52e9,
                memory_clock_hz=9.001e9,
            ),
            moe_w_s=20e-3,
            moe_share=8 / 256,
            source="35B-A3B FP8 over two cards; fitted to published inter-token latencies, +-40 %",
        ),
        Profile(
            name="fast",
            a0_s=2e-3,
            w_s=3e-3,
            b_s=0.02e-3,
            c_s=0.02e-3,
            d_s=1e-8,
            e_s=2e-10,
            kv_capacity_tokens=200_000,
            ingest_s=0.0,
            gpu=_RTX,
            source="assumed: quick live tests, TTFT(512 tokens) about 13 ms",
        ),
    )
}


def profile_named(name: str) -> Profile:
    """Returns the profile; raises KeyError with the known names."""
    if name not in PROFILES:
        raise KeyError(f"unknown profile {name!r}; known: {', '.join(sorted(PROFILES))}")
    return PROFILES[name]
