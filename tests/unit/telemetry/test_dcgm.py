"""DCGM exporter pages, old names and new, whole and broken."""

import random
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tradewind.model.telemetry import GpuReading
from tradewind.telemetry.dcgm import DcgmReader, GpuScrape, is_blank
from tradewind.telemetry.dcgm_names import SIGNALS, wanted_names

DATA = Path(__file__).parents[2] / "golden" / "data" / "dcgm"
OLD = (DATA / "SYNTHETIC_dcgm_exporter_le_4.8.2.prom").read_bytes()
NEW = (DATA / "SYNTHETIC_dcgm_exporter_4.9.0_inferred.prom").read_bytes()
GPU_0, GPU_1 = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"


def line(name: str, value: object, *, gpu: str = "A", **labels: str) -> str:
    text = ",".join(f'{key}="{label}"' for key, label in {"gpu": "0", "UUID": f"GPU-{gpu}", **labels}.items())
    return f"DCGM_FI_{name}{{{text}}} {value}\n"


def read(page: str | bytes, *gpus: str) -> GpuScrape:
    return DcgmReader(gpus).read(page.encode() if isinstance(page, str) else page)


def reading_of(page: str | bytes, *gpus: str) -> GpuReading:
    reading = read(page, *gpus).reading
    assert reading is not None
    return reading


def reason(scrape: GpuScrape, signal: str) -> str:
    return next(entry.reason for entry in scrape.unknown if entry.signal == signal)


def test_old_and_new_names_and_units_give_the_same_reading() -> None:
    old, new = reading_of(OLD), reading_of(NEW)
    assert old.vram_ratio == pytest.approx(new.vram_ratio)
    assert old.vram_ratio == pytest.approx(0.87304, abs=1e-5)
    assert replace(old, vram_ratio=None) == replace(new, vram_ratio=None)
    assert replace(old, vram_ratio=None) == GpuReading(
        gpus=2,
        util_ratio=0.87,
        tensor_active_ratio=0.214512,
        dram_active_ratio=0.467122,
        temperature_c=41.0,
        memory_temperature_c=46.0,
        sm_clock_hz=1.98e9,
        power_w=312.417,
        xid=0,
        xid_count=0.0,
        ecc_uncorrected_total=0.0,
        pcie_replay_total=0.0,
        pcie_bytes_per_s=35802467.0,
    )


def test_what_the_default_exporter_lacks_is_unknown_with_its_name() -> None:
    scrape = read(OLD)
    assert reason(scrape, "sm_active_ratio") == "DCGM_FI_PROF_SM_ACTIVE is not exported"
    assert reason(scrape, "throttle_bits") == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS is not exported"
    assert dict(scrape.sources)["util_ratio"] == "DCGM_FI_DEV_GPU_UTIL"


def test_what_is_exported_and_of_no_use_is_not_called_missing() -> None:
    page = line("DEV_GPU_TEMP", 41) + line("DEV_MEMORY_TEMP", 9223372036854775794) + line("DEV_XID_ERRORS", -1)
    page += line("DEV_FB_USED", 7) + line("PROF_PCIE_TX_BYTES", 1) + line("DEV_PCIE_REPLAY_COUNTER", "4_0")
    page += line("DEV_ECC_DBE_AGG_TOTAL", 2).replace("GPU-A", '"GPU-A') + line("DEV_GPU_UTIL", 3).replace(
        ",UUID", " UUID"
    )
    scrape = read(page)
    assert reason(scrape, "memory_temperature_c") == "DCGM_FI_DEV_MEMORY_TEMP has no usable value"
    assert reason(scrape, "xid") == "DCGM_FI_DEV_XID_ERRORS has no usable value"
    assert reason(scrape, "vram_ratio") == "DCGM_FI_DEV_FB_TOTAL or DCGM_FI_DEV_FB_FREE is not exported"
    assert reason(scrape, "pcie_bytes_per_s") == "DCGM_FI_PROF_PCIE_RX_BYTES is not exported"
    assert reason(scrape, "pcie_replay_total") == "a line of DCGM_FI_DEV_PCIE_REPLAY_COUNTER cannot be read"
    assert reason(scrape, "ecc_uncorrected_total") == "a line of DCGM_FI_DEV_ECC_DBE_AGG_TOTAL cannot be read"
    assert reason(scrape, "util_ratio") == "a line of DCGM_FI_DEV_GPU_UTIL cannot be read"
    assert reason(scrape, "throttle_bits") == "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS is not exported"
    assert {entry.signal for entry in scrape.unknown} >= {"sm_clock_hz", "power_w", "dram_active_ratio"}


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("<html>502</html>", "no GPU on the page"),
        (line("DEV_GPU_TEMP", 40).replace('"GPU-A"', "GPU-A"), "no line of a GPU can be read"),
        (line("DEV_GPU_TEMP", 9223372036854775794), "no GPU on the page has a value"),
    ],
)
def test_why_there_is_no_gpu(page: str, why: str) -> None:
    assert read(page).unknown[0].reason == why


