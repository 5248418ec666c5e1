"""GPUs through NVML, with a fake driver library."""

import sys
from collections.abc import Callable
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

    def lose(self, lost: int, how: str) -> None:
        """As when a GPU falls off the bus."""

        def failing(answer: Callable[..., object]) -> Callable[..., object]:
            def call(device: object, *arguments: object) -> object:
                if device == lost:
                    raise FakeNvmlError("GPU is lost")
                return answer(device, *arguments)

            return call

        if how == "not counted":
            self.nvmlDeviceGetCount = lambda: lost
            return
        names = [name for name in vars(self) if name.startswith("nvmlDeviceGet") and name != "nvmlDeviceGetCount"]
        kept = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID")
        for name in names:
            if (name == "nvmlDeviceGetHandleByIndex") if how == "no handle" else name not in kept:
                setattr(self, name, failing(getattr(self, name)))


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


def test_a_function_that_the_library_does_not_have_is_unknown() -> None:
    library = FakeNvml()
    for name in ("nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        delattr(library, name)
    library.nvmlDeviceGetCurrentClocksEventReasons = lambda device: 8  # type: ignore[attr-defined]
    reading = NvmlReader(library).read().reading
    assert reading is not None
    assert (reading.pcie_replay_total, reading.throttle_bits, reading.temperature_c) == (None, 8, 80.0)


def test_an_old_driver_under_a_new_library_tells_its_throttling_by_the_old_name() -> None:
    library = FakeNvml()

    def unknown(_device: object) -> int:
        raise FakeNvmlError("Function Not Found")

    library.nvmlDeviceGetCurrentClocksEventReasons = unknown  # type: ignore[attr-defined]
    reading = NvmlReader(library).read().reading
    assert reading is not None
    assert reading.throttle_bits == 68


@pytest.mark.parametrize("gpus", [[], ["GPU-A", "GPU-B"]])
@pytest.mark.parametrize("how", ["no handle", "every call fails", "not counted"])
def test_a_gpu_that_falls_off_the_bus_is_missing_and_the_other_is_read(gpus: list[str], how: str) -> None:
    library = FakeNvml()
    reader = NvmlReader(library, gpus)
    assert reader.read().missing == ()
    library.lose(1, how)
    scrape = reader.read()
    assert scrape.missing == ("GPU-B",)
    assert scrape.reading is not None
    assert (scrape.reading.gpus, scrape.reading.temperature_c, scrape.reading.sm_clock_hz) == (1, 60.0, 1.98e9)
    library.lose(0, "every call fails")
    assert reader.read().reading is None


@pytest.mark.parametrize("nothing", [2**32 - 1, 2**64 - 1])
def test_what_nvml_says_for_no_value_is_unknown(nothing: int) -> None:
    library = FakeNvml()
    for name in ("Temperature", "ClockInfo", "TotalEccErrors"):
        setattr(library, f"nvmlDeviceGet{name}", lambda *_: nothing)
    for name in ("PowerUsage", "PcieReplayCounter", "CurrentClocksThrottleReasons"):
        setattr(library, f"nvmlDeviceGet{name}", lambda *_: nothing)
    reading = NvmlReader(library).read().reading
    assert reading is not None
    assert (reading.temperature_c, reading.sm_clock_hz, reading.power_w) == (None, None, None)
    assert (reading.ecc_uncorrected_total, reading.pcie_replay_total, reading.throttle_bits) == (None, None, None)
    assert reading.util_ratio == 0.75


def test_faults_start_at_the_largest_counter_and_grow_with_any() -> None:
    library = FakeNvml()
    errors = [0, 5]
    library.nvmlDeviceGetTotalEccErrors = lambda device, *_: errors[device]  # type: ignore[attr-defined]
    reader = NvmlReader(library)
    totals = []
    for errors[0] in (0, 1, 1):
        reading = reader.read().reading
        totals.append(None if reading is None else reading.ecc_uncorrected_total)
    assert totals == [5.0, 6.0, 6.0]


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
