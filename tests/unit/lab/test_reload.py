"""A grid file that changes while the grid is up, and cannot be applied."""

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from tradewind.config.errors import ConfigError, Problem
from tradewind.config.resolve import load_checked, resolve, resolved_path
from tradewind.config.schema import GridConfig
from tradewind.lab.reload import Reloader
from tradewind.runtime.supervise import Supervisor

FILE = "{{state_dir: state, controls: [], gateways: [], agents: [], dashboard: '', models: [{model}], cells: []}}"


def written(tmp_path: Path, model: str) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(FILE.format(model=model))
    os.utime(path, (1_000.0, 1_000.0 + ord(model)))  # at rest since then
    return path


def test_fc_40_a_full_disk_ends_no_grid_and_the_change_is_taken_later(tmp_path: Path) -> None:
    file = written(tmp_path, "a")
    grid = resolve(load_checked(file))
    said: list[str] = []
    draft = resolved_path(grid).with_suffix(".draft")
    draft.parent.mkdir()
    reloader = Reloader(file, grid, Supervisor(tmp_path), override=lambda new: new, say=said.append)

    async def poll(times: int) -> None:
        for _ in range(times):
            await reloader.poll()

    draft.symlink_to("/dev/full")
    written(tmp_path, "b")
    asyncio.run(poll(3))
    assert [("No space" in text, "old one stays" in text) for text in said] == [(True, True)]
    assert reloader.grid == grid
    draft.unlink()
    asyncio.run(poll(1))
    assert reloader.grid == replace(grid, models=["b"])
    assert said[-1] == "the changed grid file is in force"


def test_fc_48_a_change_that_an_override_refuses_ends_no_grid(tmp_path: Path) -> None:
    file = written(tmp_path, "a")
    grid = resolve(load_checked(file))
    said: list[str] = []

    def refuse(_grid: GridConfig) -> GridConfig:
        raise ConfigError("grid.yaml", [Problem(where="$.gateways", what="no such baseline")])

    reloader = Reloader(file, grid, Supervisor(tmp_path), override=refuse, say=said.append)
    written(tmp_path, "b")
    asyncio.run(reloader.poll())
    assert ["no such baseline" in text for text in said] == [True]
    assert reloader.grid == grid
