"""What an agent believes of one engine, event by event."""

import pytest

from tradewind.agent.life import EngineLife
from tradewind.agent.listing import Listing
from tradewind.model.telemetry import EngineReading
from tradewind.telemetry.engine_metrics import EngineScrape
from tradewind.telemetry.health import HealthReading, Liveness

LISTING = Listing(first="m", models=("alias", "lora", "m"), lora_models=("lora",), max_model_len=4096)


def health(liveness: Liveness, detail: str = "") -> HealthReading:
    return HealthReading(liveness=liveness, rtt_s=None, detail=detail, at_s=0.0)


def life(**switches: bool) -> EngineLife:
    settings = {"advertise_max_model_len": True, "warm_up": True, **switches}
    return EngineLife(hardware="h100", **settings)


def up(engine: EngineLife) -> EngineLife:
    engine.health(health(Liveness.OK))
    engine.listed(LISTING, "0.32.0")
    engine.warmed_up()
    return engine


def test_fc_09_the_way_up() -> None:
    engine = life()
    assert (engine.evidence.reachable, engine.evidence.model_listed, engine.evidence.warmed_up) == (None, None, None)
    assert engine.health(health(Liveness.DEAD, "connection refused")) is False, "it was not up before"
    assert engine.evidence.reachable is False
    assert engine.evidence.reason == "connection refused"
    assert engine.health(health(Liveness.OK)) is True
    assert (engine.evidence.reachable, engine.evidence.model_listed, engine.evidence.warmed_up) == (True, None, None)
    engine.not_listed("/v1/models answers 500")
    assert engine.evidence.model_listed is False
    engine.listed(LISTING, "0.32.0")
    assert (engine.evidence.model_listed, engine.evidence.warmed_up, engine.is_ready) == (True, None, False)
    engine.not_warm("the warm-up request was answered 503")
    assert engine.evidence.warmed_up is False
    engine.warmed_up()
    assert engine.is_ready
    assert engine.evidence.reason == ""
    assert engine.capabilities.models == ("alias", "lora", "m")
    assert engine.capabilities.max_model_len == 4096
    assert engine.capabilities.hardware == "h100"


def test_death_takes_everything_and_starts_a_new_generation() -> None:
    engine = up(life())
    generation = engine.generation
    assert engine.health(health(Liveness.DEAD, "connection refused")) is True
    assert engine.generation == generation + 1
    assert (engine.evidence.reachable, engine.evidence.model_listed, engine.evidence.warmed_up) == (False, None, None)
    assert engine.health(health(Liveness.DEAD, "connection refused")) is False
    assert engine.capabilities.models == ("alias", "lora", "m"), "its pool is still known"


def test_fc_04_slow_is_not_dead() -> None:
    engine = up(life())
    for _ in range(100):
        assert engine.health(health(Liveness.SLOW, "no answer within 1 s")) is False
    assert engine.is_ready


def test_an_engine_that_has_never_answered_is_not_up() -> None:
    engine = life()
    engine.health(health(Liveness.SLOW, "/health: no answer within 1 s"))
    assert engine.evidence.reachable is False
    assert "no answer" in engine.evidence.reason


def test_a_new_process_must_warm_up_again() -> None:
    engine = up(life())
    assert engine.restarted(100.0) is False, "the first start time seen"
    assert engine.restarted(100.0) is False
    generation = engine.generation
    assert engine.restarted(200.0) is True
    assert engine.generation == generation + 1
    assert (engine.evidence.reachable, engine.evidence.warmed_up) == (True, None)


def test_api_processes_that_take_turns_are_no_restart() -> None:
    engine = up(life())
    engine.restarted(100.0)
    engine.restarted(107.0)
    assert [engine.restarted(start_s) for start_s in (100.0, 107.0, None, 100.0, 107.0)] == [False] * 5


def test_a_start_time_that_is_worked_out_anew_with_each_page_is_no_restart() -> None:
    """Some exporters take it from their clock, which is slewed and stepped."""
    engine = up(life())
    engine.restarted(100.0)
    starts_s = [100.0 + 0.01 * page for page in range(1000)]
    assert not any(engine.restarted(start_s) for start_s in starts_s)
    assert engine.is_ready
    assert engine.restarted(140.0) is True, "a restart all the same"


@pytest.mark.parametrize("start_s", [1e18, 1.79e12])
def test_a_senseless_start_time_hides_no_restart(start_s: float) -> None:
    engine = up(life())
    assert [engine.restarted(seen_s) for seen_s in (100.0, start_s, 100.0, 200.0)] == [False, False, False, True]


def test_after_a_death_an_earlier_start_time_is_fine() -> None:
    engine = up(life())
    engine.restarted(100.0)
    engine.health(health(Liveness.DEAD))
    engine.health(health(Liveness.OK))
    assert engine.restarted(50.0) is False


def test_switches() -> None:
    quiet = life(advertise_max_model_len=False, warm_up=False)
    quiet.health(health(Liveness.OK))
    quiet.listed(LISTING, None)
    assert quiet.capabilities.max_model_len is None
    assert quiet.is_ready


@pytest.mark.parametrize("capacity", [None, 1000])
def test_a_page_that_says_less_takes_nothing_away(capacity: int | None) -> None:
    engine = life()
    engine.scraped(EngineScrape(kind="vllm", reading=EngineReading(), kv_capacity_tokens=1000, block_size_tokens=16))
    engine.scraped(EngineScrape(kind="vllm", reading=EngineReading(), kv_capacity_tokens=capacity))
    assert (engine.capabilities.engine, engine.capabilities.kv_capacity_tokens) == ("vllm", 1000)
    assert engine.capabilities.block_size_tokens == 16
