"""What is wrong with an engine or an exporter right now: whole states, sent again at each change, never differences."""

import msgspec

from tradewind.engine.board import Contention, Heat


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """States travel as JSON between the processes of the emulator."""


class Refusal(_State, frozen=True, kw_only=True):
    """Requests that are refused, as an engine with an unsupported dtype or feature would."""

    share: float = 1.0  # of the matching requests, evenly spread
    status: int = 400
    min_prompt_tokens: int = 0
    max_prompt_tokens: int = 1_000_000_000
    stream: bool | None = None  # only streams, only others, or both
    message: str = "Bfloat16 is only supported on GPUs with compute capability of at least 8.0."


class MetricsFault(_State, frozen=True, kw_only=True):
    """How /metrics misbehaves."""

    mode: str = "500"  # one of METRICS_MODES
    delay_s: float = 5.0  # for "slow"


METRICS_MODES = ("500", "html", "truncated", "empty", "slow", "hang", "frozen")


class PathFault(_State, frozen=True, kw_only=True):
    """What is wrong with the path from one gateway site."""

    cut: bool = False
    reset_after_s: float = 0.0  # of the cut; 0 = never
    rtt_ms: float | None = None
    jitter_ms: float | None = None
    mbit_per_s: float | None = None


class EngineFaults(_State, frozen=True, kw_only=True):
    """All faults in force on one engine."""

    hang: bool = False
    slow: dict[str, float] = {}  # term of the step law -> factor
    thermal: Heat | None = None
    pcie: Contention | None = None
    max_model_len: int | None = None
    advertise_max_model_len: bool = True  # False: /v1/models keeps telling the configured value
    refuse: Refusal | None = None
    metrics: MetricsFault | None = None
    paths: dict[str, PathFault] = {}  # gateway site -> what is wrong
    kv_events_silent: bool = False  # what it publishes gets nowhere, as behind a firewall that has closed the port
    shutdown_timeout_s: float = 0.0  # what SIGTERM does: 0 cuts streams, more lets them finish


EXPORTER_MODES = ("ok", "frozen", "sentinels", "empty")


class ExporterFaults(_State, frozen=True, kw_only=True):
    """All faults in force on one DCGM exporter; a dead one is a killed process."""

    mode: str = "ok"  # one of EXPORTER_MODES
    missing_gpus: tuple[str, ...] = ()  # UUIDs whose rows are gone
