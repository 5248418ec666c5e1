"""Heat, foreign load, failing hardware: what alerts, what drains, and when it is over."""

from dataclasses import replace

import pytest

from tests.unit.core.world import FakeCell, World, world
from tradewind.core.alerts import HW_THERMAL, SW_POWER_CAP, AlertTrack, LearnedMaximum, Symptom
from tradewind.core.residual import TensorResidual
from tradewind.core.settings import AlertSettings
from tradewind.model.telemetry import EngineReading, GpuReading

SETTINGS = AlertSettings()
DAY_S = 86_400.0
NORMAL = GpuReading(
    gpus=1,
    util_ratio=0.8,
    sm_active_ratio=0.5,
    tensor_active_ratio=0.3,
    dram_active_ratio=0.4,
    temperature_c=60.0,
    sm_clock_hz=2e9,
    pcie_bytes_per_s=1e9,
    throttle_bits=0,
)


def causes(track: AlertTrack, gpu: GpuReading, now_s: float, *, clock_ratio: float | None = 1.0) -> list[str]:
    found = track.on_gpu(
        gpu,
        engine=EngineReading(running_requests=4.0),
        rates=(1000.0, 200.0),
        clock_ratio=clock_ratio,
        settings=SETTINGS,
        now_s=now_s,
    )
    return [symptom.cause for symptom in found]


def learned() -> AlertTrack:
    """A cell that has run normally for more than a day (sparsely sampled, then a minute at 1 Hz)."""
    track = AlertTrack()
    for step in range(200):
        assert causes(track, replace(NORMAL, temperature_c=60.0 + step % 5), step * 500.0) == []
    for second in range(60):
        assert causes(track, NORMAL, 100_000.0 + second) == []
    return track


NOW_S = 100_060.0


def test_before_a_day_has_passed_only_plain_limits_alert() -> None:
    track = AlertTrack()
    assert causes(track, NORMAL, 0.0) == []
    assert causes(track, replace(NORMAL, pcie_bytes_per_s=9e9, temperature_c=82.0), 1.0, clock_ratio=0.5) == []
    assert causes(track, replace(NORMAL, temperature_c=83.0), 2.0) == ["thermal"]


def test_a_thermal_bit_must_be_seen_twice() -> None:
    track, hot = AlertTrack(), replace(NORMAL, throttle_bits=HW_THERMAL)
    assert causes(track, hot, 0.0) == []
    assert causes(track, hot, 1.0) == ["thermal"]
    assert causes(track, replace(NORMAL, throttle_bits=SW_POWER_CAP), 2.0) == []


def test_warmer_than_ever_alerts_after_a_day() -> None:
    track = learned()
    assert causes(track, replace(NORMAL, temperature_c=64.5), NOW_S) == []
    assert causes(track, replace(NORMAL, temperature_c=66.5), NOW_S + 1) == ["thermal"]


def test_a_slow_clock_must_last_and_a_power_cap_excuses_it() -> None:
    track = learned()
    assert causes(track, NORMAL, NOW_S, clock_ratio=0.9) == []
    assert causes(track, NORMAL, NOW_S + 1, clock_ratio=0.9) == []
    assert causes(track, NORMAL, NOW_S + 2, clock_ratio=0.9) == ["clock"]
    capped = replace(NORMAL, throttle_bits=SW_POWER_CAP)
    assert causes(track, capped, NOW_S + 3, clock_ratio=0.9) == []


def test_pcie_traffic_beyond_twice_its_own_maximum() -> None:
    track, busy = learned(), replace(NORMAL, pcie_bytes_per_s=3e9)
    assert [causes(track, busy, NOW_S + second) for second in range(3)] == [[], [], ["pcie"]]


def test_foreign_load_needs_both_signs() -> None:
    loaded = replace(NORMAL, util_ratio=1.0, sm_active_ratio=0.95, tensor_active_ratio=0.9, dram_active_ratio=0.9)
    track = learned()
    found = [causes(track, loaded, NOW_S + second) for second in range(8)]
    assert ["foreign-load"] in found
    young = AlertTrack()
    for second in range(60):
        causes(young, NORMAL, float(second))
    assert all(causes(young, loaded, 60.0 + second) == [] for second in range(8))


def test_the_residual_explains_the_cells_own_work() -> None:
    residual = TensorResidual()
    for step in range(400):
        rate = 500.0 + 500.0 * (step % 7)
        residual.update(tensor=0.05 + rate / 1e4, prompt_rate=rate, token_rate=100.0, running=3.0, alpha=0.3)
    assert abs(residual.z) < 3.0
    for _ in range(10):
        residual.update(tensor=0.9, prompt_rate=1000.0, token_rate=100.0, running=3.0, alpha=0.3)
    assert residual.z > 4.4


def test_fc_39_an_xid_counts_when_it_changes_and_not_for_standing_there() -> None:
    track = AlertTrack()
    stuck = replace(NORMAL, xid=79)
    assert causes(track, stuck, 0.0) == []  # it was there before we looked
    assert causes(track, replace(NORMAL, xid=48), 1.0) == ["xid"]
    assert causes(track, replace(NORMAL, xid=48), 30.0) == ["xid"]
    assert all(causes(track, replace(NORMAL, xid=48), 62.0 + minute * 60) == [] for minute in range(60))


