"""The admin API's documents: what goes out and what may come in. The OpenAPI schemas are made from these."""

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object; null means unknown, never zero."""


class UnknownRow(Row, frozen=True, kw_only=True):
    """A signal that could not be read, and why."""

    signal: str
    reason: str


class CellRow(Row, frozen=True, kw_only=True):
    """One cell as control sees it."""

    cell_id: str
    site: str
    address: str
    state: str
    reason: str
    silent: bool
    draining: bool
    incarnation: str
    sequence: int
    state_age_s: float | None
    heartbeat_age_s: float | None
    engine_age_s: float | None
    gpu_age_s: float | None
    models: list[str]
    lora_models: list[str]
    max_model_len: int | None
    kv_capacity_tokens: int | None
    engine: str | None
    engine_version: str | None
    hardware: str | None
    labels: dict[str, str]
    signals: dict[str, float | bool | None]
    unknown: list[UnknownRow]
    flags: list[str]
    in_flight: int
    conflict: str


class DrainRow(Row, frozen=True, kw_only=True):
    """An operator's drain."""

    cell_id: str
    since: str
    reason: str


class GridRow(Row, frozen=True, kw_only=True):
    """The whole grid."""

    grid: str
    control_id: str
    incarnation: str
    version: int
    publishing: bool
    holding_back_because: str
    cells: list[CellRow]
    drains: list[DrainRow]


class PathRow(Row, frozen=True, kw_only=True):
    """What a gateway knows of the path to a cell."""

    cell_id: str
    rtt_s: float | None
    jitter_s: float | None
    reachable: bool | None
    succeeded: int
    failed: int
    in_flight: int
    slowness_ratio: float | None  # as its picker has learned; 1 = as its hardware class; null: no picker
    prefill_tokens_per_s: float | None
    first_tokens: int | None  # that have taught it


class GatewayRow(Row, frozen=True, kw_only=True):
    """The last report of one gateway, and how well it keeps up with the views."""

    gateway_id: str
    site: str
    connected: bool
    report_sequence: int
    report_age_s: float
    views_sent: int
    waiting_cells: int
    waiting_blocks: int  # of prompts that other gateways have placed
    prefixes_shared: bool  # it hashes prompts by the key of the grid, so that others' prompts mean something to it
    paths: list[PathRow]
    weights: dict[str, int]
    pressures: dict[str, float]
    notes: dict[str, str]


class GatewaysRow(Row, frozen=True, kw_only=True):
    """All gateways that reported lately."""

    gateways: list[GatewayRow]


class EventRow(Row, frozen=True, kw_only=True):
    """One change. `sequence` counts from 1 within one control process; cell_id is null when it concerns no one cell."""

    sequence: int
    at_unix_s: float
    name: str
    cell_id: str | None
    detail: str


class EventsRow(Row, frozen=True, kw_only=True):
    """The newest changes, oldest first; `last` is the newest sequence of all, `dropped` older ones are gone."""

    events: list[EventRow]
    last: int
    dropped: int


class StateRow(Row, frozen=True, kw_only=True):
    """The state file's health."""

    path: str
    saved: bool
    problem: str
    started_empty_because: str
    failures: int


class StatusRow(Row, frozen=True, kw_only=True):
    """The control process itself."""

    control_id: str
    incarnation: str
    version: str
    uptime_s: float
    publishing: bool
    holding_back_because: str
    cells: dict[str, int]
    gateways: int
    state: StateRow
    loop_lag_s: float
    loop_lag_worst_s: float
    counters: dict[str, int]


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Optional body of a drain."""

    reason: str = ""


class CellReply(Row, frozen=True, kw_only=True):
    """What an operator's order led to. `saved`: it would survive a restart of control."""

    cell_id: str
    state: str
    draining: bool
    saved: bool


class WeightsRow(Row, frozen=True, kw_only=True):
    """Factors on two terms of a pick's cost; 1 is the physical rate."""

    rtt: float
    queue: float


class TunerEventRow(Row, frozen=True, kw_only=True):
    """One line of the tuner's history. `sequence` counts through restarts of control; `weights` are those after it."""

    sequence: int
    at_unix_s: float
    what: str
    generation: int
    weights: WeightsRow
    child: WeightsRow | None
    reason: str
    figures: dict[str, float] = {}


class TunerHistoryRow(Row, frozen=True, kw_only=True):
    """The newest lines, oldest first; `last` is the newest sequence of all, lines before `first` are gone."""

    events: list[TunerEventRow]
    first: int
    last: int


class TunerBoxRow(Row, frozen=True, kw_only=True):
    """Where weights may be."""

    rtt: list[float]
    queue: list[float]
    most_ratio: float


class SpreadRow(Row, frozen=True, kw_only=True):
    """Relative standard error of a figure over one request; over n it is sqrt(n) times less."""

    p95_ttft: float
    log_ttft: float
    mean_e2e: float


class TunerRow(Row, frozen=True, kw_only=True):
    """The tuner of this control. A child's weights are compared on `child_share` of the requests."""

    kind: str
    driver: str
    generation: int | None
    weights: WeightsRow | None
    child: WeightsRow | None
    child_share: float
    frozen: bool
    checking: bool
    problem: str
    start: WeightsRow
    box: TunerBoxRow
    samples: int
    samples_of_others: int
    samples_lost: int
    sample_age_s: float | None
    requests_per_s: float | None
    spread: SpreadRow | None
    learn_worst_s: float
    events: dict[str, int]


class TunerReply(Row, frozen=True, kw_only=True):
    """What an operator's order to the tuner led to. `saved`: it would survive a restart of control."""

    tuner: TunerRow
    saved: bool


class SetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights to put in force."""

    rtt: float
    queue: float
    reason: str = ""


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights in force are compared with `other`, all requests by turns in blocks."""

    other: WeightsRow
    requests: int = 8_000
    seed: int = 0


class EstimateRow(Row, frozen=True, kw_only=True):
    """One figure under both settings; changes with their 95 % interval are relative to the present one."""

    figure: str
    unit: str
    present: float
    other: float
    change: float
    low: float
    high: float
    pairs: int


class AnswerRow(Row, frozen=True, kw_only=True):
    """What a check has shown. `winner`: other, present, or empty where it cannot be told."""

    told: str
    winner: str
    failed_present: int
    failed_other: int
    estimates: list[EstimateRow]


class CheckRow(Row, frozen=True, kw_only=True):
    """The newest check of this control process. `answer` null: it runs, or was given up."""

    present: WeightsRow
    other: WeightsRow
    requests: int
    heard: int
    running: bool
    answer: AnswerRow | None


class HealthRow(Row, frozen=True, kw_only=True):
    """`ok`, or why not."""

    status: str


class ErrorRow(Row, frozen=True, kw_only=True):
    """What was wrong with a request and what to write instead."""

    code: str
    message: str


class ErrorReply(Row, frozen=True, kw_only=True):
    """Every error of this API has this shape."""

    error: ErrorRow
