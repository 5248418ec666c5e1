"""The newcomer's last step, timed by verify: a grid from the shipped example, and one routed token."""

import asyncio
import sys
import tempfile

from msgspec.structs import replace

from tradewind.lab.client import LoadClient
from tradewind.lab.grid import LiveGrid
from tradewind.lab.grids import emulated_grid
from tradewind.workload.plan import Planned


async def first_token() -> bool:
    """Start nine cells and send one request; True when it was served."""
    with tempfile.TemporaryDirectory(prefix="tradewind-") as folder:
        config = emulated_grid(state_dir=folder)
        async with LiveGrid(replace(config, grid="newcomer")) as grid:
            plan = (Planned(request_id="first", at_s=0.0, prompt_tokens=32, output_tokens=1),)
            (record,) = await LoadClient(grid.target()).run(plan)
            return record.ok


def main() -> int:
    """0 when the token came."""
    return 0 if asyncio.run(first_token()) else 1


if __name__ == "__main__":
    sys.exit(main())
