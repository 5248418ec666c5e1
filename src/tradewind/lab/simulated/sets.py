"""Named sets of policies, to run a comparison or an ablation again by its name. The first policy is the measure."""

BASELINES = (
    "cost",
    "gorgo:.5/.1",
    "gorgo:.5/.1;index=unbounded",
    "cache_aware",
    "cache_aware;index=unbounded",
    "least_request:N",
    "session_affinity",
    "round_robin",
)
SETS: dict[str, tuple[str, ...]] = {
    "baselines": BASELINES,
    # How much the way to the first token counts against the decode; the second is the published recipe's.
    "weights": (
        "cost",
        "cost;prefill_weight=1.5;own_weight=0.5",
        "cost;own_weight=0.5",
        "cost;prefill_weight=1.5",
        "cost;queue_weight=1.5",
        "cost;queue_weight=2",
        "cost;queue_weight=2;prefill_weight=2.5",
    ),
    # What a request costs those in the batch.
    "others": (
        "cost",
        "cost;others_weight=0",
        "cost;others_saturation=2",
        "cost;others_saturation=8",
        "cost;others_waiting=0",
        "cost;others_waiting=0.5",
        "cost;others_waiting=2",
        "cost;own_weight=0;others_weight=0",
    ),
    # Tried for a shorter p95 E2E on S1, where decodes are slowed by prefills that come later: nothing that lasts.
    "decodes": (
        "cost",
        "cost;others_saturation=8",
        "cost;others_saturation=100",
        "cost;others_weight=1",
        "cost;others_weight=1;others_saturation=100",
        "cost;own_weight=0.5",
        "cost;own_weight=0.5;prefill_weight=3",
    ),
    "ties": ("cost", "cost;tie_s=0", "cost;tie_s=0.03", "cost;tie_s=0.1;tie_window_s=0.8"),
    "learning": ("cost", "cost;calibrate=0", "cost;alpha=0", "cost;alpha=0.1", "cost;alpha=0.4", "cost;dead_zone=0"),
    "index": ("cost", "cost;index=unbounded", "cost;heat=0"),
}


def expanded(written: str) -> list[str]:
    """The policies of a comma-separated list in which the names of sets stand for their members; each once."""
    found: list[str] = []
    for name in written.split(","):
        found += SETS.get(name.strip(), (name.strip(),))
    return list(dict.fromkeys(found))