def test_the_order_of_lines_never_matters() -> None:
    lines = OLD.decode().splitlines()
    expected = reading_of(OLD)
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        assert reading_of("\n".join(lines)) == expected


@pytest.mark.parametrize("page", ["", "\n", "# HELP x\n", "<html>502</html>", "up 1\n"])
def test_an_empty_page_is_no_data_and_not_zero_load(page: str) -> None:
    scrape = read(page)
    assert scrape.reading is None
    assert scrape.unknown[0].reason == "no GPU on the page"


# sentinels and units


@pytest.mark.parametrize(
    "value",
    [
        *range(9223372036854775792, 9223372036854775796),
        *range(2147483632, 2147483636),
        *range(140737488355328, 140737488355332),
        "NaN",
        "+Inf",
        "-1",
        "9.223372036854776e+18",
    ],
)
def test_blank_codes_are_unknown(value: object) -> None:
    page = line("DEV_GPU_TEMP", 41) + line("DEV_MEMORY_TEMP", value) + line("DEV_FB_USED", value)
    reading = reading_of(page + line("DEV_FB_FREE", 100) + line("DEV_GPU_UTIL", value))
    assert reading.temperature_c == 41.0
    assert (reading.memory_temperature_c, reading.vram_ratio, reading.util_ratio) == (None, None, None)


def test_a_gpu_with_nothing_but_blanks_is_no_data() -> None:
    assert read(line("DEV_GPU_TEMP", 9223372036854775794)).reading is None


def test_large_true_values_are_not_blanks() -> None:
    assert not is_blank(98123412345)
    assert not is_blank(2147483631)
    assert is_blank(2147483632)


def test_a_ratio_above_one_is_percent_and_stays_so() -> None:
    reader = DcgmReader()

    def util(value: object) -> float | None:
        reading = reader.read(line("DEV_GPU_UTIL_RATIO", value).encode()).reading
        return None if reading is None else reading.util_ratio

    assert util(0.87) == 0.87
    assert util(87) == 0.87
    assert util(1) == 0.01, "DCGM 4.6 under a 4.7 name: percent once, percent always"
    assert util(0) == 0.0


@pytest.mark.parametrize("glitch", [1.05, 21474836.32, 4294967295, 2147483632, 1e9])
@pytest.mark.parametrize("name", ["DEV_GPU_UTIL_RATIO", "PROF_SM_UTIL_RATIO", "PROF_DRAM_ACTIVE"])
def test_a_glitch_does_not_make_a_ratio_percent_for_ever(name: str, glitch: float) -> None:
    reader = DcgmReader()

    def value(raw: float) -> float | None:
        reading = reader.read((line(name, raw) + line("DEV_GPU_TEMP", 40)).encode()).reading
        assert reading is not None
        return next((v for v in (reading.util_ratio, reading.sm_active_ratio, reading.dram_active_ratio) if v), None)

    assert [value(0.87), value(glitch), value(0.87)] == [0.87, None, 0.87]


