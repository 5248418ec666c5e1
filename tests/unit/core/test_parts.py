"""Speed, projection, push gate, back-pressure, slow start, ejection, stated limits: one machine at a time."""

import math

import pytest

from tradewind.core.backpressure import Backpressure
from tradewind.core.capability import LongestPrompt, too_small
from tradewind.core.ejection import EjectionTrack
from tradewind.core.pools import aliases
from tradewind.core.projection import PushGate, weight_of
from tradewind.core.settings import (
    BackpressureSettings,
    CapabilitySettings,
    EjectionSettings,
    ProjectionSettings,
    SlowStartSettings,
    SpeedSettings,
)
from tradewind.core.slowstart import SlowStart
from tradewind.core.speed import ClockSpeed, WorkSpeed, class_medians, work_rate
from tradewind.core.steplaw import step_law
from tradewind.core.windows import EngineWindow
from tradewind.model.telemetry import EngineReading, GpuReading, Histogram

# --- names -------------------------------------------------------------------------------------------------------


def test_names_of_one_engine_are_one_model_unless_an_adapter_anywhere() -> None:
    assert aliases([(("a", "b"), ()), (("b", "c"), ()), (("d",), ())]) == {"b": "a", "c": "a"}
    assert aliases([(("a", "x"), ("x",)), (("a", "b"), ())]) == {"b": "a"}
    assert aliases([(("a", "x"), ("x",)), (("b", "x"), ())]) == {}
    assert aliases([((), ())]) == {}


# --- speed ------------------------------------------------------------------------------------------------------


def rate(*, steps: float, prompt: float, running: float = 4.0, law: str = "h100") -> float | None:
    window = EngineWindow(span_s=10.0)
    for second in range(3):
        window.add(
            float(second),
            EngineReading(
                running_requests=running, steps_total=steps * second, prompt_computed_tokens_total=prompt * second
            ),
        )
    return work_rate(window, step_law(law), None, SpeedSettings())


def test_prefill_and_decode_weigh_the_same_work() -> None:
    decoding, prefilling = rate(steps=41.0, prompt=0.0), rate(steps=2.0 + 18.0, prompt=1700.0)
    assert decoding is not None
    assert prefilling is not None
    assert prefilling == pytest.approx(decoding, rel=0.05)
    assert decoding == pytest.approx(1.0, rel=0.05)


def test_speed_is_unknown_unless_the_engine_was_busy() -> None:
    assert rate(steps=41.0, prompt=0.0, running=0.0) is None
    assert rate(steps=1.0, prompt=0.0) is None


def test_short_prompts_do_not_seem_long_because_few_requests_end() -> None:
    """An engine that slows down for 3 s after 6 healthy ones: the last 4 s tell, what came before does not."""
    window, law = EngineWindow(span_s=10.0), step_law("rtx-pro-6000")
    prompts = steps = tokens = 0.0
    waited_s = 0.0
    for second in range(10):
        speed = 1.0 if second <= 6 else 0.4
        prompts, steps, tokens = prompts + 3.0 * speed, steps + 8.0 * speed, tokens + 40.0 * speed
        waited_s += 5.0
        window.add(
            float(second),
            EngineReading(
                running_requests=5.0,
                steps_total=steps,
                prompt_computed_tokens_total=512.0 * prompts,
                generation_tokens_total=tokens,
                ttft_s=Histogram(bounds=(1.0,), counts=(0.0, prompts)),
                itl_s=Histogram(bounds=(), counts=(tokens,), total=waited_s),
                finished_total=float(second // 4),
            ),
        )
    healthy = work_rate(_until(window, 6.0), law, None, SpeedSettings())
    slowed = work_rate(window, law, None, SpeedSettings())
    assert healthy is not None
    assert slowed is not None
    assert slowed < healthy / SpeedSettings().tolerance


def _until(window: EngineWindow, at_s: float) -> EngineWindow:
    part = EngineWindow(span_s=window.span_s)
    for read_s, reading in window.readings:
        if read_s <= at_s:
            part.add(read_s, reading)
    return part


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rtx-pro-6000", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("H200", "h200"),
    ],
)
def test_hardware_is_found_by_its_name(name: str, key: str) -> None:
    assert step_law(name) == step_law(key)
    assert step_law(name) != step_law(None)


