"""The gateway's state as one document: what the admin API answers and what the metrics are made from."""

import msgspec

from tradewind.gateway.ads import TypeState
from tradewind.model.routing import WeightRow


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object; null means unknown, never zero."""


class CellStatus(Row, frozen=True, kw_only=True):
    """One cell of the merged view. `weight` is what Envoy was told, None when the cell is in no pool."""

    cell_id: str
    site: str
    address: str
    state: str
    reason: str
    silent: bool
    draining: bool
    incarnation: str
    sequence: int
    engine_age_s: float | None
    gpu_age_s: float | None
    rtt_s: float | None
    jitter_s: float | None
    reachable: bool | None
    requests: int
    succeeded: int
    failed: int
    weight: int | None
    terms: WeightRow | None  # the scorer's newest row; its weight may wait inside the dead band


class PoolStatus(Row, frozen=True, kw_only=True):
    """One pool as Envoy was told."""

    model: str
    weights: dict[str, int]
    held: bool  # True: no cell looks usable, so the last endpoints stay


class ControlRow(Row, frozen=True, kw_only=True):
    """One control and the stream to it."""

    control_id: str
    address: str
    connected: bool
    age_s: float | None
    cells: int
    connects: int
    failures: int
    malformed: int


class EnvoyRow(Row, frozen=True, kw_only=True):
    """The Envoy of this gateway. `acked`: it has taken a whole snapshot; `settled`: it holds the newest one."""

    connected: bool
    acked: bool
    settled: bool
    types: tuple[TypeState, ...]


class PushRow(Row, frozen=True, kw_only=True):
    """How often Envoy was told something, and what is being held back."""

    snapshots: int
    refused: list[str]  # what was left out of the newest snapshot, and why
    last_age_s: float | None
    held_back: int  # ticks since the last push whose weights moved less than the dead band
    update_us: float | None  # decision to built snapshot, newest
    version: str


class HealthRow(Row, frozen=True, kw_only=True):
    """The process itself."""

    uptime_s: float
    loop_lag_s: float
    loop_lag_worst_s: float
    tasks: int
    config_error: str
    config_applied: int
    config_failures: int
    saved_view_error: str
    saved_view_failures: int
    log_lines_dropped: int
    probes_sent: int
    probes_skipped: int
    outcomes: int
    outcomes_unattributed: int


class GatewayStatus(Row, frozen=True, kw_only=True):
    """Everything at once."""

    grid: str
    gateway_id: str
    site: str
    listen: str
    routing: str
    scoring: str
    baseline: str
    ready: bool
    publishing: bool
    control_live: bool
    from_disk: bool  # True until a control has sent a full view to this process
    cells: list[CellStatus]
    pools: list[PoolStatus]
    controls: list[ControlRow]
    envoy: EnvoyRow
    push: PushRow
    process: HealthRow