def test_an_exporter_that_is_updated_under_the_agent_changes_its_unit() -> None:
    reader = DcgmReader()
    readings = [reader.read(line("DEV_GPU_UTIL_RATIO", value).encode()).reading for value in (87, 1, 0.87, 1)]
    assert [reading and reading.util_ratio for reading in readings] == [0.87, 0.01, 0.87, 1.0]


def test_an_unusable_name_does_not_hide_a_usable_one() -> None:
    page = line("DEV_GPU_UTIL_RATIO", 4000) + line("DEV_GPU_UTIL", 80) + line("DEV_SM_CLOCK_HERTZ", 1980)
    scrape = read(page + line("DEV_SM_CLOCK", 1980) + line("DEV_GPU_TEMP_CELSIUS", 999) + line("DEV_GPU_TEMP", 60))
    assert scrape.reading is not None
    assert (scrape.reading.util_ratio, scrape.reading.sm_clock_hz, scrape.reading.temperature_c) == (0.8, 1.98e9, 60.0)
    assert dict(scrape.sources)["sm_clock_hz"] == "DCGM_FI_DEV_SM_CLOCK", "under the new name in the old unit: no clock"


def test_one_gpu_in_percent_tells_for_all_gpus_of_the_page() -> None:
    page = line("PROF_SM_UTIL_RATIO", 60, gpu="A") + line("PROF_SM_UTIL_RATIO", 1, gpu="B")
    assert reading_of(page, "GPU-B").sm_active_ratio == 0.01


@pytest.mark.parametrize(
    ("name", "value", "signal"),
    [
        ("DEV_GPU_UTIL", 4000, "util_ratio"),
        ("DEV_GPU_TEMP", 4000, "temperature_c"),
        ("DEV_SM_CLOCK", 1e9, "sm_clock_hz"),
        ("DEV_POWER_USAGE", 1e9, "power_w"),
    ],
)
def test_impossible_values_are_unknown(name: str, value: float, signal: str) -> None:
    scrape = read(line(name, value) + line("DEV_PCIE_REPLAY_COUNTER", 1))
    assert scrape.reading is not None
    assert getattr(scrape.reading, signal) is None
    assert "no usable value" in reason(scrape, signal)


def test_vram_needs_used_and_a_size() -> None:
    assert reading_of(line("DEV_FB_USED", 75) + line("DEV_FB_FREE", 20) + line("DEV_FB_RESERVED", 5)).vram_ratio == 0.75
    assert reading_of(line("DEV_FB_USED", 75) + line("DEV_FB_TOTAL", 100)).vram_ratio == 0.75
    assert reading_of(line("DEV_FB_USED", 75)).vram_ratio is None
    assert reading_of(line("DEV_FB_USED", 75) + line("DEV_FB_TOTAL", 10)).vram_ratio is None
    assert reading_of(line("DEV_FB_USED", 0)).vram_ratio is None, "a size of zero divides nothing"
    assert reading_of(line("DEV_FB_USED", 0) + line("DEV_FB_TOTAL", 0)).vram_ratio is None
    nonsense = read(line("DEV_FB_USED", 75) + line("DEV_FB_FREE", 20) + line("DEV_FB_TOTAL", 10))
    assert reason(nonsense, "vram_ratio") == "DCGM_FI_DEV_FB_USED has no usable value"
    new = line("DEV_FB_USED_BYTES", 3e9) + line("DEV_FB_CAPACITY_BYTES", 4e9)
    assert reading_of(new).vram_ratio == 0.75


# FC-37: fields absent, MIG


