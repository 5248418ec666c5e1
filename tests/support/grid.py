"""Small live grids for integration tests: few fast cells, free ports, everything ended by the supervisor."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from tradewind.config.schema import GridConfig
from tradewind.lab.checks import Check, all_hold
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid

Result = TypeVar("Result")


def small_grid(
    state_dir: Path, *, sites: tuple[str, ...] = ("east", "west"), cells_per_site: int = 2, exporters: bool = False
) -> GridConfig:
    """Cells of the `fast` profile: tens of milliseconds to the first token, so that tests end soon."""
    return emulated_grid(
        sites=sites,
        cells_per_site=cells_per_site,
        profile="fast",
        state_dir=str(state_dir),
        exporters=exporters,
        wan_ms=((2.0, 0.2), (8.0, 0.5), (12.0, 1.0)),
        name="test",
    )


def with_grid(config: GridConfig, script: Callable[[LiveGrid], Awaitable[Result]]) -> Result:
    """Run a script against a live grid; pytest's main thread owns the children."""

    async def main() -> Result:
        async with LiveGrid(config) as grid:
            return await script(grid)

    return asyncio.run(main())


def assert_hold(checks: list[Check]) -> None:
    """Fail with every check that does not hold."""
    assert all_hold(checks), "\n".join(str(check) for check in checks if check.holds is False)