def test_a_little_slower_is_not_slow_and_idle_relaxes() -> None:
    work = WorkSpeed(rate=0.75)
    assert work.update(1.0, SpeedSettings(), 1.0) == 1.0
    work.rate = 0.4
    assert work.update(1.0, SpeedSettings(), 1.0) == pytest.approx(0.4)
    work.rate = None
    assert work.update(1.0, SpeedSettings(), 1.0) == pytest.approx(0.5)


def test_classes_have_their_own_medians() -> None:
    assert class_medians([("a", 1.0), ("a", 3.0), ("b", 9.0), ("b", None)]) == {"a": 2.0, "b": 9.0}


def clock(hz: float, track: ClockSpeed, now_s: float, *, loaded: bool = True, interval_s: float = 1.0) -> float:
    gpu = GpuReading(gpus=1, sm_clock_hz=hz)
    track.update(gpu, loaded=loaded, interval_s=interval_s, settings=SpeedSettings(), now_s=now_s)
    return track.value(SpeedSettings(), now_s)


def test_a_lower_clock_under_load_is_slow_and_an_idle_one_is_not() -> None:
    track = ClockSpeed()
    assert clock(2e9, track, 0.0) == 1.0
    assert clock(0.3e9, track, 1.0, loaded=False) == 1.0
    assert clock(1.9e9, track, 2.0) == 1.0
    assert clock(1.0e9, track, 3.0) == pytest.approx(0.5, rel=0.05)
    assert track.value(SpeedSettings(), 7.0) == 1.0  # too old to count


def test_a_clock_that_changes_every_30_s_is_not_used() -> None:
    track = ClockSpeed()
    clock(2e9, track, 0.0, interval_s=30.0)
    assert clock(1e9, track, 1.0, interval_s=30.0) == 1.0


# --- projection -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1e-12, 0.5, 1.0, math.nan, math.inf])
def test_weights_stay_in_range(value: float) -> None:
    assert 1 <= weight_of(value, 1.0, ProjectionSettings()) <= 134
    assert weight_of(1.0, 0.0, ProjectionSettings()) == 134


def test_small_changes_wait_and_large_ones_do_not() -> None:
    gate = PushGate(ProjectionSettings())
    assert gate.decide({"a": 134, "b": 100}, 0.0, urgent=False)
    assert not gate.decide({"a": 134, "b": 95}, 1.0, urgent=False)
    assert gate.decide({"a": 134, "b": 90}, 2.0, urgent=False)
    assert not gate.decide({"a": 134, "b": 89}, 3.0, urgent=False)
    assert gate.decide({"a": 134, "b": 89}, 33.0, urgent=False)
    assert gate.decide({"a": 134}, 34.0, urgent=False)
    assert gate.decide({"a": 133}, 35.0, urgent=True)
    assert not gate.decide({"a": 133}, 36.0, urgent=True)  # nothing to say


# --- back-pressure ----------------------------------------------------------------------------------------------


def test_fc_07_a_shorter_retry_after_never_shortens_the_hold() -> None:
    settings, track = BackpressureSettings(), Backpressure()
    track.on_refused(5.0, settings, 0.0)
    track.on_refused(None, settings, 0.25)
    assert track.held_until_s == 5.0
    assert track.current(settings, 4.9) == 0.25
    assert 0.25 < track.current(settings, 6.0) < 0.5
    assert track.current(settings, 30.0) == 1.0


@pytest.mark.parametrize("retry_after_s", [None, math.nan, math.inf, -5.0, 1e9])
def test_backpressure_is_bounded(retry_after_s: float | None) -> None:
    settings, track = BackpressureSettings(), Backpressure()
    for _ in range(100):
        track.on_refused(retry_after_s, settings, 0.0)
    assert track.current(settings, 0.5) == settings.floor
    assert track.current(settings, 60.0) == 1.0


# --- slow start -------------------------------------------------------------------------------------------------


def test_a_cell_warms_by_what_it_has_served() -> None:
    settings, start = SlowStartSettings(), SlowStart()
    assert start.value(0.0, settings, reuse_ratio=None) == 1.0
    start.begin(0.0)
    assert start.value(1.0, settings, reuse_ratio=0.8) == settings.floor
    for _ in range(30):
        start.on_served(2.0)
    assert start.value(2.0, settings, reuse_ratio=0.8) == 0.5
    for _ in range(30):
        start.on_served(3.0)
    assert start.value(3.0, settings, reuse_ratio=0.8) == 1.0


