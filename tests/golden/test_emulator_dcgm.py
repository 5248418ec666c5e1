"""The emulated exporter page has the names, types, help texts and labels of the reference pages, old and 4.9."""

import re
from pathlib import Path

import pytest

from tradewind.emulator.dcgm import GpuRow, render
from tradewind.engine.gpu import GpuSignals
from tradewind.engine.profiles import PROFILES

DATA = Path(__file__).parent / "data" / "dcgm"
EXTRA = {
    "old": {"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_THERMAL_VIOLATION"},
    "new": {
        "DCGM_FI_PROF_SM_UTIL_RATIO",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
    },
}
PAGES = {"old": "SYNTHETIC_dcgm_exporter_le_4.8.2.prom", "new": "SYNTHETIC_dcgm_exporter_4.9.0_inferred.prom"}
SIGNALS = GpuSignals(
    util_ratio=0.87,
    sm_active_ratio=0.7,
    tensor_active_ratio=0.214512,
    dram_active_ratio=0.467122,
    pcie_tx_bytes_per_s=12345678.0,
    pcie_rx_bytes_per_s=23456789.0,
)


def row(index: int) -> GpuRow:
    return GpuRow(
        index=index,
        uuid=f"GPU-{index}",
        hostname="h",
        gpu=PROFILES["h100"].gpu,
        signals=SIGNALS,
        temperature_c=41.4,
        power_w=312.417,
        clock_ratio=1.0,
        throttle_bits=0x20,
        energy_j=98123412.345,
        thermal_violation_s=1.5,
        xid=0,
        pcie_replays=0,
        loaded=True,
    )


def page(names: str, *, sentinels: bool = False) -> list[str]:
    return render([row(0), row(1)], new_names=names == "new", sentinels=sentinels).decode().splitlines()


def shape(line: str) -> str:
    """A line without its value and its label values."""
    return line if line.startswith("#") else re.sub(r'"[^"]*"', '""', line).rsplit(" ", 1)[0]


def value(lines: list[str], name: str) -> float:
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


@pytest.mark.parametrize("names", ["old", "new"])
def test_lines_are_those_of_the_reference_page(names: str) -> None:
    wanted = [shape(line) for line in (DATA / PAGES[names]).read_text().splitlines() if not line.startswith("# SYN")]
    mine = [shape(line) for line in page(names)]
    extra = [line for line in mine if any(f"{name}{end}" in line for name in EXTRA[names] for end in (" ", "{"))]
    assert [line for line in mine if line not in extra] == wanted
    assert len(extra) == 3 * 4


def test_units_differ_by_the_reference_factors() -> None:
    old, new = page("old"), page("new")
    for before, after, factor in (
        ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES", 1048576),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3),
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", 1e-9),
    ):
        assert value(new, after) == pytest.approx(value(old, before) * factor)


def test_sentinels_are_the_ones_that_dcgm_printed() -> None:
    lines = page("old", sentinels=True)
    assert value(lines, "DCGM_FI_DEV_MEMORY_TEMP") >= 9.2e18
    assert value(lines, "DCGM_FI_PROF_DRAM_ACTIVE") == pytest.approx(140737488355328)


def test_every_gpu_is_on_every_row() -> None:
    samples = [line for line in page("old") if not line.startswith("#")]
    assert len(samples) == 2 * len([line for line in page("old") if line.startswith("# TYPE")])
