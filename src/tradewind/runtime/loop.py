"""The event loop of a process: uvloop, signals, lag."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine

import uvloop


def run_until_signal(main: Coroutine[object, object, int]) -> int:
    """Run main under uvloop; SIGTERM and SIGINT cancel it. Returns main's exit code, 0 when cancelled so."""
    return int(uvloop.run(_guarded(main)))


async def _guarded(main: Coroutine[object, object, int]) -> int:
    task = asyncio.ensure_future(main)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 0


class LoopLag:
    """How late the loop runs its timers: the newest and the worst lag of the last minute, in seconds."""

    def __init__(self, interval_s: float = 0.1) -> None:
        self.interval_s = interval_s
        self.lag_s = 0.0
        self._recent: list[float] = []

    @property
    def worst_s(self) -> float:
        return max(self._recent, default=0.0)

    @contextlib.asynccontextmanager
    async def watch(self) -> AsyncIterator["LoopLag"]:
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        bound = int(60 / self.interval_s)
        while True:
            due_s = loop.time() + self.interval_s
            await asyncio.sleep(self.interval_s)
            self.lag_s = max(0.0, loop.time() - due_s)
            self._recent.append(self.lag_s)
            del self._recent[:-bound]
