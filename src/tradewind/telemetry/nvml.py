"""Local GPUs through NVML, for hosts without a DCGM exporter; needs the extra `nvml`, which is imported only here."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from tradewind.model.telemetry import GpuReading, UnknownSignal
from tradewind.telemetry.dcgm import GpuScrape
from tradewind.telemetry.dcgm_names import is_sane
from tradewind.telemetry.gpu_faults import FaultCounter

KILO = 1000.0
MEGA = 1e6
NOT_AVAILABLE = (float(2**32 - 1), float(2**64 - 1))  # NVML's own words for no value


class NvmlReader:
    """Reads the GPUs of one cell. Made by open_nvml; close it at the end."""

    def __init__(self, pynvml: ModuleType, gpu_uuids: Sequence[str] = ()) -> None:
        self._nvml = pynvml
        self._wanted = tuple(gpu_uuids)
        self._seen: dict[str, None] = {}
        self._counters = {"ecc_uncorrected_total": FaultCounter(), "pcie_replay_total": FaultCounter()}

    def read(self) -> GpuScrape:
        """Never raises for what the driver cannot tell: that signal is unknown. Takes milliseconds: not for a loop
        that must not wait."""
        devices = self._devices()
        rows = {uuid: row for uuid, device in devices.items() if (row := self._device_values(device))}
        self._seen.update(dict.fromkeys(rows))
        missing = tuple(uuid for uuid in self._wanted or self._seen if uuid not in rows)
        if not rows:
            reason = "none of the cell's GPUs is on this host" if self._wanted else "no GPU on this host"
            if devices or self._seen:
                reason = "no GPU answers any longer"
            return GpuScrape(reading=None, unknown=(UnknownSignal(signal="gpu", reason=reason),), missing=missing)
        values: dict[str, list[float]] = {}
        for row in rows.values():
            for signal, value in row.items():
                values.setdefault(signal, []).append(value)
        for signal, counter in self._counters.items():
            if signal in values:
                counts: dict[tuple[str, ...], float] = {
                    (uuid,): row[signal] for uuid, row in rows.items() if signal in row
                }
                values[signal] = [counter.update(counts)]
        unknown = tuple(
            UnknownSignal(signal=signal, reason=f"{source} is not available")
            for signal, source in _SOURCES.items()
            if signal not in values
        )
        return GpuScrape(
            reading=_reading(len(rows), values),
            unknown=(*unknown, *(UnknownSignal(signal=name, reason=why) for name, why in _NOT_IN_NVML.items())),
            sources=tuple((signal, source) for signal, source in _SOURCES.items() if signal in values),
            missing=missing,
            fingerprint=hash(tuple(sorted((name, tuple(row)) for name, row in values.items()))),
        )

    def close(self) -> None:
        self._ask("nvmlShutdown")

    def _devices(self) -> dict[str, object]:
        devices: dict[str, object] = {}
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            device = self._ask("nvmlDeviceGetHandleByIndex", index)
            uuid = None if device is None else self._ask("nvmlDeviceGetUUID", device)
            if device is not None and uuid is not None and (not self._wanted or uuid in self._wanted):
                devices[str(uuid)] = device
        return devices

    def _ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401  # pynvml has no types
        """The library's answer; None where the driver, the GPU or this version of the library has none."""
        try:
            function = getattr(self._nvml, name)
        except AttributeError:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def _device_values(self, device: object) -> dict[str, float]:
        nvml, ask = self._nvml, self._ask
        rates = ask("nvmlDeviceGetUtilizationRates", device)
        memory = ask("nvmlDeviceGetMemoryInfo", device)
        sent = ask("nvmlDeviceGetPcieThroughput", device, nvml.NVML_PCIE_UTIL_TX_BYTES)
        received = ask("nvmlDeviceGetPcieThroughput", device, nvml.NVML_PCIE_UTIL_RX_BYTES)
        power_mw = ask("nvmlDeviceGetPowerUsage", device)
        clock_mhz = ask("nvmlDeviceGetClockInfo", device, nvml.NVML_CLOCK_SM)
        bits = ask("nvmlDeviceGetCurrentClocksEventReasons", device)
        ecc = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        found: dict[str, float | None] = {
            "util_ratio": None if rates is None else rates.gpu / 100,
            "vram_ratio": None if memory is None or not memory.total else memory.used / memory.total,
            "temperature_c": ask("nvmlDeviceGetTemperature", device, nvml.NVML_TEMPERATURE_GPU),
            "sm_clock_hz": None if clock_mhz is None else clock_mhz * MEGA,
            "power_w": None if power_mw is None else power_mw / KILO,
            "throttle_bits": ask("nvmlDeviceGetCurrentClocksThrottleReasons", device) if bits is None else bits,
            "pcie_bytes_per_s": None if sent is None or received is None else (sent + received) * KILO,
            "ecc_uncorrected_total": ask("nvmlDeviceGetTotalEccErrors", device, *ecc),
            "pcie_replay_total": ask("nvmlDeviceGetPcieReplayCounter", device),
            "energy": ask("nvmlDeviceGetTotalEnergyConsumption", device),
        }
        known = {signal: float(value) for signal, value in found.items() if value is not None}
        return {
            signal: value for signal, value in known.items() if value not in NOT_AVAILABLE and is_sane(signal, value)
        }


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
