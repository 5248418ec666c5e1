"""Every constant of the per-request decision, named; the recipe and its evidence are the pick study, section 1."""

from dataclasses import dataclass

OTHERS_DECAY_S = 0.5  # other gateways' work counts by exp(-age / this): a stale picture herds worse than none


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSettings:
    """Weights of the terms, all in seconds; 1 is the physical rate."""

    rtt_weight: float = 1.0
    queue_weight: float = 1.0
    prefill_weight: float = 2.0  # a cold prefill also evicts others' blocks and delays those behind
    own_weight: float = 0.25  # of the request's own decode
    others_weight: float = 0.5  # of what its prefill and decode cost the rest of the batch
    others_saturation: float = 4.0  # decodes; from there on more of them count less and less
    others_waiting: float = 1.0  # of each request without a first token: a prefill in its steps delays it in full
    kv_start_ratio: float = 0.85  # of the KV capacity spoken for by requests in flight
    kv_penalty_s: float = 2.0  # when all of it is
    running_penalty_s: float = 1.0  # when as many run as the engine lets run
    max_running: int = 256  # vLLM's default for max_num_seqs
    queue_floor: float = 0.3  # of the outstanding prefills: what surely still waits
    overdue_s: float = 0.150  # a first token this late, and
    overdue_ratio: float = 1.3  # ... this much later than predicted, says that the cell is stalled
    overdue_max: float = 8.0
    tie_s: float = 0.010  # temperature of the draw among near ties
    tie_window_s: float = 0.080
    unknown_rtt_s: float = 0.050  # for all, while no path has been measured
    rtt_alpha: float = 0.3
    output_alpha: float = 0.02
    output_tokens: float = 128.0  # until outcomes tell
    trials: int = 4  # first requests to a class, as if it were fast: one that is thought too slow teaches nothing
    trial_ratio: float = 0.1  # of the times of the table
    heat: bool = True  # amortised prefill of hot prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """How fast a cell's slowness is believed (fast), and a class's rates (slow)."""

    alpha: float = 0.2
    base_alpha: float = 0.02
    pad_s: float = 0.100  # added to observed and predicted: small prompts say little
    full_s: float = 0.200  # a prediction this long counts in full
    clip: float = 2.0  # of the logarithm
    calm_clip: float = 3.0  # ... below 0 without a queue: no accident is ten times as fast, a wrong table may be
    dead_zone: float = 0.15
    silence_s: float = 2.0
    relax_s: float = 30.0
    discount: float = 0.99  # slow: weight of a sample falls by this with each newer one
    prior_samples: float = 4.0
    freeze: float = 0.2  # |ln S| below this is no correction
    restart: float = 0.5  # a correction moved by more: what was learned under the old one weighs like the prior
    alert: float = 0.5  # |ln S| above this: the class table is wrong for this fleet
    calibrate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PickSettings:
    """All of it. `site` is the gateway's own; `known_models` exist even while no cell serves them."""

    cost: CostSettings = CostSettings()
    learning: LearningSettings = LearningSettings()
    rates: tuple[tuple[str, float], ...] = ()  # hardware class, "" = all -> times of the table by this factor
    site: str = ""
    known_models: tuple[str, ...] = ()
    estimate_margin: float = 0.15  # by which an estimated prompt may really be longer, or shorter
    others_decay_s: float = OTHERS_DECAY_S
    cooldown_s: float = 1.0  # after 429 or 503 without Retry-After
    cooldown_max_s: float = 120.0
    lease_s: float = 900.0  # a request without an outcome for so long is released
    max_bookings: int = 65_536  # at the bound the oldest is released as if its lease were over
    candidates: int = 4
    alternatives: int = 3
    max_excluded: int = 16
