"""A cell's telemetry over time: flags, ages, reasons."""

from dataclasses import replace

from tradewind.model.telemetry import CacheReading, EngineReading, GpuReading, HostReading, UnknownSignal
from tradewind.telemetry.dcgm import DcgmReader, GpuScrape
from tradewind.telemetry.engine_metrics import EngineScrape
from tradewind.telemetry.tracker import CellTelemetry, reasons


def engine(tokens: float = 0.0, *, running: float | None = None) -> EngineScrape:
    reading = EngineReading(queue_requests=1.0, generation_tokens_total=tokens, running_requests=running)
    return EngineScrape(kind="vllm", reading=reading)


def gpu(fingerprint: int, *missing: str) -> GpuScrape:
    return GpuScrape(reading=GpuReading(gpus=1, util_ratio=0.03), fingerprint=fingerprint, missing=missing)


def test_ages_are_counted_from_the_reading() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=True)
    cell.engine_hit(engine(), 10.0)
    cell.gpu_hit(gpu(1), 10.5)
    cell.host_read(HostReading(cpu_throttled_ratio=0.25), 10.5)
    telemetry = cell.telemetry(11.0)
    assert (telemetry.engine_age_s, telemetry.gpu_age_s) == (1.0, 0.5)
    assert telemetry.host == HostReading(cpu_throttled_ratio=0.25)
    assert telemetry.flags == ()


def test_the_fallback_flag_comes_with_the_first_miss_and_the_value_stays_for_three() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=True)
    cell.gpu_hit(gpu(1), 0.0)
    cell.gpu_miss("exporter: connection refused")
    telemetry = cell.telemetry(0.1)
    assert telemetry.flags == ("dcgm_fallback",)
    assert telemetry.gpu is not None
    cell.gpu_miss("exporter: connection refused")
    cell.gpu_miss("exporter: connection refused")
    telemetry = cell.telemetry(2.0)
    assert telemetry.gpu is None
    assert telemetry.gpu_age_s is None
    assert reasons(telemetry.unknown)["gpu"] == "exporter: connection refused"
    assert telemetry.flags == ("dcgm_fallback",)
    cell.gpu_hit(gpu(2), 3.0)
    assert cell.telemetry(3.0).flags == ("dcgm_fallback",)
    cell.gpu_hit(gpu(3), 4.0)
    assert cell.telemetry(4.0).flags == ()


def test_a_cell_without_gpu_telemetry_is_no_fallback() -> None:
    telemetry = CellTelemetry(scrape_s=1.0, gpu_source=False).telemetry(5.0)
    assert telemetry.flags == ()
    assert reasons(telemetry.unknown)["gpu"] == "no GPU telemetry is configured"


def test_fc_36_an_idle_looking_frozen_page_is_dropped_under_work() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=True)
    for second in range(10):
        cell.engine_hit(engine(tokens=100.0 * second), float(second))
        cell.gpu_hit(gpu(second), float(second))
    for second in range(10, 17):
        cell.engine_hit(engine(tokens=100.0 * second), float(second))
        cell.gpu_hit(gpu(9), float(second))
    telemetry = cell.telemetry(16.0)
    assert telemetry.gpu is None
    assert telemetry.flags == ("dcgm_fallback", "gpu_frozen")
    assert "while the engine worked" in reasons(telemetry.unknown)["gpu"]


def energy_page(first: float, second: float) -> bytes:
    return "".join(
        f'DCGM_FI_DEV_{name}{{UUID="GPU-{gpu}"}} {value}\n'
        for gpu, energy in (("A", first), ("B", second))
        for name, value in (("TOTAL_ENERGY_CONSUMPTION", energy), ("GPU_TEMP", 60))
    ).encode()


def test_fc_36_one_gpu_that_stands_still_is_noticed_though_another_moves() -> None:
    cell, reader = CellTelemetry(scrape_s=1.0, gpu_source=True), DcgmReader()
    for second in range(20):
        cell.engine_hit(engine(tokens=100.0 * second), float(second))
        cell.gpu_hit(reader.read(energy_page(second, min(second, 9))), float(second))
        assert (cell.telemetry(float(second)).gpu is None) is (second > 9 + 5), second
    telemetry = cell.telemetry(19.0)
    assert telemetry.flags == ("dcgm_fallback", "gpu_frozen")
    assert "GPU-B stood still" in reasons(telemetry.unknown)["gpu"]
    for second in (20, 21):
        cell.engine_hit(engine(tokens=100.0 * second), float(second))
        cell.gpu_hit(reader.read(energy_page(second, second)), float(second))
    assert cell.telemetry(21.0).flags == ()


def test_fc_36_an_energy_counter_that_has_never_moved_and_an_idle_engine_are_no_freeze() -> None:
    busy, idle = (CellTelemetry(scrape_s=1.0, gpu_source=True) for _ in range(2))
    never, once = DcgmReader(), DcgmReader()
    for second in range(200):
        busy.engine_hit(engine(tokens=100.0 * second), float(second))
        busy.gpu_hit(never.read(energy_page(second, 0)), float(second))
        idle.engine_hit(engine(tokens=min(second, 9)), float(second))
        idle.gpu_hit(once.read(energy_page(second, min(second, 9))), float(second))
    assert busy.telemetry(199.0).flags == ()
    assert idle.telemetry(199.0).flags == ()


