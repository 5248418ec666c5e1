"""Ten signals in 0..1 from whatever readings come; unknown is never zero."""

import math

import pytest

from tests.unit.core.world import FakeCell
from tradewind.core.pressure import UNKNOWN, ClassMeans, OwnMeans, load_pressure
from tradewind.core.settings import ScoringSettings, SignalSettings
from tradewind.core.signals import FrozenWatch, GpuSignals, PathTrack, TtftTrack, gpu_signals, queue_signal
from tradewind.core.track import CellTrack
from tradewind.core.windows import EngineWindow
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram, Telemetry
from tradewind.model.view import PathReading

SETTINGS = SignalSettings()
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("queue", "signal"), [(0.0, 0.0), (4.0, 0.5), (80.0, 1.0), (None, None), (NAN, None), (INF, None), (-1.0, None)]
)
def test_queue(queue: float | None, signal: float | None) -> None:
    assert queue_signal(EngineReading(queue_requests=queue), SETTINGS) == signal


@pytest.mark.parametrize("bad", [None, NAN, INF, -INF, -1.0, 37.5, 1e308])
def test_fc_33_a_senseless_ratio_is_unknown(bad: float | None) -> None:
    gpu = GpuReading(
        gpus=1,
        util_ratio=bad,
        vram_ratio=bad,
        sm_active_ratio=bad,
        tensor_active_ratio=bad,
        dram_active_ratio=bad,
    )
    assert gpu_signals(gpu, SETTINGS) == GpuSignals()


def test_vram_only_speaks_in_its_last_twentieth() -> None:
    assert gpu_signals(GpuReading(gpus=1, vram_ratio=0.93), SETTINGS).vram == 0.0
    assert gpu_signals(GpuReading(gpus=1, vram_ratio=0.975), SETTINGS).vram == pytest.approx(0.5)


def page(total: float) -> EngineReading:
    return EngineReading(ttft_s=Histogram(bounds=(0.5, 1.5), counts=(0.0, total, total)))


def test_ttft_fades_without_requests_and_is_unknown_before_any() -> None:
    window, track = EngineWindow(span_s=10.0), TtftTrack()
    window.add(0.0, page(0))
    track.take(window, SETTINGS)
    assert track.value(window, SETTINGS, 0.0) is None
    window.add(1.0, page(10))
    track.take(window, SETTINGS)
    fresh = track.value(window, SETTINGS, 1.0)
    assert fresh == pytest.approx(1.45 / 1.5)
    for second in range(2, 30):
        window.add(float(second), page(10))
        track.take(window, SETTINGS)
    late = track.value(window, SETTINGS, 29.0)
    assert fresh is not None
    assert late is not None
    assert late < 0.3 * fresh


def test_rtt_is_smoothed_and_rubbish_changes_nothing() -> None:
    path = PathTrack()
    for rtt_s in (0.010, NAN, None, -1.0, INF):
        path.update(PathReading(cell_id="c", rtt_s=rtt_s, jitter_s=0.001), SETTINGS, 0.0)
    assert list(path.signals(SETTINGS)) == [pytest.approx(0.1), pytest.approx(0.05)]


def test_fc_32_the_mean_fill_scores_and_the_fullest_rank_alerts() -> None:
    track = CellTrack(FakeCell("c0").view(0.0))
    reading = EngineReading(queue_requests=40.0, kv_fill_ratio=0.5, kv_fill_max_ratio=0.95)
    track.view = FakeCell("c0", telemetry=Telemetry(engine=reading, engine_age_s=0.0)).view(0.0)
    track.take_telemetry(0.0, ScoringSettings())
    assert (track.kv, track.kv_max, track.queue) == (0.5, 0.95, 1.0)


# --- frozen GPU values ------------------------------------------------------------------------------------------


def frozen_after(seconds: int, *, steps_per_s: float, interval_s: float | None, moving: bool) -> bool:
    watch = FrozenWatch()
    for second in range(seconds):
        power_w = 100.0 + (second if moving else 0)
        gpu = GpuReading(gpus=1, util_ratio=0.03, power_w=power_w, sm_clock_hz=1e9)
        watch.update(gpu, steps=second * steps_per_s, interval_s=interval_s, settings=SETTINGS, now_s=float(second))
    return watch.frozen


def test_fc_36_numbers_that_stand_still_under_load_are_frozen() -> None:
    assert frozen_after(15, steps_per_s=30, interval_s=1.0, moving=False)


def test_fc_36_an_idle_gpu_may_stand_still() -> None:
    assert not frozen_after(60, steps_per_s=0, interval_s=1.0, moving=False)


def test_fc_36_a_slow_exporter_is_not_frozen() -> None:
    assert not frozen_after(60, steps_per_s=30, interval_s=30.0, moving=False)
    assert frozen_after(90, steps_per_s=30, interval_s=30.0, moving=False)
    assert not frozen_after(90, steps_per_s=30, interval_s=1.0, moving=True)


# --- imputation -------------------------------------------------------------------------------------------------


def means_of(*members: tuple[float | None, ...]) -> ClassMeans:
    means = ClassMeans()
    means.update(members)
    return means


def test_fc_37_a_cell_with_fewer_fields_is_not_scored_as_idle() -> None:
    full = (0.4, 0.4, 0.4, 0.6, 0.6, 0.6, 0.9, 0.5, 0.1, 0.1)
    partial = (0.4, 0.4, 0.4, None, None, None, 0.9, 0.5, 0.1, 0.1)
    means = means_of(full, full, partial)
    own = OwnMeans()
    assert load_pressure(partial, means, own) == pytest.approx(load_pressure(full, means, own))


def test_a_whole_group_missing_in_one_cell_changes_nothing() -> None:
    full = (0.2, 0.3, 0.1, 0.5, 0.5, 0.4, 0.9, 0.0, 0.1, 0.1)
    blind = (0.2, 0.3, 0.1, None, None, None, None, None, 0.1, 0.1)
    means = means_of(*[full] * 8, blind)
    assert load_pressure(blind, means, OwnMeans()) == pytest.approx(load_pressure(full, means, OwnMeans()))


def test_what_nobody_knows_drops_out() -> None:
    nobody = (0.2, 0.2, 0.2, None, None, None, None, None, 0.2, 0.2)
    assert load_pressure(nobody, means_of(nobody, nobody), OwnMeans()) == pytest.approx(0.2)
    assert load_pressure(UNKNOWN, means_of(UNKNOWN), OwnMeans()) is None


def test_alone_in_its_class_a_cell_is_imputed_from_its_own_past() -> None:
    full = (0.2, 0.2, 0.2, 0.8, 0.8, 0.8, 0.8, 0.8, 0.2, 0.2)
    gone = (0.2, 0.2, 0.2, None, None, None, None, None, 0.2, 0.2)
    own = OwnMeans()
    for second in range(60):
        own.update(full, span_s=30.0, now_s=float(second))
    assert load_pressure(gone, means_of(gone), own) == pytest.approx(load_pressure(full, means_of(full), own))
