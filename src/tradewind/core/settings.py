"""Every constant of the scoring, named; the recipe is reference section 7 of the pressure study."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """Lines 1-7: what counts as full pressure, and how much each signal says."""

    stale_s: float = 3.0  # an older reading is unknown
    queue_full_requests: float = 8.0
    slo_ttft_s: float = 1.5
    ttft_window_s: float = 10.0
    ttft_decay_s: float = 10.0  # without new samples the last TTFT fades by exp(-age / this)
    kv_alert_ratio: float = 0.90
    vram_floor_ratio: float = 0.95  # engines preallocate: only the last 5 % carry news
    sm_full_ratio: float = 0.92
    tensor_full_ratio: float = 0.80
    dram_full_ratio: float = 0.85
    rtt_full_s: float = 0.100
    rtt_alpha: float = 0.3
    jitter_full_s: float = 0.020
    frozen_s: float = 10.0  # GPU values that never move under load for this long are not values
    frozen_intervals: float = 2.5  # ... but at least this many update intervals
    frozen_unknown_interval_s: float = 40.0  # ... or this long where the interval is not known
    own_mean_s: float = 30.0  # a cell alone in its class is imputed from its own mean over this time
    pressure_half_life_s: float = 1.0  # EWMA alpha 0.5 at 1 Hz


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedSettings:
    """Line 8: work done per wall second against the class, and the SM clock."""

    window_s: float = 2.0
    min_steps: float = 8.0
    tolerance: float = 1.4  # slower than 1 / tolerance of the class median is slow
    relax_per_s: float = 0.1
    exponent: float = 2.0
    clock_floor: float = 0.93  # a clock above this share of its baseline is normal
    clock_stale_s: float = 3.0
    clock_baseline_s: float = 600.0
    min_speed: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSettings:
    """Lines 9-11: from pressure to integers, and when to push them."""

    best: int = 134
    gamma: float = 1.0
    capacity_min: float = 0.5
    capacity_max: float = 2.0
    dead_band: float = 0.10  # push when any weight moved by this share
    refresh_s: float = 30.0  # ... or this long after the last push


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """Lines 12-15: when one cell's errors are its own, and when it is believed again."""

    window_s: float = 60.0
    fleet_rate_s: float = 3600.0
    fleet_requests: float = 200.0  # the fleet's rate counts as if from so many requests at least
    floor_rate: float = 0.003  # q0 is never below
    prior_requests: float = 20.0
    min_rate: float = 0.15  # pA is at least this
    min_ratio: float = 1.5  # pA / q below this is no difference
    min_errors: int = 2
    likelihood: float = 8.0
    likelihood_noisy: float = 16.0
    noisy_rate: float = 0.005  # above this fleet rate the noisy bound holds
    concentration_now: float = 0.02
    concentration_later: float = 0.12
    later_s: float = 1.0
    release_window_s: float = 10.0
    release_concentration: float = 0.15
    probe_interval_s: float = 5.0  # 15 s in the study; 5 s brings the share back within the 30 s
    probe_confirm_s: float = 2.0  # second pass after the first
    probe_timeout_s: float = 30.0
    probe_passes: int = 2
    probe_max_tokens: int = 1
    experiment_interval_s: float = 10.0  # one active comparison per pool and this time, doubled while they find nothing
    experiment_interval_max_s: float = 600.0
    experiment_refusals: int = 2  # the suspect must refuse twice: one random error must not convict it
    canary_weight: int = 8
    canary_hold_s: float = 120.0
    canary_hold_max_s: float = 960.0
    canary_successes: int = 3
    relapse_s: float = 60.0  # an error this soon after probes passed: probes do not show this fault
    ramp_s: float = 10.0  # back to full weight after a verdict
    max_records: int = 8192  # requests per pool and kind; the oldest go first
    span_s: float = 0.25  # requests of so long a span
    span_records: int = 128  # ... and so many at most are counted, and forgotten, together


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitySettings:
    """Line 15, last sentence: a cell that says it serves less than its peers."""

    much_less: float = 0.5  # below this share of the pool's largest max_model_len a limit is news
    keep_unproven: float = 2 / 3  # without long prompts seen, this share of the pool must remain
    keep_proven: float = 1 / 3  # with long prompts seen
    memory_s: float = 600.0  # a prompt length is remembered this long
    min_requests: int = 200  # only after so many short prompts in memory_s is a pool believed to be short
    margin: float = 2.0  # ... and the longest of them fits this many times
    bytes_per_token: float = 4.0  # until usage has taught better