def test_an_idle_start_ends_and_little_reuse_ramps_by_clock() -> None:
    settings, start = SlowStartSettings(), SlowStart()
    start.begin(0.0)
    assert start.value(15.0, settings, reuse_ratio=0.1) == 0.5
    start.begin(0.0)
    assert start.value(119.0, settings, reuse_ratio=0.9) == settings.floor
    assert start.value(120.0, settings, reuse_ratio=0.9) == 1.0


# --- ejection ---------------------------------------------------------------------------------------------------


def test_one_lost_probe_ejects_nobody_and_two_do() -> None:
    settings, track = EjectionSettings(), EjectionTrack()
    track.on_path(reachable=False)
    assert not track.update(settings, 0.0, allowed=True)
    track.on_path(reachable=False)
    assert track.update(settings, 0.5, allowed=True)
    track.on_path(reachable=True)
    assert not track.update(settings, 1.0, allowed=True)  # held for a while
    assert track.update(settings, 6.0, allowed=True)


def test_a_lost_probe_and_a_refused_request_agree() -> None:
    settings, track = EjectionSettings(), EjectionTrack()
    track.on_unreached(0.0)
    assert not track.update(settings, 0.0, allowed=True)
    track.on_path(reachable=False)
    assert track.update(settings, 0.1, allowed=True)


def test_a_second_ejection_lasts_longer_and_an_answer_clears_the_burst() -> None:
    settings, track = EjectionSettings(), EjectionTrack()
    for _ in range(3):
        track.on_unreached(0.0)
    assert track.update(settings, 0.0, allowed=True)
    assert track.update(settings, 5.0, allowed=True)
    for _ in range(2):
        track.on_unreached(6.0)
    track.on_answered()
    track.on_unreached(6.1)
    assert not track.update(settings, 6.1, allowed=True)
    for _ in range(2):
        track.on_unreached(6.2)
    assert track.update(settings, 6.2, allowed=True)
    assert not track.update(settings, 12.0, allowed=True)
    assert track.update(settings, 16.3, allowed=True)


# --- stated limits ----------------------------------------------------------------------------------------------


def small(limits: list[int | None], seen: list[int], *, watched_s: float = 0.0) -> list[str]:
    settings = CapabilitySettings()
    longest = LongestPrompt(settings)
    for index, tokens in enumerate(seen):
        at_s = watched_s * index / max(1, len(seen) - 1)
        longest.on_request(request_bytes=tokens * 4, prompt_tokens=tokens, completion_tokens=0, now_s=at_s)
    named = {f"c{index}": limit for index, limit in enumerate(limits)}
    return sorted(too_small(named, longest, settings, watched_s))


NINE: list[int | None] = [1024, *[131072] * 8]


def test_an_advertised_small_limit_is_left_out_before_the_first_refusal() -> None:
    assert small(NINE, []) == ["c0"]
    assert small(NINE, [300, 3000]) == ["c0"]


def test_a_pool_that_is_proven_short_takes_it_in() -> None:
    assert small(NINE, [300] * 250, watched_s=700.0) == []
    assert small(NINE, [300] * 250, watched_s=60.0) == ["c0"]
    assert small(NINE, [300] * 249 + [900], watched_s=700.0) == ["c0"]


def test_a_long_prompt_is_forgotten_after_its_time() -> None:
    settings = CapabilitySettings()
    longest = LongestPrompt(settings)
    longest.on_request(request_bytes=8000, prompt_tokens=2000, completion_tokens=100, now_s=0.0)
    for second in range(1, 700):
        longest.on_request(request_bytes=800, prompt_tokens=200, completion_tokens=100, now_s=float(second))
    assert longest.longest(700.0) == 300


def test_half_a_pool_is_never_left_out_for_what_may_come() -> None:
    half: list[int | None] = [1024, 1024, 131072, 131072]
    assert small(half, []) == []
    assert small(half, [3000]) == ["c0", "c1"]
    assert small([1024, 1024, 1024, 131072], [3000]) == []  # too few would remain


def test_unknown_and_equal_limits_are_no_limits() -> None:
    assert small([None, None, 4096], [3000]) == []
    assert small([4096, 4096, 4096], [9000]) == []
    assert small([None, 1024, 131072, 131072], []) == ["c1"]