def test_fc_36_lines_that_go_on_beside_a_frozen_page_change_nothing() -> None:
    cell, reader = CellTelemetry(scrape_s=1.0, gpu_source=True), DcgmReader(("GPU-A", "GPU-B"))
    for second in range(20):
        still = min(second, 9)
        others = (
            f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="GPU-C"}} {second}\nprocess_cpu_seconds_total {second}\n'
            f'DCGM_EXP_XID_ERRORS_COUNT{{UUID="GPU-A",window_size_in_ms="1000"}} {second % 3}\n'
            f'DCGM_EXP_CLOCK_EVENTS_COUNT{{UUID="GPU-A"}} {second}\n'
        )
        cell.engine_hit(engine(tokens=100.0 * second), float(second))
        cell.gpu_hit(reader.read(energy_page(still, still) + others.encode()), float(second))
    assert cell.telemetry(19.0).flags == ("dcgm_fallback", "gpu_frozen")


def test_fc_36_the_same_page_on_an_idle_engine_is_kept() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=True)
    for second in range(200):
        cell.engine_hit(engine(tokens=7.0), float(second))
        cell.gpu_hit(gpu(1), float(second))
    telemetry = cell.telemetry(199.0)
    assert telemetry.gpu is not None
    assert telemetry.flags == ()


def test_missing_gpus_are_named() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=True)
    cell.gpu_hit(gpu(1, "GPU-B"), 0.0)
    telemetry = cell.telemetry(0.0)
    assert telemetry.flags == ("gpu_missing",)
    assert reasons(telemetry.unknown)["gpu GPU-B"] == "not on the page"


def test_what_a_page_calls_its_gpus_does_not_fill_a_heartbeat() -> None:
    cell, reader = CellTelemetry(scrape_s=1.0, gpu_source=True), DcgmReader()
    names = [f"{number}{'x' * 10_000}" for number in range(100)]
    for gpus in (names, names[:1]):
        page = "".join(f'DCGM_FI_DEV_GPU_TEMP{{UUID="{gpu}"}} 40\n' for gpu in gpus)
        cell.gpu_hit(reader.read(page.encode()), 0.0)
    unknown = cell.telemetry(0.0).unknown
    assert len(unknown) == 64
    assert sum(len(entry.signal) + len(entry.reason) for entry in unknown) < 64 * 200


def test_an_unreadable_engine_page_is_flagged_when_its_values_are_gone() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=False)
    cell.engine_hit(engine(), 0.0)
    nonsense = EngineScrape(
        kind=None, reading=EngineReading(), unknown=(UnknownSignal(signal="engine", reason="no metric is there"),)
    )
    for second in (1.0, 2.0):
        cell.engine_hit(nonsense, second)
        assert cell.telemetry(second).engine is not None
    cell.engine_hit(nonsense, 3.0)
    telemetry = cell.telemetry(3.0)
    assert telemetry.engine is None
    assert telemetry.flags == ("engine_metrics_stale",)
    assert reasons(telemetry.unknown)["engine"] == "no metric is there"


def test_a_restart_drops_the_old_processs_values() -> None:
    cell = CellTelemetry(scrape_s=1.0, gpu_source=False)
    cell.engine_hit(engine(), 0.0)
    cell.engine_restarted("the engine is down: connection refused")
    telemetry = cell.telemetry(0.1)
    assert telemetry.engine is None
    assert reasons(telemetry.unknown)["engine"] == "the engine is down: connection refused"


def test_the_sleep_gauge_left_over_from_a_resume_is_not_believed() -> None:
    asleep = replace(engine(tokens=5.0, running=0.0), asleep=True)
    asleep = replace(asleep, reading=replace(asleep.reading, sleeping=True))
    cell = CellTelemetry(scrape_s=1.0, gpu_source=False)
    cell.engine_hit(asleep, 0.0)
    telemetry = cell.telemetry(0.0)
    assert telemetry.engine is not None
    assert telemetry.engine.sleeping is True
    assert telemetry.flags == ("engine_asleep",)
    cell.engine_hit(replace(asleep, reading=replace(asleep.reading, generation_tokens_total=9.0)), 1.0)
    served = cell.telemetry(1.0)
    assert served.engine is not None
    assert served.engine.sleeping is False
    assert served.flags == ()


def test_what_kv_events_say_is_told_or_why_they_say_nothing() -> None:
    class Cache:
        said: CacheReading | str = "kv events: nothing heard yet"

        def __init__(self) -> None:
            self.ended_s: list[float] = []

        def read(self, now_s: float) -> CacheReading | str:
            return self.said

        def engine_restarted(self, now_s: float) -> None:
            self.ended_s.append(now_s)

    cache = Cache()
    cell = CellTelemetry(scrape_s=1.0, gpu_source=False, cache=cache)
    assert reasons(cell.telemetry(1.0).unknown)["cache"] == "kv events: nothing heard yet"
    cache.said = CacheReading(clearings=1)
    assert cell.telemetry(2.0).cache == cache.said
    assert "cache" not in reasons(cell.telemetry(2.0).unknown)
    cell.engine_restarted("the engine has just come up")
    assert not cache.ended_s, "its cache is as old as itself"
    cell.engine_ended("the engine is down", 3.0)
    assert cache.ended_s == [3.0]
    assert reasons(cell.telemetry(4.0).unknown)["engine"] == "the engine is down"
