"""Wait for a condition with a deadline: tests poll what they wait for, they never sleep a fixed time."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], within_s: float = 30.0, *, every_s: float = 0.01) -> None:
    """Return as soon as `holds()`; raise TimeoutError after `within_s`."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 (what is waited for lives in another process)
            await asyncio.sleep(every_s)
