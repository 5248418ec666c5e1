"""A minute of engines killed every two seconds: nothing is lost before its first token (`make soak` runs five)."""

from pathlib import Path

import pytest

from tests.support.grid import assert_hold, with_grid
from tradewind.lab.checks import Check
from tradewind.lab.grid import LiveGrid
from tradewind.lab.soak.run import SoakOptions, soak, soak_grid


@pytest.mark.slow
def test_nothing_is_lost_before_its_first_token(tmp_path: Path) -> None:
    async def script(grid: LiveGrid) -> list[Check]:
        return await soak(grid, SoakOptions(for_s=60.0, seed=2))

    checks = with_grid(soak_grid(str(tmp_path)), script)
    assert_hold(checks)
    seen = {check.name: check.value or 0 for check in checks}
    assert seen["engines killed"] > 15
    assert seen["no-gate: lost before a token"] > 0  # so the kills do hit requests that wait