def test_fc_37_mig_instances_are_cells_apart() -> None:
    page = "".join(
        line("DEV_GPU_UTIL", util, gpu="1", GPU_I_PROFILE="3g.47gb", GPU_I_ID=instance)
        + line("DEV_FB_USED", used, gpu="1", GPU_I_ID=instance)
        + line("DEV_FB_FREE", 100 - used, gpu="1", GPU_I_ID=instance)
        for instance, util, used in (("1", 12, 10), ("2", 90, 80))
    ) + line("PROF_SM_ACTIVE", 0.4, gpu="1", GPU_I_ID="1")
    first, second = reading_of(page, "GPU-1/1"), reading_of(page, "GPU-1/2")
    assert (first.gpus, first.util_ratio, first.vram_ratio, first.sm_active_ratio) == (1, 0.12, 0.1, 0.4)
    assert (second.gpus, second.util_ratio, second.vram_ratio, second.sm_active_ratio) == (1, 0.9, 0.8, None)
    whole_card = reading_of(page, "GPU-1")
    assert whole_card.gpus == 2
    assert whole_card.util_ratio == pytest.approx(0.51)
    assert whole_card.sm_active_ratio == 0.4, "over those that have it; the other is not idle"


def mig_page(*, xid: int = 0, replays: int = 0, sm_on_card: bool = True) -> str:
    """One card that is shown whole and by its two instances, as with `-d g,i`."""
    page = ""
    for labels, util, used in (({}, 0.5, 90), ({"GPU_I_ID": "1"}, 0.9, 10), ({"GPU_I_ID": "2"}, 0.1, 80)):
        page += line("PROF_GR_ENGINE_ACTIVE", util, **labels) + line("DEV_FB_USED", used, **labels)
        page += line("DEV_FB_FREE", 100 - used, **labels) + line("DEV_POWER_USAGE", 300, **labels)
        page += line("DEV_XID_ERRORS", xid, **labels) + line("DEV_PCIE_REPLAY_COUNTER", replays, **labels)
        if labels or sm_on_card:
            page += line("PROF_SM_ACTIVE", util, **labels)
    return page


@pytest.mark.parametrize("gpus", [(), ("GPU-A",)])
def test_fc_37_a_card_and_its_instances_are_not_mixed(gpus: tuple[str, ...]) -> None:
    whole = reading_of(mig_page(), *gpus)
    assert (whole.gpus, whole.util_ratio, whole.vram_ratio, whole.sm_active_ratio) == (1, 0.5, 0.9, 0.5)
    part = reading_of(mig_page(), "GPU-A/1")
    assert (part.gpus, part.util_ratio, part.vram_ratio, part.sm_active_ratio) == (1, 0.9, 0.1, 0.9)
    partly = reading_of(mig_page(sm_on_card=False), *gpus)
    assert (partly.gpus, partly.util_ratio, partly.vram_ratio) == (1, 0.5, 0.9)
    assert partly.sm_active_ratio == 0.5, "only its instances tell"


def test_fc_39_a_fault_of_a_card_with_instances_is_one() -> None:
    reader = DcgmReader()
    for page in (mig_page(), mig_page(xid=79, replays=4)):
        reading = reader.read(page.encode()).reading
    assert reading is not None
    assert (reading.xid, reading.xid_count, reading.pcie_replay_total) == (79, 1.0, 4.0)


def test_fc_37_utilisation_falls_back_for_all_gpus_or_none() -> None:
    both = line("DEV_GPU_UTIL", 90, gpu="A") + line("PROF_GR_ENGINE_ACTIVE", 0.5, gpu="A")
    only_prof = line("PROF_GR_ENGINE_ACTIVE", 0.3, gpu="B")
    scrape = read(both + only_prof)
    assert scrape.reading is not None
    assert scrape.reading.util_ratio == pytest.approx(0.4), "both through the one source that both have"
    assert dict(scrape.sources)["util_ratio"] == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    assert reading_of(both).util_ratio == 0.9


