"""GPUs through NVML, with a fake driver library."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from tradewind.telemetry.nvml import NvmlReader, open_nvml


class FakeNvmlError(Exception):
    """As pynvml.NVMLError."""


class FakeNvml(ModuleType):
    """Two GPUs; the functions named in `broken` raise."""

    NVMLError = FakeNvmlError
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(self, *broken: str) -> None:
        super().__init__("pynvml")
        self.shut_down = False
        answers: dict[str, object] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda device: f"GPU-{chr(65 + device)}",
            "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=100 - 50 * device, memory=10),
            "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(total=200, used=150, free=50),
            "nvmlDeviceGetTemperature": lambda device, kind: 60 + 20 * device,
            "nvmlDeviceGetClockInfo": lambda device, kind: 1980 - 500 * device,
            "nvmlDeviceGetPowerUsage": lambda device: 300_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda device: 7,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: 4 if device else 64,
            "nvmlDeviceGetPcieThroughput": lambda device, counter: 1000 * (device + 1),
            "nvmlDeviceGetTotalEccErrors": lambda device, kind, counter: 0,
            "nvmlDeviceGetPcieReplayCounter": lambda device: 3,
            "nvmlShutdown": lambda: setattr(self, "shut_down", True),
            "nvmlInit": lambda: None,
        }

        def fail(*_arguments: object) -> object:
            raise FakeNvmlError("Not Supported")

        for name, answer in answers.items():
            setattr(self, name, fail if name in broken else answer)


def test_two_gpus_are_one_cell() -> None:
    scrape = NvmlReader(FakeNvml()).read()
    reading = scrape.reading
    assert reading is not None
    assert (reading.gpus, reading.util_ratio, reading.vram_ratio) == (2, 0.75, 0.75)
    assert (reading.temperature_c, reading.sm_clock_hz, reading.power_w) == (80.0, 1.48e9, 300.0)
    assert (reading.throttle_bits, reading.pcie_bytes_per_s) == (68, 4e6)
    assert (reading.ecc_uncorrected_total, reading.pcie_replay_total) == (0.0, 3.0)
    assert (reading.tensor_active_ratio, reading.xid) == (None, None)
    assert {entry.signal for entry in scrape.unknown} >= {"tensor_active_ratio", "xid", "sm_active_ratio"}


def test_only_the_cells_gpus() -> None:
    scrape = NvmlReader(FakeNvml(), ["GPU-B", "GPU-C"]).read()
    assert scrape.reading is not None
    assert (scrape.reading.gpus, scrape.reading.temperature_c) == (1, 80.0)
    assert scrape.missing == ("GPU-C",)
    assert NvmlReader(FakeNvml(), ["GPU-C"]).read().reading is None


@pytest.mark.parametrize("broken", ["nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPcieThroughput"])
def test_what_the_driver_cannot_tell_is_unknown(broken: str) -> None:
    scrape = NvmlReader(FakeNvml(broken)).read()
    assert scrape.reading is not None
    assert scrape.reading.temperature_c == 80.0
    assert f"{broken} is not available" in [entry.reason for entry in scrape.unknown]


def test_a_driver_that_has_gone_is_no_data() -> None:
    assert NvmlReader(FakeNvml("nvmlDeviceGetCount")).read().reading is None


def test_without_the_package_or_the_driver_the_reason_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = open_nvml()
    assert isinstance(missing, str)
    assert "tradewind[nvml]" in missing
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("nvmlInit"))
    assert open_nvml() == "NVML: Not Supported"
    library = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    reader = open_nvml(["GPU-A"])
    assert isinstance(reader, NvmlReader)
    reader.close()
    assert library.shut_down
