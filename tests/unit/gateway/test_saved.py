"""The saved view: what is written comes back, and no disk is able to stop a gateway."""

from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.core.memory import JudgeMemory, Memory, Verdict
from tradewind.gateway.saved import (
    MAX_MEMORY_AGE_S,
    REBOOT_AGE_S,
    Moment,
    SavedState,
    SavedView,
    lain_s,
    moment_now,
    without_telemetry,
)
from tradewind.model.cell import Capabilities, Cell, CellState
from tradewind.model.routing import Endpoint, PoolRouting, Routing
from tradewind.model.telemetry import EngineReading, Telemetry
from tradewind.model.view import CellView

CELL = CellView(
    cell=Cell(cell_id="x", site="east", address="127.0.0.1:9", capabilities=Capabilities(models=("m",))),
    state=CellState.READY,
    incarnation="b1",
    sequence=4,
)
ROUTING = Routing(
    pools=(
        PoolRouting(model="m", endpoints=(Endpoint(cell_id="x", site="east", address="127.0.0.1:9", weight=7),)),
        PoolRouting(model="n"),
    )
)
STATE = SavedState(gateway_id="gw", cells=(CELL,), routing=ROUTING, weights=(("x", 7),))


def test_round_trip(tmp_path: Path) -> None:
    saved = SavedView(tmp_path / "gateway-gw" / "view.json", "gw")
    assert saved.load() is None
    assert saved.store(STATE)
    assert saved.load() == STATE
    assert saved.failures == 0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"cells": [{"state": "dancing"}]}',
        b"null",
        b'{"a": ' + b"[" * 200_000,
        b'{"format": 1, "gateway_id": "gw"}',  # what is missing is not empty: Envoy would be told to forget all cells
        b'{"format": 1, "gateway_id": "gw", "cells": []}',
    ],
)
def test_fc_40_a_corrupt_file_is_said_and_survived(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "view.json"
    path.write_bytes(text)
    saved = SavedView(path, "gw")
    assert saved.load() is None
    assert saved.failures == 1
    assert saved.last_error


def test_fc_40_a_weight_that_envoy_would_refuse_is_not_taken_from_disk(tmp_path: Path) -> None:
    saved = SavedView(tmp_path / "view.json", "gw")
    saved.store(STATE)
    saved.path.write_bytes(saved.path.read_bytes().replace(b'"weight":7', b'"weight":0'))
    assert saved.load() is None


def test_memory_nested_without_end_costs_the_view_nothing(tmp_path: Path) -> None:
    saved = SavedView(tmp_path / "view.json", "gw")
    saved.store(STATE)
    begin, _, _ = saved.path.read_bytes().partition(b'"memory":')
    deep = b"[" * 100_000 + b"]" * 100_000
    saved.path.write_bytes(begin + b'"memory":' + deep + b"}")
    state = saved.load()
    assert saved.failures == 1
    if state is not None:  # the whole file is refused where the reader may not go so deep at all
        assert (state.cells, state.memory) == (STATE.cells, Memory())


def test_the_file_of_another_gateway_is_not_used(tmp_path: Path) -> None:
    SavedView(tmp_path / "view.json", "other").store(SavedState(gateway_id="other"))
    saved = SavedView(tmp_path / "view.json", "gw")
    assert saved.load() is None
    assert saved.failures == 1


def test_fc_40_a_disk_that_refuses_keeps_the_old_file(tmp_path: Path) -> None:
    saved = SavedView(tmp_path / "view.json", "gw")
    saved.store(STATE)
    (tmp_path / "view.partial").mkdir()  # the partial file cannot be opened: as with a full or read-only disk
    assert not saved.store(replace_gateway(STATE))
    assert saved.load() == STATE
    assert saved.failures == 1


VERDICT = Verdict(cell_id="x", age_s=10.0, reason="a probe fails here", request_bytes=9000)
LEARNED = SavedState(
    gateway_id="gw",
    cells=(CELL,),
    routing=ROUTING,
    memory=Memory(cases=(JudgeMemory(model="m", kind="refusal", verdicts=(VERDICT,)),)),
)


def kept(path: Path, *, then: Moment, now: Moment) -> SavedState:
    """What a process finds that starts at `now`, of what another wrote at `then`."""
    assert SavedView(path, "gw", moment=lambda: then).store(LEARNED)
    state = SavedView(path, "gw", moment=lambda: now).load()
    assert state is not None
    assert (state.cells, state.routing) == (LEARNED.cells, LEARNED.routing)
    return state


def ages(state: SavedState) -> list[float]:
    return [verdict.age_s for case in state.memory.cases for verdict in case.verdicts]


def test_what_was_learned_comes_back_older_by_the_time_it_lay(tmp_path: Path) -> None:
    then, now = Moment(boot_id="b", uptime_s=500.0), Moment(boot_id="b", uptime_s=530.0)
    assert ages(kept(tmp_path / "view.json", then=then, now=now)) == [40.0]


@pytest.mark.parametrize("boot_id", ["other", ""])
def test_after_a_reboot_the_age_is_a_bounded_guess(tmp_path: Path, boot_id: str) -> None:
    now = Moment(boot_id=boot_id, uptime_s=3.0)
    assert ages(kept(tmp_path / "view.json", then=Moment(boot_id="b", uptime_s=9e6), now=now)) == [10.0 + REBOOT_AGE_S]


def test_what_was_learned_hours_ago_is_learned_anew(tmp_path: Path) -> None:
    then, now = Moment(boot_id="b", uptime_s=0.0), Moment(boot_id="b", uptime_s=MAX_MEMORY_AGE_S + 1)
    assert ages(kept(tmp_path / "view.json", then=then, now=now)) == []


def test_this_hosts_own_moment_moves_on(tmp_path: Path) -> None:
    assert lain_s(moment_now(), moment_now()) < 60.0
    assert ages(kept(tmp_path / "view.json", then=moment_now(), now=moment_now()))[0] >= 10.0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"age_s":10.0', b'"age_s":-1'),
        (b'"age_s":10.0', b'"age_s":"long ago"'),
        (b'"request_bytes":9000', b'"request_bytes":1e400'),
        (b'"cases":[', b'"cases":[7,'),
        (b'"memory":{', b'"memory":[{}],"was":{'),
    ],
)
def test_fc_40_experience_that_cannot_be_read_costs_the_view_nothing(tmp_path: Path, old: bytes, new: bytes) -> None:
    saved = SavedView(tmp_path / "view.json", "gw")
    saved.store(LEARNED)
    text = saved.path.read_bytes()
    assert text.count(old) == 1
    saved.path.write_bytes(text.replace(old, new))
    state = saved.load()
    assert state is not None
    assert (state.cells, state.routing, state.memory) == (LEARNED.cells, LEARNED.routing, Memory())
    assert "memory_unusable" in saved.last_error


def test_a_file_from_before_there_was_experience_is_used(tmp_path: Path) -> None:
    saved = SavedView(tmp_path / "view.json", "gw")
    saved.path.write_bytes(b'{"format":1,"gateway_id":"gw","cells":[],"routing":{}}')
    state = saved.load()
    assert state is not None
    assert state.memory == Memory()


def replace_gateway(state: SavedState) -> SavedState:
    return SavedState(gateway_id="gw", cells=(), routing=state.routing)


def test_telemetry_is_left_out() -> None:
    busy = replace(CELL, telemetry=Telemetry(engine=EngineReading(queue_requests=1.0), engine_age_s=0.1))
    assert without_telemetry((busy,)) == (CELL,)
