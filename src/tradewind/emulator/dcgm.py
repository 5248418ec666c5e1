"""A dcgm-exporter page: the default counters, by the names and units of exporters up to 4.8.4 or of 4.9.0.

The 4.9.0 names are inferred (release note, field aliases), as the project's engine reference says. SM activity,
throttle reasons and thermal violations are not default counters; they are on here because operators are asked to
enable them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tradewind.engine.gpu import VRAM_USED_RATIO, GpuSignals
from tradewind.engine.profiles import Gpu

FB_RESERVED_MIB = 485.0
DRIVER_VERSION = "570.124.06"
SENTINEL_INT64 = "9223372036854775794"
SENTINEL_DOUBLE = "140737488355328.0"
_NEW_HELP = "(see DCGM field reference)"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One GPU at one moment."""

    index: int
    uuid: str
    hostname: str
    gpu: Gpu
    signals: GpuSignals
    temperature_c: float
    power_w: float
    clock_ratio: float
    throttle_bits: int
    energy_j: float
    thermal_violation_s: float
    xid: int
    pcie_replays: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class _Field:
    old: str
    new: str
    factor: float  # old value -> new value
    kind: str
    help_text: str
    value: Callable[[GpuRow], float]  # in the old unit
    real: bool = False  # printed with decimals


def _used_mib(row: GpuRow) -> float:
    return round(row.gpu.vram_mib * VRAM_USED_RATIO) if row.loaded else 0.0


_FIELDS: tuple[_Field, ...] = (
    _Field("DEV_SM_CLOCK", "DEV_SM_CLOCK_HERTZ", 1e6, "gauge", "SM clock frequency (in MHz).",
           lambda row: round(row.gpu.sm_clock_hz * row.clock_ratio / 1e6)),
    _Field("DEV_MEM_CLOCK", "DEV_MEMORY_CLOCK_HERTZ", 1e6, "gauge", "Memory clock frequency (in MHz).",
           lambda row: round(row.gpu.memory_clock_hz / 1e6)),
    _Field("DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS", 1, "gauge", "Memory temperature (in C).",
           lambda row: round(row.temperature_c + 6)),
    _Field("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", 1, "gauge", "GPU temperature (in C).",
           lambda row: round(row.temperature_c)),
    _Field("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", 1, "gauge", "Power draw (in W).",
           lambda row: row.power_w, real=True),
    _Field("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3, "counter",
           "Total energy consumption since boot (in mJ).", lambda row: round(row.energy_j * 1e3)),
    _Field("DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", 1, "counter", "Total number of PCIe retries.",
           lambda row: row.pcie_replays),
    _Field("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", 0.01, "gauge", "GPU utilization (in %).",
           lambda row: round(100 * row.signals.util_ratio)),
    _Field("DEV_MEM_COPY_UTIL", "DEV_MEMORY_UTIL_RATIO", 0.01, "gauge", "Memory utilization (in %).",
           lambda row: round(100 * row.signals.dram_active_ratio)),
    _Field("DEV_ENC_UTIL", "DEV_ENC_UTIL_RATIO", 0.01, "gauge", "Encoder utilization (in %).", lambda _: 0),
    _Field("DEV_DEC_UTIL", "DEV_DEC_UTIL_RATIO", 0.01, "gauge", "Decoder utilization (in %).", lambda _: 0),
    _Field("DEV_XID_ERRORS", "DEV_XID_ERROR", 1, "gauge", "Value of the last XID error encountered.",
           lambda row: row.xid),
    _Field("DEV_FB_FREE", "DEV_FB_FREE_BYTES", 1048576, "gauge", "Framebuffer memory free (in MiB).",
           lambda row: round(row.gpu.vram_mib - FB_RESERVED_MIB - _used_mib(row))),
    _Field("DEV_FB_USED", "DEV_FB_USED_BYTES", 1048576, "gauge", "Framebuffer memory used (in MiB).", _used_mib),
    _Field("DEV_FB_RESERVED", "DEV_FB_RESERVED_BYTES", 1048576, "gauge", "Framebuffer memory reserved (in MiB).",
           lambda _: FB_RESERVED_MIB),
    _Field("DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", 1e6, "counter",
           "Total number of NVLink bandwidth counters for all lanes.", lambda _: 0),
    _Field("DEV_VGPU_LICENSE_STATUS", "DEV_VGPU_LICENSE_STATUS", 1, "gauge", "vGPU License status", lambda _: 0),
    _Field("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1, "counter",
           "Number of remapped rows for uncorrectable errors", lambda _: 0),
    _Field("DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1, "counter",
           "Number of remapped rows for correctable errors", lambda _: 0),
    _Field("DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", 1, "gauge", "Whether remapping of rows has failed",
           lambda _: 0),
    _Field("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", 1, "gauge",
           "Ratio of time the graphics engine is active.", lambda row: row.signals.util_ratio, real=True),
    _Field("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", 1, "gauge",
           "Ratio of cycles the tensor (HMMA) pipe is active.", lambda row: row.signals.tensor_active_ratio, real=True),
    _Field("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", 1, "gauge",
           "Ratio of cycles the device memory interface is active sending or receiving data.",
           lambda row: row.signals.dram_active_ratio, real=True),
    _Field("PROF_PCIE_TX_BYTES", "PROF_PCIE_TX_BYTES", 1, "gauge",
           "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in "
           "bytes per second.", lambda row: round(row.signals.pcie_tx_bytes_per_s)),
    _Field("PROF_PCIE_RX_BYTES", "PROF_PCIE_RX_BYTES", 1, "gauge",
           "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes "
           "per second.", lambda row: round(row.signals.pcie_rx_bytes_per_s)),
    _Field("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", 1, "gauge",
           "The ratio of cycles an SM has at least 1 warp assigned.",
           lambda row: row.signals.sm_active_ratio, real=True),
    _Field("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS", 1, "gauge",
           "Current clock throttle reasons (bitmask)", lambda row: row.throttle_bits),
    _Field("DEV_THERMAL_VIOLATION", "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1e-9, "counter",
           "Throttling duration due to thermal constraints (in ns).", lambda row: round(row.thermal_violation_s * 1e9)),
)  # fmt: skip


