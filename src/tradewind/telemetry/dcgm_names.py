"""DCGM exporter names and units of both generations (up to 4.8.4, and 4.9.0 on) as data."""

from dataclasses import dataclass
from enum import StrEnum

MIB = 1024.0 * 1024.0
PERCENT = 0.01
MEGA = 1e6

MAX_RATIO = 1.02
MAX_VALUE = 1e18
LIMITS = {
    "temperature_c": (0.0, 150.0),
    "memory_temperature_c": (0.0, 150.0),
    "sm_clock_hz": (1e6, 1e11),  # less is MHz under the name of Hz
    "power_w": (0.0, 1e5),
}


class Across(StrEnum):
    """How the GPUs of one cell become one value."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    OR = "or"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Names of one and the same quantity; each with the factor to our unit. The first one that is present is read."""

    names: tuple[tuple[str, float], ...]

    @property
    def usual_name(self) -> str:
        """What most exporters call it, for people: the last name but for those of long ago."""
        return next(name for name, _ in reversed(self.names) if not name.endswith("_THROUGHPUT"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSignal:
    """One field of GpuReading. Of several sources the one that most of the cell's GPUs have is read, for all of them:
    two GPUs are never compared through different quantities."""

    signal: str
    unit: str
    across: Across
    sources: tuple[Source, ...]


def _same(*names: str, factor: float = 1.0) -> tuple[tuple[str, float], ...]:
    return tuple((name, factor) for name in names)


def _dev(*names: tuple[str, float]) -> Source:
    return Source(names=tuple((f"DCGM_FI_DEV_{name}", factor) for name, factor in names))


def _prof(*names: str) -> Source:
    return Source(names=tuple((f"DCGM_FI_PROF_{name}", 1.0) for name in names))


SIGNALS = (
    GpuSignal(
        signal="util_ratio",
        unit="ratio",
        across=Across.MEAN,
        sources=(
            _dev(("GPU_UTIL_RATIO", 1.0), ("GPU_UTIL", PERCENT)),
            _prof("GR_ENGINE_UTIL_RATIO", "GR_ENGINE_ACTIVE"),  # MIG instances have no GPU_UTIL
        ),
    ),
    GpuSignal(
        signal="sm_active_ratio",
        unit="ratio",
        across=Across.MEAN,
        sources=(_prof("SM_UTIL_RATIO", "SM_ACTIVE"),),
    ),
    GpuSignal(
        signal="tensor_active_ratio",
        unit="ratio",
        across=Across.MEAN,
        sources=(_prof("TENSOR_UTIL_RATIO", "PIPE_TENSOR_ACTIVE"),),
    ),
    GpuSignal(
        signal="dram_active_ratio",
        unit="ratio",
        across=Across.MEAN,
        sources=(_prof("DRAM_UTIL_RATIO", "DRAM_ACTIVE"),),
    ),
    GpuSignal(
        signal="temperature_c",
        unit="C",
        across=Across.MAX,
        sources=(_dev(*_same("GPU_TEMP_CELSIUS", "GPU_TEMP")),),
    ),
    GpuSignal(
        signal="memory_temperature_c",
        unit="C",
        across=Across.MAX,
        sources=(_dev(*_same("MEMORY_TEMP_CELSIUS", "MEMORY_TEMP")),),
    ),
    GpuSignal(
        signal="sm_clock_hz",
        unit="Hz",
        across=Across.MIN,
        sources=(_dev(("SM_CLOCK_HERTZ", 1.0), ("SM_CLOCK", MEGA)),),
    ),
    GpuSignal(
        signal="power_w",
        unit="W",
        across=Across.MEAN,
        sources=(_dev(*_same("BOARD_POWER_WATTS", "POWER_USAGE")),),
    ),
    GpuSignal(
        signal="throttle_bits",
        unit="bits",
        across=Across.OR,
        sources=(_dev(*_same("CLOCKS_EVENT_REASONS", "CLOCK_THROTTLE_REASONS")),),
    ),
)

# Framebuffer parts; the ratio is used / total, total = used + free + reserved where it is not exported.
FB_USED = _dev(("FB_USED_BYTES", 1.0), ("FB_USED", MIB))
FB_FREE = _dev(("FB_FREE_BYTES", 1.0), ("FB_FREE", MIB))
FB_RESERVED = _dev(("FB_RESERVED_BYTES", 1.0), ("FB_RESERVED", MIB))
FB_TOTAL = _dev(("FB_CAPACITY_BYTES", 1.0), ("FB_TOTAL", MIB))

XID = _dev(*_same("XID_ERROR", "XID_ERRORS"))
XID_COUNT = Source(names=(("DCGM_EXP_XID_ERRORS_COUNT", 1.0),))

# Only one of these is followed, the first that is there: they count different things.
ECC_UNCORRECTED = (
    _dev(*_same("ECC_DBE_VOL_TOTAL")),
    _dev(*_same("ECC_DBE_AGG_TOTAL")),
    _dev(*_same("ROW_REMAP_UNCORRECTABLE_TOTAL", "UNCORRECTABLE_REMAPPED_ROWS")),
)
PCIE_REPLAY = _dev(*_same("PCIE_REPLAY_TOTAL", "PCIE_REPLAY_COUNTER"))
PCIE_TX = Source(names=(("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0), ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", 1000.0)))
PCIE_RX = Source(names=(("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0), ("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", 1000.0)))

# Always moves on a live GPU; read only to tell a frozen page from an idle GPU.
ENERGY = _dev(("GPU_ENERGY_JOULES_TOTAL", 1.0), ("TOTAL_ENERGY_CONSUMPTION", 0.001))

_OTHERS = (FB_USED, FB_FREE, FB_RESERVED, FB_TOTAL, XID, XID_COUNT, *ECC_UNCORRECTED)
ALL_SOURCES = (
    *(source for signal in SIGNALS for source in signal.sources),
    *_OTHERS,
    PCIE_REPLAY,
    PCIE_TX,
    PCIE_RX,
    ENERGY,
)


def wanted_names() -> frozenset[str]:
    return frozenset(name for source in ALL_SOURCES for name, _ in source.names)


def is_sane(signal: str, value: float) -> bool:
    """Whether a signal of GpuReading can have this value, in our unit."""
    if signal.endswith("_ratio"):
        return 0.0 <= value <= MAX_RATIO
    least, most = LIMITS.get(signal, (0.0, MAX_VALUE))
    return least <= value <= most


def may_be_percent(name: str) -> bool:
    """DCGM 4.6 gives some *_RATIO names to fields that are still in percent."""
    return name.endswith(("_RATIO", "_ACTIVE"))
