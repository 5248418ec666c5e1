"""Every signal the agent's readers know is read from the engine's page, and means what it says."""

import dataclasses

import pytest

from tests.contract.client import eventually, get, post
from tests.contract.engine import LIMITS, MODEL, Engine
from tests.contract.requests import CHAT, chat
from tradewind.agent.dry_run import DryRunReport, dry_run
from tradewind.model.telemetry import EngineReading, Histogram
from tradewind.telemetry.engine_metrics import EngineReader, EngineScrape

COUNTED_S = 5.0
SUB_MINUTE_S = (0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0)
TTFT_BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, *SUB_MINUTE_S, 80.0, 160.0, 640.0, 2560.0)
ITL_BOUNDS_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, *SUB_MINUTE_S[1:], 80.0)
# Counters that stand still on an engine that has never failed or preempted are read as zero, which is knowledge.
COUNTERS = (
    "prompt_tokens_total",
    "generation_tokens_total",
    "steps_total",
    "prefix_query_tokens_total",
    "finished_total",
)


def scrape(engine: Engine) -> EngineScrape:
    return EngineReader().read(get(engine, "/metrics").body, served=[MODEL])


@pytest.fixture
def used(engine: Engine) -> Engine:
    """An engine that has served a request of two blocks twice, and has counted it."""
    body = chat(max_tokens=8)
    body["messages"][0]["content"] *= 4
    before = scrape(engine).reading.finished_total or 0.0
    for _ in range(2):
        post(engine, CHAT, body)
    eventually(
        lambda: (scrape(engine).reading.finished_total or 0.0) >= before + 2,
        within_s=COUNTED_S,
        what="both requests are counted",
    )
    return engine


def test_content_type_is_plain_text_1_0_0(engine: Engine) -> None:
    assert get(engine, "/metrics").headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"


def test_the_page_is_known_as_vllm_and_whole(used: Engine) -> None:
    seen = scrape(used)
    assert (seen.kind, seen.bad_lines, seen.unknown) == ("vllm", 0, ())


def test_every_signal_is_read(used: Engine) -> None:
    reading = scrape(used).reading
    assert [field.name for field in dataclasses.fields(EngineReading) if getattr(reading, field.name) is None] == []


def test_capacity_is_read(engine: Engine) -> None:
    seen = scrape(engine)
    assert seen.kv_capacity_tokens is not None
    assert seen.kv_capacity_tokens >= LIMITS.max_model_len
    assert seen.block_size_tokens is not None
    assert seen.kv_capacity_tokens % seen.block_size_tokens == 0


def test_counters_grow_by_the_work_done(used: Engine) -> None:
    before = scrape(used).reading
    usage = post(used, CHAT, chat(max_tokens=8)).json()["usage"]
    eventually(
        lambda: (scrape(used).reading.finished_total or 0.0) > (before.finished_total or 0.0),
        within_s=COUNTED_S,
        what="the request is counted",
    )
    grown = {name: growth(before, scrape(used).reading, name) for name in COUNTERS}
    assert grown["generation_tokens_total"] == usage["completion_tokens"] == 8
    assert grown["prompt_tokens_total"] == grown["prefix_query_tokens_total"] == usage["prompt_tokens"]
    assert grown["finished_total"] == 1
    assert grown["steps_total"] >= 8


def growth(before: EngineReading, after: EngineReading, name: str) -> float:
    grown = getattr(after, name) - getattr(before, name)
    assert isinstance(grown, float)
    return grown


def test_cached_prompt_tokens_are_not_computed_tokens(used: Engine) -> None:
    reading = scrape(used).reading
    assert reading.prefix_hit_tokens_total
    assert reading.prompt_tokens_total == reading.prompt_computed_tokens_total + reading.prefix_hit_tokens_total  # type: ignore[operator]  # every signal is read


@pytest.mark.parametrize(("signal", "bounds"), [("ttft_s", TTFT_BOUNDS_S), ("itl_s", ITL_BOUNDS_S)])
def test_latency_buckets_are_vllms(used: Engine, signal: str, bounds: tuple[float, ...]) -> None:
    histogram = getattr(scrape(used).reading, signal)
    assert isinstance(histogram, Histogram)
    assert histogram.bounds == bounds
    assert histogram.counts[-1] > 0


def test_an_idle_engine_has_nothing_running(engine: Engine) -> None:
    reading = scrape(engine).reading
    assert (reading.running_requests, reading.queue_requests, reading.sleeping) == (0, 0, False)


def test_a_dry_run_knows_all_of_the_engine(used: Engine) -> None:
    report = dry_run(f"http://127.0.0.1:{used.port}")
    assert report.reachable
    # GPU and host belong to the machine: a test machine may have neither a GPU nor a CPU limit.
    assert [(row.signal, row.reason) for row in report.unknown if row.group not in ("gpu", "host")] == []
    assert capability(report, "engine_version") == "0.32.0"
    assert capability(report, "max_model_len") == str(LIMITS.max_model_len)


def capability(report: DryRunReport, signal: str) -> str:
    (row,) = (row for row in report.rows if (row.group, row.signal) == ("capability", signal))
    return row.value
