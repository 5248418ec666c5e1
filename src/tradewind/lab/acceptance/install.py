"""Puts each tool into a virtual environment of its own under build/, with a tokenizer made there: no hub is asked."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from tradewind.lab.acceptance.tools import Tool

HOME = Path("build")
# The tokenizer lies where a download of this name would lie in a hub's cache: offline, aiperf takes no folder, and
# its worker processes are offline in any case.
TOKENIZER = "tradewind/four-bytes"
REVISION = "0" * 40
LEAST_FREE_BYTES = 10 * 2**30
TIMEOUT_S = 1_800.0
MAX_REASON = 200  # characters of an installer's last line


class NotInstalled(Exception):
    """The tool cannot be had here; the message is one line for people."""


def folder_of(tool: Tool, home: Path = HOME) -> Path:
    """The tool's environment."""
    return home / f"{tool.name}-venv"


def tokenizer_of(tool: Tool, home: Path = HOME) -> Path:
    """The folder of the tool's tokenizer."""
    return _cached(tool, home) / "snapshots" / REVISION


def _hub(tool: Tool, home: Path) -> Path:
    return home / f"{tool.name}-hub"


def _cached(tool: Tool, home: Path) -> Path:
    return _hub(tool, home) / "hub" / f"models--{TOKENIZER.replace('/', '--')}"


def ensure_installed(tool: Tool, home: Path = HOME) -> None:
    """Installs once; later calls return at once. Raises NotInstalled with the reason."""
    folder = folder_of(tool, home)
    ready, wanted = folder / ".ready", "\n".join(" ".join(step) for step in tool.pins)
    if not (ready.exists() and ready.read_text() == wanted):
        _install(tool, folder)
        ready.write_text(wanted)
    if not tokenizer_of(tool, home).exists():
        corpus = next(folder.glob(f"lib/python3*/site-packages/{tool.corpus}"), None)
        if corpus is None:
            raise NotInstalled(f"{tool.corpus} is not in its packages")
        script = Path(__file__).with_name("make_tokenizer.py")
        _run(folder / "bin" / "python", script, corpus, tokenizer_of(tool, home), str(tool.vocabulary))
        main = _cached(tool, home) / "refs" / "main"
        main.parent.mkdir(exist_ok=True)
        main.write_text(REVISION)


def environment(tool: Tool, home: Path = HOME) -> Mapping[str, str]:
    """Of a tool: it asks no hub, and reports to nobody."""
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    return {**os.environ, **quiet, "HF_HOME": str(_hub(tool, home).absolute())}


def _install(tool: Tool, folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < LEAST_FREE_BYTES:
            raise NotInstalled(f"less than {LEAST_FREE_BYTES / 2**30:.0f} GiB of disk are free")
        venv.create(folder, with_pip=True, clear=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"no environment: {error}"[:MAX_REASON]) from error
    for step in tool.pins:
        _run(folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *step)


def _run(*command: str | Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{command[0]}: {error}"[:MAX_REASON]) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        raise NotInstalled(lines[-1][:MAX_REASON])


def main() -> int:
    """Installs every tool; a line each."""
    from tradewind.lab.acceptance.run import TOOLS

    for tool in TOOLS:
        try:
            ensure_installed(tool)
        except NotInstalled as why:
            sys.stdout.write(f"{tool.name}: skipped: {why}\n")
        else:
            sys.stdout.write(f"{tool.name}: there\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
