"""A grid's emulation section becomes a plan, or an error that says what to write."""

import pytest

from tradewind.config.schema import (
    CellConfig,
    EmulatedDcgmConfig,
    EmulatedEngineConfig,
    EmulatedKvEventsConfig,
    EmulationConfig,
    GridConfig,
    WanConfig,
)
from tradewind.emulator.plan import EmulationError, EmulationPlan, build_plan
from tradewind.emulator.wan import Wan

CELL = CellConfig(id="a1", site="east", url="http://127.0.0.1:8000")


def plan(engine: EmulatedEngineConfig | None = None, *, cell: CellConfig = CELL, **emulation: object) -> EmulationPlan:
    section = EmulationConfig(engines=[engine or EmulatedEngineConfig(cell="a1")], **emulation)  # type: ignore[arg-type]
    return build_plan(GridConfig(cells=[cell], emulation=section))


def test_paths_get_their_wan_whichever_way_it_is_written() -> None:
    engine = EmulatedEngineConfig(cell="a1", listen={"west": "127.0.0.1:1", "east": "127.0.0.1:2"})
    wan = [WanConfig(a="east", b="west", rtt_ms=38, jitter_ms=4, mbit_per_s=80)]
    paths = plan(engine, wan=wan).engines[0].paths
    assert paths["west"] == ("127.0.0.1:1", Wan(rtt_s=0.038, jitter_s=0.004, bytes_per_s=1e7))
    assert paths["east"] == ("127.0.0.1:2", Wan())


def test_the_context_is_no_longer_than_the_kv_cache() -> None:
    assert plan(EmulatedEngineConfig(cell="a1", profile="h100")).engines[0].max_model_len == 94_976
    assert plan(EmulatedEngineConfig(cell="a1", kv_capacity_tokens=1600)).engines[0].max_model_len == 1584


def test_gpu_uuids_are_made_up_stably_or_taken() -> None:
    first = plan(EmulatedEngineConfig(cell="a1", profile="2xl40s")).engines[0].gpu_uuids
    assert len(set(first)) == 2
    assert first == plan(EmulatedEngineConfig(cell="a1", profile="2xl40s")).engines[0].gpu_uuids
    assert plan(EmulatedEngineConfig(cell="a1", gpu_uuid="GPU-x")).engines[0].gpu_uuids == ("GPU-x",)
    cell = CellConfig(id="a1", site="east", url="http://127.0.0.1:8000", gpu_uuids=["GPU-y"])
    assert plan(cell=cell).engines[0].gpu_uuids == ("GPU-y",)


def test_an_exporter_shows_the_gpus_of_its_site() -> None:
    exporters = plan(dcgm=[EmulatedDcgmConfig(site="east", names="new")]).exporters
    assert exporters[0].new_names
    assert len(exporters[0].gpus) == 1


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (EmulatedEngineConfig(cell="zz"), "not in cells; known: a1"),
        (EmulatedEngineConfig(cell="a1", profile="b200"), "write one of 2xl40s, fast"),
        (EmulatedEngineConfig(cell="a1", max_num_seqs=0), "max_num_seqs: 0 is too small"),
        (EmulatedEngineConfig(cell="a1", listen={"west": "127.0.0.1:8000"}), "both listen on"),
        (EmulatedEngineConfig(cell="a1", kv_events=EmulatedKvEventsConfig(listen="127.0.0.1:8000")), "both listen on"),
    ],
)
def test_errors_say_what_to_write(engine: EmulatedEngineConfig, says: str) -> None:
    with pytest.raises(EmulationError, match=says):
        plan(engine)


def test_an_engine_that_is_to_publish_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = EmulatedEngineConfig(cell="a1", kv_events=EmulatedKvEventsConfig(listen="127.0.0.1:9"))
    monkeypatch.setattr("tradewind.emulator.plan.find_spec", lambda _name: None)
    assert plan().engines[0].kv_events is None
    with pytest.raises(EmulationError, match=r"engines\[0\]\.kv_events: needs pyzmq: install tradewind\[kv-events\]"):
        plan(asked)


def test_other_errors() -> None:
    with pytest.raises(EmulationError, match="emulation: missing"):
        build_plan(GridConfig())
    with pytest.raises(EmulationError, match="no emulated engine is in site 'moon'"):
        plan(dcgm=[EmulatedDcgmConfig(site="moon")])
    with pytest.raises(EmulationError, match="http://ip:port"):
        plan(cell=CellConfig(id="a1", site="east", url="https://x"))
