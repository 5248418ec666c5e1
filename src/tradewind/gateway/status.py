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


class GateRow(Row, frozen=True, kw_only=True):
    """The first-token gate in force: wasm, native or none. `missing`: one is wanted, and not to be had."""

    mode: str
    missing: bool
    wanted: str
    why: str
    envoy: str  # the version that was asked; "" = none was


class PushRow(Row, frozen=True, kw_only=True):
    """How often Envoy was told something, and what is being held back."""

    snapshots: int
    refused: list[str]  # what was left out of the newest snapshot, and why
    last_age_s: float | None
    held_back: int  # ticks since the last push whose weights moved less than the dead band
    update_us: float | None  # decision to built snapshot, newest
    version: str


class PickCellRow(Row, frozen=True, kw_only=True):
    """One cell in the picker's books; what is in flight is this gateway's own."""

    cell_id: str
    in_flight: int
    decoding: int  # of them with a first token
    waiting_tokens: int  # of prompts that wait for a first token, without what is cached
    slowness_ratio: float  # learned; 1 = as its hardware class
    prefill_tokens_per_s: float  # that follows from it, of a cold prompt on a cell that does nothing else
    first_tokens: int  # that have taught it
    cooling_s: float | None  # until it is asked again, after it asked for less
    learned_limit_tokens: int | None  # requests so long are not sent, learned from refusals
    predicted_hit_tokens: int  # of requests whose engine told what was cached
    served_hit_tokens: int
    index_blocks: int


class PickClassRow(Row, frozen=True, kw_only=True):
    """How far the table of hardware classes is from this fleet; 1 = it is right."""

    hardware: str
    prefill_ratio: float
    decode_ratio: float
    samples: int
    alert: bool


class TunerRow(Row, frozen=True, kw_only=True):
    """The tuner's order that picks follow; a child's weights are compared on `child_share` of the requests."""

    driver: str
    generation: int
    weights: dict[str, float]
    child: dict[str, float] | None
    child_share: float


class PickStatus(Row, frozen=True, kw_only=True):
    """The picker since it started; counts only grow."""

    policy: str
    questions: int
    picks: int
    ties: int  # picks that were drawn among several
    moved: int  # requests that another cell served than was picked
    refused: int  # told to the client
    left: int  # to the weights, since nothing was certain
    late: int  # picks that Envoy did not wait for
    faults: int
    policy_failures: int  # of a policy file: the request was picked by the weights
    refusals: dict[str, int]  # by kind: why no cell was chosen
    first_tokens: int  # told while the request ran
    outcomes: int  # joined with a decision
    foreign: int  # outcomes of decisions of an earlier process
    in_flight: int
    released: int
    expired: int  # released since no outcome came
    unknown: int  # first tokens and outcomes of decisions that were released before
    seconds: float  # spent deciding
    decision_us: float | None  # mean of all
    connections: int  # of Envoy
    broken_connections: int
    index_blocks: int
    evicted_blocks: int
    prompts_told: int  # to other gateways: what went where
    prompts_heard: int  # from them
    prompts_untold: int  # there were too many at once
    prompts_strange: int  # heard under another key
    quarantines: int  # of requests under which engines died
    quarantined: int  # kinds of requests that are remembered for it
    remembered: int  # requests that can be explained
    reach_s: float | None  # how long ago the oldest of them began
    tuner: TunerRow | None  # None = the policy's own weights
    samples_sent: dict[str, int]  # of requests that followed an order, by control
    cells: list[PickCellRow]
    classes: list[PickClassRow]


class EppStatus(Row, frozen=True, kw_only=True):
    """The endpoint picker for foreign proxies since it started; counts only grow."""

    requests: int
    picked: int
    refused: int
    late: int  # decided by the beginning of a body: it was too slow or too large
    bad: int  # streams ended for breaking the protocol or a bound
    aborted: int  # picked, and the stream ended in the middle of the response
    open_requests: int
    held_bytes: int  # of request bodies
    connections: int
    turned_away: int  # connections beyond the bound
    broken_connections: int


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
    gate: GateRow
    push: PushRow
    pick: PickStatus | None  # None unless this gateway picks
    epp: EppStatus | None  # None unless it listens for foreign proxies
    process: HealthRow