def test_fc_37_sm_activity_has_no_substitute() -> None:
    scrape = read(line("DEV_GPU_UTIL", 100) + line("PROF_GR_ENGINE_ACTIVE", 0.99))
    assert scrape.reading is not None
    assert scrape.reading.sm_active_ratio is None, "a substitute would compare two different things"


def test_fc_37_a_cell_with_fewer_fields_is_not_idle() -> None:
    reading = reading_of(line("DEV_GPU_TEMP", 70))
    ratios = [getattr(reading, field.name) for field in fields(GpuReading) if field.name.endswith("_ratio")]
    assert ratios == [None] * 5


# FC-38: which GPUs are whose


def test_fc_38_several_gpus_are_one_cell() -> None:
    page = "".join(
        line("DEV_GPU_UTIL", util, gpu=gpu)
        + line("DEV_GPU_TEMP", temp, gpu=gpu)
        + line("DEV_SM_CLOCK", clock, gpu=gpu)
        + line("DEV_CLOCKS_EVENT_REASONS", bits, gpu=gpu)
        + line("DEV_POWER_USAGE", 300, gpu=gpu)
        + line("DEV_ECC_DBE_VOL_TOTAL", errors, gpu=gpu)
        for gpu, util, temp, clock, bits, errors in (("A", 100, 60, 1980, 4, 0), ("B", 50, 84, 1400, 64, 2))
    )
    reading = reading_of(page, "GPU-A", "GPU-B")
    assert reading.gpus == 2
    assert reading.util_ratio == 0.75
    assert reading.temperature_c == 84.0
    assert reading.sm_clock_hz == 1.4e9
    assert reading.throttle_bits == 68
    assert reading.power_w == 300.0
    assert reading.ecc_uncorrected_total == 2.0


def test_fc_38_a_series_repeated_for_several_pods_counts_once() -> None:
    page = "".join(line("DEV_GPU_UTIL", value, exported_pod=pod) for pod, value in (("a", 40), ("b", 44), ("c", 40)))
    reading = reading_of(page)
    assert (reading.gpus, reading.util_ratio) == (1, 0.44)


