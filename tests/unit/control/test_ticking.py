"""A control that was deaf for a while reads what waits before it calls anybody silent."""

import asyncio

import pytest

from tests.unit.control.test_grid import Bench
from tradewind.control import ticking
from tradewind.control.ticking import MAX_SKIPPED, tick


def run_ticks(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, late_s: float, turns: int) -> list[float]:
    """Let the loop come `late_s` late, `turns` times; returns when the grid was ticked."""
    monkeypatch.setattr(ticking, "TICK_S", 0.0)
    ticked: list[float] = []
    monkeypatch.setattr(bench.grid, "tick", ticked.append)

    async def scenario() -> None:
        task = asyncio.create_task(tick(bench.grid, lambda: bench.now_s))
        for _ in range(turns):
            await asyncio.sleep(0)
            bench.now_s += late_s
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    return ticked


def test_fc_65_a_late_tick_is_skipped_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    turns = 3 * (MAX_SKIPPED + 1)
    ticked = run_ticks(bench, monkeypatch, late_s=1.0, turns=turns)
    assert len(ticked) == 3
    assert bench.grid.counters["ticks_skipped"] == turns - 3


def test_a_tick_in_time_is_never_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    assert len(run_ticks(bench, monkeypatch, late_s=0.1, turns=20)) == 20
    assert bench.grid.counters["ticks_skipped"] == 0
