"""Two gateways of one grid, real Envoys: what one has sent where, the other finds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.contract.client import eventually
from tests.support.rawhttp import ask
from tests.support.up import Up, running_up
from tradewind.config.schema import (
    CellConfig,
    EmulatedEngineConfig,
    EmulationConfig,
    GatewayConfig,
    GridConfig,
    PickConfig,
)

PROFILE, TOKENS = "2xl40s", 2_048  # a quarter of a second of prefill: far beyond what counts as a tie
PROMPTS = 6  # of which all find their cell by chance in 1 of 64 runs
PATIENT = PickConfig(timeout_s=0.5)  # on a machine that is busy no pick is late
WITHIN_S = 10.0


def two_gateways(state_dir: Path) -> GridConfig:
    cells = ("a1", "a2")
    return GridConfig(
        grid="two",
        state_dir=str(state_dir),
        sites=["east"],
        gateways=[GatewayConfig(id=name, site="east", routing="pick", pick=PATIENT) for name in ("one", "two")],
        cells=[CellConfig(id=cell, site="east", url="http://127.0.0.1:0") for cell in cells],
        emulation=EmulationConfig(
            engines=[EmulatedEngineConfig(cell=cell, profile=PROFILE, model="tiny") for cell in cells]
        ),
        dashboard="",
    )


def cached_tokens(up: Up, gateway: int, first: int) -> int:
    """Of a prompt that no other begins like, sent through this gateway."""
    body = {"model": "tiny", "prompt": [first] * TOKENS, "max_tokens": 1}
    answer = ask(f"http://{up.grid.gateways[gateway].listen}", "POST", "/v1/completions", body)
    assert answer.status == 200
    usage: Any = answer.json()["usage"]
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def pick_status(up: Up, gateway: int) -> Mapping[str, Any]:
    pick = ask(f"http://{up.grid.gateways[gateway].admin}", "GET", "/v1/status").json()["pick"]
    assert isinstance(pick, dict)
    return pick


def test_a_prompt_finds_its_prefix_through_either_gateway(tmp_path: Path) -> None:
    with running_up(two_gateways(tmp_path / "state"), tmp_path) as up:

        def heard() -> bool:
            cached_tokens(up, 0, 1)
            return bool(pick_status(up, 1)["prompts_heard"])

        eventually(heard, within_s=WITHIN_S, what="both know of each other, and hash by one key")
        before = pick_status(up, 1)["prompts_heard"]
        assert [cached_tokens(up, 0, 100 + number) for number in range(PROMPTS)] == [0] * PROMPTS
        eventually(
            lambda: pick_status(up, 1)["prompts_heard"] >= before + PROMPTS, within_s=WITHIN_S, what="the other is told"
        )
        assert all(cached_tokens(up, 1, 100 + number) >= TOKENS // 2 for number in range(PROMPTS))
        assert pick_status(up, 0)["prompts_strange"] == pick_status(up, 1)["prompts_strange"] == 0
