"""Find a grid on this machine: the settled form of a grid file, and the addresses to ask."""

from pathlib import Path

from tradewind.config.errors import ConfigError, Problem
from tradewind.config.load import load
from tradewind.config.resolve import load_checked, resolve, resolved_path, write_resolved
from tradewind.config.schema import GridConfig

DEFAULT_FILE = "grid.yaml"


def settled(path: Path) -> tuple[GridConfig, Path]:
    """The settled grid of a file and the path of its resolved form, written if need be. Raises ConfigError, OSError.

    A resolved file stands for itself. A file written by people keeps the ports that an earlier start settled.
    """
    if path.suffix == ".json":
        return load(path), path
    grid = load_checked(path)
    before = settled_before(grid)
    after = resolve(grid, keep=before)
    if after != before:
        write_resolved(after)
    return after, resolved_path(after)


def running(path: Path) -> GridConfig:
    """The settled grid that `tradewind up` wrote for a file. Raises ConfigError when there is none."""
    if path.suffix == ".json":
        return load(path)
    grid = load_checked(path)
    before = settled_before(grid)
    if before is None:
        what = f"this grid has not been started: there is no {resolved_path(grid)}"
        raise ConfigError(str(path), [Problem(where="$.state_dir", what=what, write=f"tradewind up -f {path}")])
    return before


def settled_before(grid: GridConfig) -> GridConfig | None:
    """What an earlier start settled, None when there is nothing that can be read."""
    try:
        return load(resolved_path(grid))
    except ConfigError:
        return None
