"""Local GPUs through NVML, for hosts without a DCGM exporter; needs the extra `nvml`, which is imported only here."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

from tradewind.model.telemetry import GpuReading, UnknownSignal
from tradewind.telemetry.dcgm import GpuScrape
from tradewind.telemetry.gpu_faults import FaultCounter

T = TypeVar("T")

KILO = 1000.0
MEGA = 1e6


class NvmlReader:
    """Reads the GPUs of one cell. Made by open_nvml; close it at the end."""

    def __init__(self, pynvml: ModuleType, gpu_uuids: Sequence[str] = ()) -> None:
        self._nvml = pynvml
        self._wanted = tuple(gpu_uuids)
        self._ecc = FaultCounter()
        self._replay = FaultCounter()

    def read(self) -> GpuScrape:
        """Never raises for what the driver cannot tell: that signal is unknown. Takes milliseconds: not for a loop
        that must not wait."""
        devices = self._devices()
        missing = tuple(uuid for uuid in self._wanted if uuid not in devices)
        if not devices:
            reason = "none of the cell's GPUs is on this host" if self._wanted else "no GPU on this host"
            return GpuScrape(reading=None, unknown=(UnknownSignal(signal="gpu", reason=reason),), missing=missing)
        values: dict[str, list[float]] = {}
        for uuid, device in devices.items():
            for signal, value in self._device_values(device).items():
                values.setdefault(signal, []).append(value)
            self._count_faults(uuid, device, values)
        unknown = tuple(
            UnknownSignal(signal=signal, reason=f"{source} is not available")
            for signal, source in _SOURCES.items()
            if signal not in values
        )
        return GpuScrape(
            reading=_reading(len(devices), values),
            unknown=(*unknown, *(UnknownSignal(signal=name, reason=why) for name, why in _NOT_IN_NVML.items())),
            sources=tuple((signal, source) for signal, source in _SOURCES.items() if signal in values),
            missing=missing,
            fingerprint=hash(tuple(sorted((name, tuple(row)) for name, row in values.items()))),
        )

    def close(self) -> None:
        self._call(self._nvml.nvmlShutdown)

    def _devices(self) -> dict[str, object]:
        count = self._call(self._nvml.nvmlDeviceGetCount) or 0
        devices: dict[str, object] = {}
        for index in range(count):
            device = self._call(self._nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = None if device is None else self._call(self._nvml.nvmlDeviceGetUUID, device)
            if device is not None and uuid is not None and (not self._wanted or uuid in self._wanted):
                devices[str(uuid)] = device
        return devices

    def _call(self, function: Callable[..., T], *arguments: object) -> T | None:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def _device_values(self, device: object) -> dict[str, float]:
        nvml = self._nvml
        rates = self._call(nvml.nvmlDeviceGetUtilizationRates, device)
        memory = self._call(nvml.nvmlDeviceGetMemoryInfo, device)
        sent = self._call(nvml.nvmlDeviceGetPcieThroughput, device, nvml.NVML_PCIE_UTIL_TX_BYTES)
        received = self._call(nvml.nvmlDeviceGetPcieThroughput, device, nvml.NVML_PCIE_UTIL_RX_BYTES)
        power_mw = self._call(nvml.nvmlDeviceGetPowerUsage, device)
        clock_mhz = self._call(nvml.nvmlDeviceGetClockInfo, device, nvml.NVML_CLOCK_SM)
        energy_mj = self._call(nvml.nvmlDeviceGetTotalEnergyConsumption, device)
        found: dict[str, float | None] = {
            "util_ratio": None if rates is None else rates.gpu / 100,
            "vram_ratio": None if memory is None or not memory.total else memory.used / memory.total,
            "temperature_c": self._call(nvml.nvmlDeviceGetTemperature, device, nvml.NVML_TEMPERATURE_GPU),
            "sm_clock_hz": None if clock_mhz is None else clock_mhz * MEGA,
            "power_w": None if power_mw is None else power_mw / KILO,
            "throttle_bits": self._call(self._throttle_reasons(), device),
            "pcie_bytes_per_s": None if sent is None or received is None else (sent + received) * KILO,
            "energy": energy_mj,
        }
        return {signal: float(value) for signal, value in found.items() if value is not None}

    def _throttle_reasons(self) -> Callable[[object], int]:
        old = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        new: Callable[[object], int] = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", old)
        return new

    def _count_faults(self, uuid: str, device: object, values: dict[str, list[float]]) -> None:
        nvml = self._nvml
        errors = self._call(
            nvml.nvmlDeviceGetTotalEccErrors,
            device,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        if errors is not None:
            values["ecc_uncorrected_total"] = [self._ecc.update({(uuid, ""): float(errors)})]
        replays = self._call(nvml.nvmlDeviceGetPcieReplayCounter, device)
        if replays is not None:
            values["pcie_replay_total"] = [self._replay.update({(uuid, ""): float(replays)})]


_SOURCES = {
    "util_ratio": "nvmlDeviceGetUtilizationRates",
    "vram_ratio": "nvmlDeviceGetMemoryInfo",
    "temperature_c": "nvmlDeviceGetTemperature",
    "sm_clock_hz": "nvmlDeviceGetClockInfo",
    "power_w": "nvmlDeviceGetPowerUsage",
    "throttle_bits": "nvmlDeviceGetCurrentClocksEventReasons",
    "pcie_bytes_per_s": "nvmlDeviceGetPcieThroughput",
    "ecc_uncorrected_total": "nvmlDeviceGetTotalEccErrors",
    "pcie_replay_total": "nvmlDeviceGetPcieReplayCounter",
}
_NOT_IN_NVML = {
    "sm_active_ratio": "needs DCGM's profiling fields",
    "tensor_active_ratio": "needs DCGM's profiling fields",
    "dram_active_ratio": "needs DCGM's profiling fields",
    "memory_temperature_c": "needs DCGM",
    "xid": "NVML reports XIDs only as events; use DCGM",
}


def open_nvml(gpu_uuids: Sequence[str] = ()) -> NvmlReader | str:
    """A reader of this host's GPUs, or the reason why there is none."""
    try:
        import pynvml
    except ImportError:
        return "the Python package nvidia-ml-py is not installed (pip install 'tradewind[nvml]')"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    return NvmlReader(pynvml, gpu_uuids)


def _reading(gpus: int, values: dict[str, list[float]]) -> GpuReading:
    def mean(signal: str) -> float | None:
        row = values.get(signal)
        return sum(row) / len(row) if row else None

    def largest(signal: str) -> float | None:
        return max(values.get(signal, ()), default=None)

    bits: int | None = None
    for value in values.get("throttle_bits", ()):
        bits = (bits or 0) | int(value)
    return GpuReading(
        gpus=gpus,
        util_ratio=mean("util_ratio"),
        vram_ratio=mean("vram_ratio"),
        temperature_c=largest("temperature_c"),
        sm_clock_hz=min(values.get("sm_clock_hz", ()), default=None),
        power_w=mean("power_w"),
        throttle_bits=bits,
        ecc_uncorrected_total=largest("ecc_uncorrected_total"),
        pcie_replay_total=largest("pcie_replay_total"),
        pcie_bytes_per_s=largest("pcie_bytes_per_s"),
    )
