"""The saved view: what is written comes back, and no disk is able to stop a gateway."""

from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.gateway.saved import SavedState, SavedView, without_telemetry
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


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", b'{"cells": [{"state": "dancing"}]}', b"null"])
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


def replace_gateway(state: SavedState) -> SavedState:
    return SavedState(gateway_id="gw", cells=(), routing=state.routing)


def test_telemetry_is_left_out() -> None:
    busy = replace(CELL, telemetry=Telemetry(engine=EngineReading(queue_requests=1.0), engine_age_s=0.1))
    assert without_telemetry((busy,)) == (CELL,)