def render(rows: Sequence[GpuRow], *, new_names: bool, sentinels: bool = False) -> bytes:
    """The page. `sentinels` prints blank values as old exporters did."""
    lines: list[str] = []
    for field in _FIELDS:
        name = f"DCGM_FI_{field.new if new_names else field.old}"
        lines.append(f"# HELP {name} {_NEW_HELP if new_names else field.help_text}")
        lines.append(f"# TYPE {name} {field.kind}")
        for row in rows:
            value = _sentinel(field) if sentinels else _format(field, row, new_names=new_names)
            lines.append(f"{name}{{{_labels(row, new_names=new_names)}}} {value}")
    return ("\n".join(lines) + "\n").encode()


def _sentinel(field: _Field) -> str:
    return SENTINEL_DOUBLE if field.real else SENTINEL_INT64


def _format(field: _Field, row: GpuRow, *, new_names: bool) -> str:
    value = field.value(row)
    if new_names and field.factor != 1:
        value *= field.factor
        return f"{value:.12g}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if field.real else str(round(value))


def _labels(row: GpuRow, *, new_names: bool) -> str:
    host, driver = (
        ("hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION") if new_names else ("Hostname", "DCGM_FI_DRIVER_VERSION")
    )
    return (
        f'gpu="{row.index}",UUID="{row.uuid}",pci_bus_id="00000000:{(0x1B + 0x10 * row.index) & 0xFF:02X}:00.0",'
        f'device="nvidia{row.index}",modelName="{row.gpu.model_name}",{host}="{row.hostname}",{driver}="{DRIVER_VERSION}"'
    )
