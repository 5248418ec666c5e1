from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Capabilities(_message.Message):
    __slots__ = ("models", "lora_models", "max_model_len", "kv_capacity_tokens", "block_size_tokens", "engine", "engine_version", "hardware")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LORA_MODELS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedScalarFieldContainer[str]
    lora_models: _containers.RepeatedScalarFieldContainer[str]
    max_model_len: int
    kv_capacity_tokens: int
    block_size_tokens: int
    engine: str
    engine_version: str
    hardware: str
    def __init__(self, models: _Optional[_Iterable[str]] = ..., lora_models: _Optional[_Iterable[str]] = ..., max_model_len: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ..., block_size_tokens: _Optional[int] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., hardware: _Optional[str] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ("cell_id", "site", "address", "capabilities", "labels")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    site: str
    address: str
    capabilities: Capabilities
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    def __init__(self, cell_id: _Optional[str] = ..., site: _Optional[str] = ..., address: _Optional[str] = ..., capabilities: _Optional[_Union[Capabilities, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("bounds", "counts", "total")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[float]
    total: float
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[float]] = ..., total: _Optional[float] = ...) -> None: ...

class EngineReading(_message.Message):
    __slots__ = ("queue_requests", "running_requests", "kv_fill_ratio", "kv_fill_max_ratio", "ttft_s", "itl_s", "prompt_tokens_total", "prompt_computed_tokens_total", "generation_tokens_total", "steps_total", "prefix_query_tokens_total", "prefix_hit_tokens_total", "preemptions_total", "finished_total", "server_errors_total", "sleeping", "start_time_s")
    QUEUE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    KV_FILL_RATIO_FIELD_NUMBER: _ClassVar[int]
    KV_FILL_MAX_RATIO_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    ITL_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_COMPUTED_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STEPS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_QUERY_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HIT_TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SERVER_ERRORS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SLEEPING_FIELD_NUMBER: _ClassVar[int]
    START_TIME_S_FIELD_NUMBER: _ClassVar[int]
    queue_requests: float
    running_requests: float
    kv_fill_ratio: float
    kv_fill_max_ratio: float
    ttft_s: Histogram
    itl_s: Histogram
    prompt_tokens_total: float
    prompt_computed_tokens_total: float
    generation_tokens_total: float
    steps_total: float
    prefix_query_tokens_total: float
    prefix_hit_tokens_total: float
    preemptions_total: float
    finished_total: float
    server_errors_total: float
    sleeping: bool
    start_time_s: float
    def __init__(self, queue_requests: _Optional[float] = ..., running_requests: _Optional[float] = ..., kv_fill_ratio: _Optional[float] = ..., kv_fill_max_ratio: _Optional[float] = ..., ttft_s: _Optional[_Union[Histogram, _Mapping]] = ..., itl_s: _Optional[_Union[Histogram, _Mapping]] = ..., prompt_tokens_total: _Optional[float] = ..., prompt_computed_tokens_total: _Optional[float] = ..., generation_tokens_total: _Optional[float] = ..., steps_total: _Optional[float] = ..., prefix_query_tokens_total: _Optional[float] = ..., prefix_hit_tokens_total: _Optional[float] = ..., preemptions_total: _Optional[float] = ..., finished_total: _Optional[float] = ..., server_errors_total: _Optional[float] = ..., sleeping: _Optional[bool] = ..., start_time_s: _Optional[float] = ...) -> None: ...

class GpuReading(_message.Message):
    __slots__ = ("gpus", "util_ratio", "vram_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio", "temperature_c", "memory_temperature_c", "sm_clock_hz", "power_w", "throttle_bits", "xid", "xid_count", "ecc_uncorrected_total", "pcie_replay_total", "pcie_bytes_per_s")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    UTIL_RATIO_FIELD_NUMBER: _ClassVar[int]
    VRAM_RATIO_FIELD_NUMBER: _ClassVar[int]
    SM_ACTIVE_RATIO_FIELD_NUMBER: _ClassVar[int]
    TENSOR_ACTIVE_RATIO_FIELD_NUMBER: _ClassVar[int]
    DRAM_ACTIVE_RATIO_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_HZ_FIELD_NUMBER: _ClassVar[int]
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_BITS_FIELD_NUMBER: _ClassVar[int]
    XID_FIELD_NUMBER: _ClassVar[int]
    XID_COUNT_FIELD_NUMBER: _ClassVar[int]
    ECC_UNCORRECTED_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PCIE_REPLAY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PCIE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    util_ratio: float
    vram_ratio: float
    sm_active_ratio: float
    tensor_active_ratio: float
    dram_active_ratio: float
    temperature_c: float
    memory_temperature_c: float
    sm_clock_hz: float
    power_w: float
    throttle_bits: int
    xid: int
    xid_count: float
    ecc_uncorrected_total: float
    pcie_replay_total: float
    pcie_bytes_per_s: float
    def __init__(self, gpus: _Optional[int] = ..., util_ratio: _Optional[float] = ..., vram_ratio: _Optional[float] = ..., sm_active_ratio: _Optional[float] = ..., tensor_active_ratio: _Optional[float] = ..., dram_active_ratio: _Optional[float] = ..., temperature_c: _Optional[float] = ..., memory_temperature_c: _Optional[float] = ..., sm_clock_hz: _Optional[float] = ..., power_w: _Optional[float] = ..., throttle_bits: _Optional[int] = ..., xid: _Optional[int] = ..., xid_count: _Optional[float] = ..., ecc_uncorrected_total: _Optional[float] = ..., pcie_replay_total: _Optional[float] = ..., pcie_bytes_per_s: _Optional[float] = ...) -> None: ...

class HostReading(_message.Message):
    __slots__ = ("cpu_throttled_ratio",)
    CPU_THROTTLED_RATIO_FIELD_NUMBER: _ClassVar[int]
    cpu_throttled_ratio: float
    def __init__(self, cpu_throttled_ratio: _Optional[float] = ...) -> None: ...

class CacheReading(_message.Message):
    __slots__ = ("clearings", "untouched_s", "resident_tokens")
    CLEARINGS_FIELD_NUMBER: _ClassVar[int]
    UNTOUCHED_S_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    clearings: int
    untouched_s: float
    resident_tokens: int
    def __init__(self, clearings: _Optional[int] = ..., untouched_s: _Optional[float] = ..., resident_tokens: _Optional[int] = ...) -> None: ...

class UnknownSignal(_message.Message):
    __slots__ = ("signal", "reason")
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    signal: str
    reason: str
    def __init__(self, signal: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("engine", "engine_age_s", "gpu", "gpu_age_s", "gpu_interval_s", "host", "unknown", "flags", "cache")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    GPU_AGE_S_FIELD_NUMBER: _ClassVar[int]
    GPU_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    engine: EngineReading
    engine_age_s: float
    gpu: GpuReading
    gpu_age_s: float
    gpu_interval_s: float
    host: HostReading
    unknown: _containers.RepeatedCompositeFieldContainer[UnknownSignal]
    flags: _containers.RepeatedScalarFieldContainer[str]
    cache: CacheReading
    def __init__(self, engine: _Optional[_Union[EngineReading, _Mapping]] = ..., engine_age_s: _Optional[float] = ..., gpu: _Optional[_Union[GpuReading, _Mapping]] = ..., gpu_age_s: _Optional[float] = ..., gpu_interval_s: _Optional[float] = ..., host: _Optional[_Union[HostReading, _Mapping]] = ..., unknown: _Optional[_Iterable[_Union[UnknownSignal, _Mapping]]] = ..., flags: _Optional[_Iterable[str]] = ..., cache: _Optional[_Union[CacheReading, _Mapping]] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("reachable", "model_listed", "warmed_up", "draining", "reason")
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_LISTED_FIELD_NUMBER: _ClassVar[int]
    WARMED_UP_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reachable: bool
    model_listed: bool
    warmed_up: bool
    draining: bool
    reason: str
    def __init__(self, reachable: _Optional[bool] = ..., model_listed: _Optional[bool] = ..., warmed_up: _Optional[bool] = ..., draining: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("cell", "incarnation", "sequence", "evidence", "telemetry")
    CELL_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    cell: Cell
    incarnation: str
    sequence: int
    evidence: Evidence
    telemetry: Telemetry
    def __init__(self, cell: _Optional[_Union[Cell, _Mapping]] = ..., incarnation: _Optional[str] = ..., sequence: _Optional[int] = ..., evidence: _Optional[_Union[Evidence, _Mapping]] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("cell_id", "control_id", "refused", "acked_sequence")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ID_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    control_id: str
    refused: str
    acked_sequence: int
    def __init__(self, cell_id: _Optional[str] = ..., control_id: _Optional[str] = ..., refused: _Optional[str] = ..., acked_sequence: _Optional[int] = ...) -> None: ...

class CellView(_message.Message):
    __slots__ = ("cell", "state", "incarnation", "sequence", "reason", "silent", "draining", "telemetry")
    CELL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    cell: Cell
    state: str
    incarnation: str
    sequence: int
    reason: str
    silent: bool
    draining: bool
    telemetry: Telemetry
    def __init__(self, cell: _Optional[_Union[Cell, _Mapping]] = ..., state: _Optional[str] = ..., incarnation: _Optional[str] = ..., sequence: _Optional[int] = ..., reason: _Optional[str] = ..., silent: _Optional[bool] = ..., draining: _Optional[bool] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ...) -> None: ...

class ViewVersion(_message.Message):
    __slots__ = ("control_id", "incarnation", "counter")
    CONTROL_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    control_id: str
    incarnation: str
    counter: int
    def __init__(self, control_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., counter: _Optional[int] = ...) -> None: ...

class ViewDelta(_message.Message):
    __slots__ = ("version", "full", "cells", "removed", "others", "order", "prefix_key", "placed")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    PREFIX_KEY_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    version: ViewVersion
    full: bool
    cells: _containers.RepeatedCompositeFieldContainer[CellView]
    removed: _containers.RepeatedScalarFieldContainer[str]
    others: _containers.RepeatedCompositeFieldContainer[GatewayLoad]
    order: TuningOrder
    prefix_key: int
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    def __init__(self, version: _Optional[_Union[ViewVersion, _Mapping]] = ..., full: _Optional[bool] = ..., cells: _Optional[_Iterable[_Union[CellView, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ..., others: _Optional[_Iterable[_Union[GatewayLoad, _Mapping]]] = ..., order: _Optional[_Union[TuningOrder, _Mapping]] = ..., prefix_key: _Optional[int] = ..., placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("rtt", "queue")
    RTT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    rtt: float
    queue: float
    def __init__(self, rtt: _Optional[float] = ..., queue: _Optional[float] = ...) -> None: ...

class TuningOrder(_message.Message):
    __slots__ = ("driver", "generation", "weights", "child", "child_share")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    CHILD_SHARE_FIELD_NUMBER: _ClassVar[int]
    driver: str
    generation: int
    weights: Weights
    child: Weights
    child_share: float
    def __init__(self, driver: _Optional[str] = ..., generation: _Optional[int] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., child: _Optional[_Union[Weights, _Mapping]] = ..., child_share: _Optional[float] = ...) -> None: ...

class CellLoad(_message.Message):
    __slots__ = ("cell_id", "requests", "waiting_tokens", "decoding")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODING_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    requests: int
    waiting_tokens: int
    decoding: int
    def __init__(self, cell_id: _Optional[str] = ..., requests: _Optional[int] = ..., waiting_tokens: _Optional[int] = ..., decoding: _Optional[int] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("cell_id", "blocks")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cell_id: _Optional[str] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class GatewayLoad(_message.Message):
    __slots__ = ("gateway_id", "age_s", "cells")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    age_s: float
    cells: _containers.RepeatedCompositeFieldContainer[CellLoad]
    def __init__(self, gateway_id: _Optional[str] = ..., age_s: _Optional[float] = ..., cells: _Optional[_Iterable[_Union[CellLoad, _Mapping]]] = ...) -> None: ...

class PathReading(_message.Message):
    __slots__ = ("cell_id", "rtt_s", "jitter_s", "reachable", "succeeded", "failed", "in_flight", "waiting_tokens", "decoding", "slowness_ratio", "prefill_tokens_per_s", "first_tokens")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    JITTER_S_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODING_FIELD_NUMBER: _ClassVar[int]
    SLOWNESS_RATIO_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    rtt_s: float
    jitter_s: float
    reachable: bool
    succeeded: int
    failed: int
    in_flight: int
    waiting_tokens: int
    decoding: int
    slowness_ratio: float
    prefill_tokens_per_s: float
    first_tokens: int
    def __init__(self, cell_id: _Optional[str] = ..., rtt_s: _Optional[float] = ..., jitter_s: _Optional[float] = ..., reachable: _Optional[bool] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., in_flight: _Optional[int] = ..., waiting_tokens: _Optional[int] = ..., decoding: _Optional[int] = ..., slowness_ratio: _Optional[float] = ..., prefill_tokens_per_s: _Optional[float] = ..., first_tokens: _Optional[int] = ...) -> None: ...

class CellWeight(_message.Message):
    __slots__ = ("cell_id", "weight")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    weight: int
    def __init__(self, cell_id: _Optional[str] = ..., weight: _Optional[int] = ...) -> None: ...

class CellPressure(_message.Message):
    __slots__ = ("cell_id", "pressure")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    PRESSURE_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    pressure: float
    def __init__(self, cell_id: _Optional[str] = ..., pressure: _Optional[float] = ...) -> None: ...

class CellNote(_message.Message):
    __slots__ = ("cell_id", "note")
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    cell_id: str
    note: str
    def __init__(self, cell_id: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class GatewayReport(_message.Message):
    __slots__ = ("gateway_id", "site", "sequence", "paths", "weights", "pressures", "notes", "samples", "prefix_key", "placed")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    SITE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PRESSURES_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_KEY_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    site: str
    sequence: int
    paths: _containers.RepeatedCompositeFieldContainer[PathReading]
    weights: _containers.RepeatedCompositeFieldContainer[CellWeight]
    pressures: _containers.RepeatedCompositeFieldContainer[CellPressure]
    notes: _containers.RepeatedCompositeFieldContainer[CellNote]
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    prefix_key: int
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    def __init__(self, gateway_id: _Optional[str] = ..., site: _Optional[str] = ..., sequence: _Optional[int] = ..., paths: _Optional[_Iterable[_Union[PathReading, _Mapping]]] = ..., weights: _Optional[_Iterable[_Union[CellWeight, _Mapping]]] = ..., pressures: _Optional[_Iterable[_Union[CellPressure, _Mapping]]] = ..., notes: _Optional[_Iterable[_Union[CellNote, _Mapping]]] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., prefix_key: _Optional[int] = ..., placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("driver", "generation", "child", "cell_id", "dispatched_s", "finished_s", "rtt_s", "queue_s", "prefill_s", "prompt_tokens", "uncached_tokens", "least_uncached_tokens", "ttft_s", "e2e_s", "itl_s", "failed")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHILD_FIELD_NUMBER: _ClassVar[int]
    CELL_ID_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_S_FIELD_NUMBER: _ClassVar[int]
    FINISHED_S_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    QUEUE_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UNCACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LEAST_UNCACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    E2E_S_FIELD_NUMBER: _ClassVar[int]
    ITL_S_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    driver: str
    generation: int
    child: bool
    cell_id: str
    dispatched_s: float
    finished_s: float
    rtt_s: float
    queue_s: float
    prefill_s: float
    prompt_tokens: int
    uncached_tokens: int
    least_uncached_tokens: int
    ttft_s: float
    e2e_s: float
    itl_s: float
    failed: bool
    def __init__(self, driver: _Optional[str] = ..., generation: _Optional[int] = ..., child: _Optional[bool] = ..., cell_id: _Optional[str] = ..., dispatched_s: _Optional[float] = ..., finished_s: _Optional[float] = ..., rtt_s: _Optional[float] = ..., queue_s: _Optional[float] = ..., prefill_s: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., uncached_tokens: _Optional[int] = ..., least_uncached_tokens: _Optional[int] = ..., ttft_s: _Optional[float] = ..., e2e_s: _Optional[float] = ..., itl_s: _Optional[float] = ..., failed: _Optional[bool] = ...) -> None: ...
