"""What people see of the gate, and what a supervised Envoy is told of it."""

import shutil
from pathlib import Path

import pytest

from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.gateway.gate.probe import SEARCH_PATH, library_dir
from tradewind.lab.processes import envoy_spec
from tradewind.lab.report_status import status_tables

SEEN: dict[str, object] = {"control": "http://127.0.0.1:1", "problem": "", "grid": {}, "gateways": []}


@pytest.mark.parametrize(
    ("mode", "missing", "expected", "style"),
    [
        ("wasm", False, "gateway east first-token gate: wasm (Envoy accepts the module)", ""),
        ("none", True, "gateway east has NO first-token gate: Envoy accepts the module; streams that wait", "red"),
        ("none", False, "gateway east first-token gate: none (Envoy accepts the module)", ""),
    ],
)
def test_status_tells_the_gate_and_is_loud_where_it_is_missing(
    mode: str, missing: bool, expected: str, style: str
) -> None:
    row = {"gateway_id": "east", "mode": mode, "missing": missing, "why": "Envoy accepts the module"}
    texts = [item for item in status_tables({**SEEN, "gates": [row]}) if str(item).startswith("gateway east")]
    assert len(texts) == 1
    assert str(texts[0]).startswith(expected)
    assert str(getattr(texts[0], "style", "")) == style


def test_a_supervised_envoy_is_told_where_the_native_gate_lies(tmp_path: Path) -> None:
    gateway = GatewayConfig(id="east", listen="127.0.0.1:1", admin="127.0.0.1:2", envoy_admin="127.0.0.1:3")
    spec = envoy_spec(GridConfig(state_dir=str(tmp_path), gateways=[gateway]), gateway)
    assert dict(spec.env)[SEARCH_PATH] == str(library_dir(tmp_path / "gateway-east"))


def test_fc_40_the_bootstrap_of_a_supervised_envoy_is_written_before_each_start(tmp_path: Path) -> None:
    gateway = GatewayConfig(id="east", listen="127.0.0.1:1", admin="127.0.0.1:2", envoy_admin="127.0.0.1:3")
    spec = envoy_spec(GridConfig(state_dir=str(tmp_path), gateways=[gateway]), gateway)
    assert spec.prepare is not None
    spec.prepare()
    shutil.rmtree(tmp_path / "gateway-east")
    spec.prepare()
    assert (tmp_path / "gateway-east" / "envoy-bootstrap.json").exists()