@pytest.mark.parametrize(
    "labels", ['UUID="GPU-A"', 'uuid="GPU-A"', 'gpu_uuid="GPU-A"', 'Uuid="GPU-A",hostname="localhost"']
)
def test_fc_38_labels_in_any_case(labels: str) -> None:
    assert reading_of(f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 50\n", "GPU-A").temperature_c == 50.0


def test_fc_38_two_hosts_called_localhost_are_not_merged() -> None:
    page = line("DEV_GPU_TEMP", 50, gpu="A", Hostname="localhost") + line(
        "DEV_GPU_TEMP", 80, gpu="B", Hostname="localhost"
    )
    assert reading_of(page, "GPU-A").temperature_c == 50.0
    assert reading_of(page, "GPU-B").temperature_c == 80.0


def test_gpus_without_a_uuid_are_told_apart_by_index() -> None:
    page = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 100\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 50\n'
    assert (reading_of(page).gpus, reading_of(page).util_ratio) == (2, 0.75)


def test_fc_36_a_missing_gpu_is_not_zero_load() -> None:
    page = line("DEV_GPU_UTIL", 80, gpu="A")
    scrape = read(page, "GPU-A", "GPU-B")
    assert scrape.reading is not None
    assert (scrape.reading.gpus, scrape.reading.util_ratio) == (1, 0.8)
    assert scrape.missing == ("GPU-B",)
    none = read(page, "GPU-C")
    assert none.reading is None
    assert none.missing == ("GPU-C",)
    assert none.unknown[0].reason == "none of the cell's GPUs is on the page"


def test_fc_33_a_page_cut_at_any_line_hides_no_hot_gpu() -> None:
    page = "".join(
        line(name, value, gpu=gpu) for name in ("DEV_GPU_TEMP", "DEV_SM_CLOCK") for gpu, value in (("A", 60), ("B", 90))
    ).encode()
    reader = DcgmReader()
    whole = reader.read(page, whole=False).reading
    for end in range(0, len(page), 3):
        cut = reader.read(page[:end], whole=False)
        assert cut.reading is None, end
        assert cut.unknown[0].reason == "the page is cut off"
        assert reader.read(page, whole=False).reading == whole


# FC-39: XIDs and other faults as events


class Xids:
    """One exporter read again and again."""

    def __init__(self) -> None:
        self.reader = DcgmReader()

    def read(self, page: str) -> tuple[int | None, float | None]:
        reading = self.reader.read((page + line("DEV_GPU_TEMP", 40)).encode()).reading
        assert reading is not None
        return reading.xid, reading.xid_count


def test_fc_39_an_old_xid_is_no_event() -> None:
    xids = Xids()
    for _ in range(5):
        assert xids.read(line("DEV_XID_ERRORS", 31)) == (31, 0.0)


def test_fc_39_a_change_is_an_event_on_whichever_gpu() -> None:
    xids = Xids()

    def page(first: int, second: int) -> str:
        return line("DEV_XID_ERRORS", first, gpu="A") + line("DEV_XID_ERRORS", second, gpu="B")

    assert xids.read(page(31, 0)) == (31, 0.0)
    assert xids.read(page(31, 13)) == (13, 1.0), "a lower code on another GPU is news all the same"
    assert xids.read(page(31, 13)) == (13, 1.0)
    assert xids.read(page(79, 13)) == (79, 2.0)
    assert xids.read(page(0, 13)) == (79, 2.0), "a driver reload clears the gauge and is no error"


def test_fc_39_the_same_code_twice_shows_in_the_count() -> None:
    xids = Xids()

    def page(count: int) -> str:
        counted = f'DCGM_EXP_XID_ERRORS_COUNT{{UUID="GPU-A",gpu="0",window_size_in_ms="300000",xid="31"}} {count}\n'
        return line("DEV_XID_ERRORS", 31) + counted

    assert xids.read(page(1)) == (31, 0.0)
    assert xids.read(page(2)) == (31, 1.0)
    assert xids.read(page(0)) == (31, 1.0), "the window has moved on"
    assert xids.read(page(1)) == (31, 2.0)


def test_fc_39_the_first_xid_of_a_gpu_is_news_where_exporters_say_nothing_before_it() -> None:
    """Many make the series with a GPU's first XID."""
    xids = Xids()
    old = line("DEV_XID_ERRORS", 31, gpu="B")
    assert xids.read("") == (None, None)
    assert xids.read(old) == (31, 0.0), "B is new itself"
    assert xids.read(old + line("DEV_XID_ERRORS", 79)) == (79, 1.0)
    assert xids.read(old) == (79, 1.0)
    assert xids.read(old + line("DEV_XID_ERRORS", 79)) == (79, 1.0), "the same one, back on the page"


def test_fc_39_the_first_xid_is_news_in_the_count_too() -> None:
    xids = Xids()
    assert xids.read("") == (None, None)
    counted = 'DCGM_EXP_XID_ERRORS_COUNT{UUID="GPU-A",gpu="0",window_size_in_ms="300000",xid="79"} 1\n'
    assert xids.read(counted) == (None, 1.0)
    assert xids.read(counted) == (None, 1.0)


def test_fc_39_without_xid_metrics_nothing_is_claimed() -> None:
    assert Xids().read("") == (None, None)


def test_a_new_fault_is_seen_beside_an_old_one_and_a_lost_gpu_is_no_fault() -> None:
    reader = DcgmReader()

    def total(**errors: int) -> float | None:
        page = "".join(line("DEV_ECC_DBE_VOL_TOTAL", count, gpu=gpu) for gpu, count in errors.items())
        reading = reader.read(page.encode()).reading
        return None if reading is None else reading.ecc_uncorrected_total

    assert total(A=5, B=0) == 5.0
    assert total(A=5, B=1) == 6.0
    assert total(A=5) == 6.0
    assert total(A=5, B=1) == 6.0
    assert total(A=0, B=1) == 6.0, "a reset counter takes nothing back"


def test_a_source_of_error_counts_that_has_gone_is_followed_by_another_without_a_fault() -> None:
    reader = DcgmReader()

    def total(**counts: int) -> float | None:
        page = line("DEV_GPU_TEMP", 40) + "".join(line(f"DEV_{name}", count) for name, count in counts.items())
        reading = reader.read(page.encode()).reading
        return None if reading is None else reading.ecc_uncorrected_total

    assert total(ECC_DBE_VOL_TOTAL=2, ROW_REMAP_UNCORRECTABLE_TOTAL=9) == 2.0
    assert total(ROW_REMAP_UNCORRECTABLE_TOTAL=9) == 2.0, "it counts something else: 9 is no news"
    assert total(ROW_REMAP_UNCORRECTABLE_TOTAL=10) == 3.0
    assert total() is None
    assert total(ECC_DBE_VOL_TOTAL=2, ROW_REMAP_UNCORRECTABLE_TOTAL=10) == 3.0
    assert total(ECC_DBE_VOL_TOTAL=3, ROW_REMAP_UNCORRECTABLE_TOTAL=10) == 4.0


def test_a_gpu_that_was_there_and_has_gone_is_missing_where_none_are_named() -> None:
    reader = DcgmReader()
    both = line("DEV_GPU_TEMP", 40, gpu="A") + line("DEV_GPU_TEMP", 41, gpu="B")
    assert reader.read(both.encode()).missing == ()
    lost = reader.read(line("DEV_GPU_TEMP", 40, gpu="A").encode())
    assert lost.missing == ("GPU-B",)
    assert lost.reading is not None
    assert reader.read(b"").missing == ("GPU-A", "GPU-B")
    repartitioned = line("DEV_GPU_TEMP", 40, gpu="A", GPU_I_ID="1") + line("DEV_GPU_TEMP", 41, gpu="B")
    assert reader.read(repartitioned.encode()).missing == (), "the card is there, cut in another way"


def test_pcie_is_the_busiest_link() -> None:
    page = "".join(
        line("PROF_PCIE_TX_BYTES", rate, gpu=gpu) + line("PROF_PCIE_RX_BYTES", rate, gpu=gpu)
        for gpu, rate in (("A", 1e6), ("B", 9e6))
    )
    assert reading_of(page).pcie_bytes_per_s == 18e6
    old = line("DEV_PCIE_TX_THROUGHPUT", 1000) + line("DEV_PCIE_RX_THROUGHPUT", 500)
    assert reading_of(old).pcie_bytes_per_s == 1.5e6


def test_the_fingerprint_follows_this_cells_gpus_only() -> None:
    def fingerprint(energy: int, other: int) -> int:
        page = line("DEV_TOTAL_ENERGY_CONSUMPTION", energy, gpu="A") + line("DEV_GPU_TEMP", other, gpu="B")
        return read(page, "GPU-A").fingerprint

    assert fingerprint(1, 50) == fingerprint(1, 60)
    assert fingerprint(1, 50) != fingerprint(2, 50)


def test_signals_name_fields_of_the_reading() -> None:
    assert {signal.signal for signal in SIGNALS} <= {field.name for field in fields(GpuReading)}


def test_every_default_counter_we_need_is_read() -> None:
    rows = [row.strip() for row in (DATA / "default-counters.csv").read_text().splitlines()]
    default = {row.split(",")[0].strip() for row in rows if row and not row.startswith("#")}
    not_needed = {"MEM_CLOCK", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL", "NVLINK_BANDWIDTH_TOTAL", "VGPU_LICENSE_STATUS"}
    not_needed |= {"CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE"}
    unread = {name.removeprefix("DCGM_FI_DEV_") for name in default - wanted_names()}
    assert unread - {"DCGM_FI_DRIVER_VERSION"} == not_needed