def test_fc_39_the_same_code_twice_is_seen_by_its_count() -> None:
    track = AlertTrack()
    causes(track, replace(NORMAL, xid=79, xid_count=1.0), 0.0)
    assert causes(track, replace(NORMAL, xid=79, xid_count=2.0), 1.0) == ["xid"]


def test_fc_39_a_count_that_begins_while_we_look_is_a_first_xid() -> None:
    counted = replace(NORMAL, xid=79, xid_count=1.0)
    track = AlertTrack()
    assert causes(track, counted, 0.0) == []  # it was there before we looked
    track = AlertTrack()
    causes(track, replace(NORMAL, xid=None, xid_count=None), 0.0)
    assert causes(track, counted, 1.0) == ["xid"]
    track = AlertTrack()
    causes(track, replace(NORMAL, xid=None, xid_count=None), 0.0)
    assert causes(track, replace(NORMAL, xid=79), 1.0) == []  # a gauge without a count may be of any time


def test_fc_39_an_engines_own_fault_is_no_hardware_fault() -> None:
    track = AlertTrack()
    causes(track, replace(NORMAL, xid=0), 0.0)
    assert causes(track, replace(NORMAL, xid=31), 1.0) == []


def test_fc_39_full_weight_returns_after_the_window() -> None:
    grid = world(5, seed=1).run(10.0)
    normal_scrape = FakeCell.scrape

    class Struck(FakeCell):
        def scrape(self, now_s: float, rng: object) -> None:
            normal_scrape(self, now_s, rng)  # type: ignore[arg-type]
            if self.telemetry.gpu is not None and now_s >= 10.0:
                self.telemetry = replace(self.telemetry, gpu=replace(self.telemetry.gpu, xid=79))
            elif self.telemetry.gpu is not None:
                self.telemetry = replace(self.telemetry, gpu=replace(self.telemetry.gpu, xid=0))

    grid = World([FakeCell("c0"), FakeCell("c1"), Struck("c2"), FakeCell("c3"), FakeCell("c4")], seed=1)
    grid.run(30.0)
    assert grid.weight(2) == 0
    grid.run(300.0)
    assert grid.weight(2) >= 120


def test_uncorrected_ecc_counts_by_its_edge() -> None:
    track = AlertTrack()
    assert causes(track, replace(NORMAL, ecc_uncorrected_total=7.0), 0.0) == []
    assert causes(track, replace(NORMAL, ecc_uncorrected_total=8.0), 1.0) == ["ecc"]


def test_a_learned_maximum_needs_its_time() -> None:
    maximum = LearnedMaximum()
    maximum.update(5.0, memory_s=7 * DAY_S, now_s=0.0)
    assert maximum.usable(learn_s=DAY_S, now_s=DAY_S - 1) is None
    assert maximum.usable(learn_s=DAY_S, now_s=DAY_S) == 5.0


def test_an_alert_clears_only_after_quiet() -> None:
    track = AlertTrack()
    symptoms = [Symptom("thermal", "hot")]
    assert track.settle(symptoms, promised=True, settings=SETTINGS, now_s=0.0) == "raised"
    assert track.settle(symptoms, promised=True, settings=SETTINGS, now_s=5.0) == ""
    assert track.settle([], promised=True, settings=SETTINGS, now_s=34.0) == ""
    assert track.settle([], promised=True, settings=SETTINGS, now_s=35.0) == "cleared"


# --- on the grid ------------------------------------------------------------------------------------------------


def test_a_throttling_cell_is_drained_with_its_cause_and_comes_back_slowly() -> None:
    grid = world(9, seed=1).run(20.0)
    grid.cell(3).throttle_bits = HW_THERMAL
    grid.run(23.0)
    assert grid.weight(3) == 0
    row = grid.row(3)
    assert row is not None
    assert row.drained
    assert "thermal" in row.reason
    grid.cell(3).throttle_bits = 0
    grid.run(45.0)
    assert grid.weight(3) == 0
    grid.run(55.0)
    assert 0 < grid.weight(3) < 60
    grid.run(120.0)
    assert grid.weight(3) >= 120
    names = [event.name for event in grid.events if event.cell_id == "c3"]
    assert names == ["alert.thermal", "alert.thermal.cleared"]


@pytest.mark.parametrize(("cells", "hot", "removed", "held"), [(9, 9, 3, 0), (9, 4, 3, 0), (4, 4, 1, 0), (3, 1, 0, 1)])
def test_at_most_a_third_of_a_pool_is_drained(cells: int, hot: int, removed: int, held: int) -> None:
    grid = world(cells, seed=1).run(20.0)
    for cell in grid.cells[:hot]:
        cell.throttle_bits = HW_THERMAL
    grid.run(24.0)
    weights = [grid.weight(index) for index in range(cells)]
    assert weights.count(0) == removed
    assert weights.count(1) == held
    assert len([event for event in grid.events if event.name == "alert.thermal"]) == hot


def test_a_slow_exporter_promises_no_lead() -> None:
    grid = world(4, seed=1).run(5.0)
    grid.cell(0).interval_s = 30.0
    grid.cell(0).throttle_bits = HW_THERMAL
    grid.run(9.0)
    assert any("lead not promised" in event.detail for event in grid.events if event.cell_id == "c0")