@dataclass(frozen=True, slots=True, kw_only=True)
class BackpressureSettings:
    """Line 16: 429 and 503 from the engine itself."""

    window_s: float = 1.0
    factor: float = 0.5
    floor: float = 1 / 16
    max_hold_s: float = 30.0
    recovery_per_s: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Lines 17-18: heat, foreign load, failing hardware."""

    hardware_half_life_s: float = 1.0
    hardware_full: float = 0.86
    residual_z: float = 4.4
    residual_window_s: float = 5.0
    residual_alpha: float = 0.3
    learn_s: float = 86_400.0  # learned maxima are used after this much observation
    memory_s: float = 7 * 86_400.0
    temperature_margin_c: float = 1.5
    temperature_slow_c: float = 83.0
    temperature_ahead_s: float = 30.0
    temperature_ahead_margin_c: float = 3.0
    slope_max_c_per_s: float = 2.0
    clock_ratio: float = 0.985
    clock_s: float = 2.0
    pcie_ratio: float = 2.0
    pcie_s: float = 2.0
    kv_pool_median: float = 0.75  # a full KV cache is this cell's own trouble only while the pool's median is below
    clear_s: float = 30.0
    clear_margin: float = 0.05
    xid_window_s: float = 60.0
    interval_max_s: float = 5.0  # GPU values that change more rarely promise no lead
    min_others: int = 3  # removal needs so many other READY cells; else weight 1
    max_share: float = 1 / 3  # of the pool may be drained


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStartSettings:
    """Line 19: warm by evidence."""

    floor: float = 0.1
    served_full: float = 60.0
    low_reuse: float = 0.2
    low_reuse_s: float = 30.0
    idle_done_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSettings:
    """Line 20, with the gateway's own evidence: see blind.py."""

    hold_s: float = 5.0
    share_unproven: float = 0.5  # of the pool's median
    share_proven: float = 0.9  # while the gateway itself sees it serve as its peers do
    proof_s: float = 30.0
    proof_ttft_ratio: float = 1.5
    min_proofs: int = 3
    observer_share: float = 0.5  # more than this of the pool blind at once: the observer is


@dataclass(frozen=True, slots=True, kw_only=True)
class EjectionSettings:
    """Last row of the evidence table: what this gateway alone sees."""

    unreachable_readings: int = 2
    failures: int = 3
    window_s: float = 5.0
    hold_s: float = 5.0
    hold_max_s: float = 80.0
    forgive_s: float = 120.0
    observer_share: float = 0.5  # more than this of the pool at once: the observer is cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """All of it. `probes` False: nobody sends ProbeOrders, recovery goes by canary."""

    probes: bool = True
    capacity_prior: tuple[tuple[str, float], ...] = ()  # cell id -> relative capacity
    signals: SignalSettings = SignalSettings()
    speed: SpeedSettings = SpeedSettings()
    projection: ProjectionSettings = ProjectionSettings()
    verdicts: VerdictSettings = VerdictSettings()
    capability: CapabilitySettings = CapabilitySettings()
    backpressure: BackpressureSettings = BackpressureSettings()
    alerts: AlertSettings = AlertSettings()
    slow_start: SlowStartSettings = SlowStartSettings()
    blind: BlindSettings = BlindSettings()
    ejection: EjectionSettings = EjectionSettings()
